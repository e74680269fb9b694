package kit

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// NATSServer starts a NATS server in the process, on a port that nobody else takes unless the options name
// one, and without JetStream unless they ask for it. The options become those that it runs with. It ends with
// the test.
func NATSServer(t testing.TB, options *server.Options) *server.Server {
	t.Helper()
	if options.JetStream && options.StoreDir == "" {
		options.StoreDir = t.TempDir()
	}
	options.Host, options.NoSigs, options.NoLog = "127.0.0.1", true, true
	if options.Port == 0 {
		port, err := FreePort()
		Check(t, err)
		options.Port = port
	}
	started, err := server.NewServer(options)
	Check(t, err)
	started.Start()
	t.Cleanup(func() { started.Shutdown(); started.WaitForShutdown() })
	if !started.ReadyForConnections(Patience) {
		t.Fatal("the NATS server does not answer")
	}
	return started
}
