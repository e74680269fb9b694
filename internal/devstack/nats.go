package devstack

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// natsStart bounds the start of the embedded server.
const natsStart = 10 * time.Second

// NATS is an embedded NATS server.
type NATS struct {
	server  *server.Server
	options server.Options
	folder  string // removed by Close; empty if the caller owns the folder
}

// StartNATS starts a NATS server with JetStream on addr (host:port; port 0, or a port that is taken: a free
// one). Streams are kept in folder; empty: in a temporary one that Close removes.
func StartNATS(addr, folder string) (*NATS, error) {
	n := &NATS{}
	if folder == "" {
		temporary, err := os.MkdirTemp("", "notifier-nats-")
		if err != nil {
			return nil, fmt.Errorf("embedded NATS: %w", err)
		}
		folder, n.folder = temporary, temporary
	}
	listener, err := listen(addr)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("embedded NATS: %w", err), n.removeFolder())
	}
	free := listener.Addr().(*net.TCPAddr)
	_ = listener.Close() // the server opens its own
	port := free.Port
	if _, wanted, _ := net.SplitHostPort(addr); wanted != strconv.Itoa(port) {
		port = server.RANDOM_PORT // any will do, and this one may be taken before the server opens it
	}
	n.options = server.Options{
		ServerName: "notifier-dev", Host: free.IP.String(), Port: port,
		JetStream: true, StoreDir: folder, NoSigs: true, NoLog: true,
	}
	err = n.start()
	if err != nil && port != server.RANDOM_PORT { // it was taken in the meantime
		n.options.Port = server.RANDOM_PORT
		err = n.start()
	}
	if err != nil {
		return nil, errors.Join(err, n.removeFolder())
	}
	return n, nil
}

func (n *NATS) start() error {
	options := n.options
	s, err := server.NewServer(&options)
	if err != nil {
		return fmt.Errorf("embedded NATS: %w", err)
	}
	s.Start()
	if !s.ReadyForConnections(natsStart) {
		s.Shutdown()
		s.WaitForShutdown()
		return fmt.Errorf("embedded NATS is not ready on %s:%d", n.options.Host, n.options.Port)
	}
	n.server, n.options.Port = s, s.Addr().(*net.TCPAddr).Port
	return nil
}

// Addr returns the host:port that the server listens on.
func (n *NATS) Addr() string {
	return net.JoinHostPort(n.options.Host, strconv.Itoa(n.options.Port))
}

// URL returns the value for NATS_URL.
func (n *NATS) URL() string { return "nats://" + n.Addr() }

// Stop stops the server; its streams are kept. Start starts it again on the same address.
func (n *NATS) Stop() {
	n.server.Shutdown()
	n.server.WaitForShutdown()
}

// Start starts a stopped server again on the same address, with the streams that it had.
func (n *NATS) Start() error {
	if err := Released(n.Addr()); err != nil {
		return fmt.Errorf("embedded NATS: %w", err)
	}
	return n.start()
}

// Close stops the server and removes its temporary folder.
func (n *NATS) Close() error {
	n.Stop()
	return n.removeFolder()
}

func (n *NATS) removeFolder() error {
	if n.folder == "" {
		return nil
	}
	return os.RemoveAll(n.folder)
}
