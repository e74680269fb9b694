// Package redistest gives tests and benchmarks a Redis of their own.
//
// It is a real redis-server process on a free port wherever one is installed, because the embedded store is not
// Redis. Where none is installed tests run on the embedded store and say so; NOTIFIER_TEST_REDIS=require turns that
// into a failure, so that nothing is skipped silently.
package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// startDeadline is how long a redis-server may take until it answers.
const startDeadline = 10 * time.Second

// Server is a Redis for one test.
type Server struct {
	Addr     string // host:port
	Embedded bool   // it is the embedded store, not a redis-server
	dir      string
	extra    []string
	command  *exec.Cmd
}

// URL is what REDIS_URL would be.
func (s *Server) URL() string { return "redis://" + s.Addr + "/0" }

// Start gives a fresh, empty server that ends with the test. extra are further redis-server arguments.
func Start(tb testing.TB, extra ...string) *Server {
	tb.Helper()
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("NOTIFIER_TEST_REDIS") == "require" {
			tb.Fatal("NOTIFIER_TEST_REDIS=require, and there is no redis-server in PATH")
		}
		tb.Log("WARNING: no redis-server in PATH; this test runs on the embedded store, which is not Redis")
		embedded := miniredis.RunT(tb)
		return &Server{Addr: embedded.Addr(), Embedded: true}
	}
	server := &Server{dir: tb.TempDir(), extra: extra}
	server.start(tb, binary)
	tb.Cleanup(server.kill)
	return server
}

// StartProcess is Start for tests that need a process to stop and start again; it skips loudly where there is none.
func StartProcess(tb testing.TB, extra ...string) *Server {
	tb.Helper()
	server := Start(tb, extra...)
	if server.Embedded {
		tb.Skip("needs a redis-server process, and there is none in PATH")
	}
	return server
}

func (s *Server) start(tb testing.TB, binary string) {
	tb.Helper()
	port := freePort(tb)
	if s.Addr != "" {
		_, text, _ := net.SplitHostPort(s.Addr)
		port, _ = strconv.Atoi(text)
	}
	s.Addr = fmt.Sprintf("127.0.0.1:%d", port)
	arguments := append([]string{
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", s.dir,
		"--save", "", "--logfile", filepath.Join(s.dir, "redis.log"),
	}, s.extra...)
	s.command = exec.Command(binary, arguments...)
	if err := s.command.Start(); err != nil {
		tb.Fatalf("start redis-server: %v", err)
	}
	client := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1})
	defer func() { _ = client.Close() }()
	deadline := time.Now().Add(startDeadline)
	for {
		err := client.Ping(context.Background()).Err()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.kill()
			tb.Fatalf("redis-server on %s does not answer: %v", s.Addr, err)
		}
		time.Sleep(5 * time.Millisecond) // between two looks at the condition
	}
}

// Stop ends the server process at once, as a crash would. What it has not written to disk is lost.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	s.kill()
}

// Restart starts the stopped server again on the same port and folder.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.start(tb, s.command.Path)
}

func (s *Server) kill() {
	if s.command != nil && s.command.ProcessState == nil {
		_ = s.command.Process.Kill()
		_ = s.command.Wait() // its error says only that we killed it
	}
}

// Client is a client of the server that is closed with the test.
func (s *Server) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

func freePort(tb testing.TB) int {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("find a free port: %v", err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}
