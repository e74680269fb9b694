package redistest

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"notifier/test/kit"
)

// Empty removes a stopped server's files, so that it restarts without data.
func (s *Server) Empty(tb testing.TB) {
	tb.Helper()
	files := []string{filepath.Join(s.dir, "appendonlydir"), filepath.Join(s.dir, "dump.rdb")}
	if s.place.container != "" {
		_, err := docker(append([]string{"exec", s.place.container, "rm", "-rf"}, files...)...)
		kit.Check(tb, err)
		return
	}
	for _, file := range files {
		kit.Check(tb, os.RemoveAll(file))
	}
}

// StartReplica starts a replica of the server, and waits until it has a copy.
func (s *Server) StartReplica(tb testing.TB) *Server {
	tb.Helper()
	host, port, err := net.SplitHostPort(s.Addr)
	kit.Check(tb, err)
	replica := startServer(tb, s.place, standalone, s.extra)
	replica.do(tb, "REPLICAOF", host, port)
	kit.Check(tb, within(startDeadline, replica.linked))
	return replica
}

// Part ends the replication to this replica and makes it a primary with the data received so far. Until
// Replace, it has only clients that connect to it directly.
func (s *Server) Part(tb testing.TB) {
	tb.Helper()
	s.do(tb, "REPLICAOF", "NO", "ONE")
}

// Replace lets this server take the address of a stopped one, and with it the clients.
func (s *Server) Replace(tb testing.TB, stopped *Server) {
	tb.Helper()
	_, port, err := net.SplitHostPort(stopped.Addr)
	kit.Check(tb, err)
	kit.Check(tb, within(startDeadline, func() error {
		_, err := s.try("CONFIG", "SET", "port", port)
		return err
	}))
	s.Addr = stopped.Addr
}
