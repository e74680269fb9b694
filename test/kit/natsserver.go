package kit

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// NATSServer starts a NATS server in the process. Unless the options say otherwise, it listens on a port of
// its own and has JetStream off. The server's defaults are filled into options. It ends with the test.
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

// NATSWithAccount starts a NATS server with JetStream. All clients belong to one account with these limits,
// in the syntax of the server's configuration: "max_streams: 2".
func NATSWithAccount(t testing.TB, limits string) *server.Server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	Check(t, os.WriteFile(file, []byte("accounts {A {users: [{user: a, password: a}], jetstream {\n"+limits+
		"\n}}}\nno_auth_user: a\n"), 0o600))
	options, err := server.ProcessConfigFile(file)
	Check(t, err)
	options.JetStream, options.Port = true, 0 // any free one
	return NATSServer(t, options)
}
