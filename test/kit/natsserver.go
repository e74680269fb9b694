package kit

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// NATSServer starts a NATS server with JetStream and these options, on a free port unless they name one. It ends with the test.
func NATSServer(t testing.TB, options *server.Options) *server.Server {
	t.Helper()
	options.Host, options.NoSigs, options.NoLog, options.JetStream, options.StoreDir = "127.0.0.1", true, true, true, t.TempDir()
	if options.Port == 0 {
		options.Port = server.RANDOM_PORT
	}
	s, err := server.NewServer(options)
	Check(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(Patience) {
		t.Fatal("the NATS server does not answer")
	}
	return s
}
