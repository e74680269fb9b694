// Package natstest starts NATS servers in the process of a test.
package natstest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"notifier/test/kit"
)

// Server starts a server. Unless the options say otherwise, it listens on a port of its own and has JetStream
// off. The server's defaults are filled into options. It ends with the test.
func Server(t testing.TB, options *server.Options) *server.Server {
	t.Helper()
	if options.JetStream && options.StoreDir == "" {
		options.StoreDir = t.TempDir()
	}
	options.Host, options.NoSigs, options.NoLog = "127.0.0.1", true, true
	if options.Port == 0 {
		port, err := kit.FreePort()
		kit.Check(t, err)
		options.Port = port
	}
	started, err := server.NewServer(options)
	kit.Check(t, err)
	started.Start()
	t.Cleanup(func() { started.Shutdown(); started.WaitForShutdown() })
	if !started.ReadyForConnections(kit.Patience) {
		t.Fatal("the NATS server does not answer")
	}
	return started
}

// WithAccount starts a server with JetStream. All clients belong to one account with these limits,
// in the syntax of the server's configuration: "max_streams: 2".
func WithAccount(t testing.TB, limits string) *server.Server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	kit.Check(t, os.WriteFile(file, []byte("accounts {A {users: [{user: a, password: a}], jetstream {\n"+limits+
		"\n}}}\nno_auth_user: a\n"), 0o600))
	options, err := server.ProcessConfigFile(file)
	kit.Check(t, err)
	options.JetStream, options.Port = true, 0 // any free one
	return Server(t, options)
}
