package main

import (
	"crypto/tls"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"notifier/test/kit"
)

// TestTLSFirst: the worker, check and every command that connects to NATS reach a server that expects TLS
// first.
func TestTLSFirst(t *testing.T) {
	t.Parallel()
	cert, key := kit.Certificate(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	kit.Check(t, err)
	secure := kit.NATSServer(t, &server.Options{
		JetStream: true, TLS: true, TLSTimeout: 2, TLSHandshakeFirst: true,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	})
	_, _, env := services(t, map[string]string{"NATS_URL": "tls://" + secure.Addr().String(), "NATS_TLS_CA": cert})
	p := startReady(t, env)
	publishes(t, env, "errors", "disk full")
	kit.Eventually(t, "settled", func() bool { return len(p.out.lines(`"outcome":"sent"`)) == 1 })
	checkAgainst(t, env, exitDone)
	for _, command := range [][]string{{"dead", "list"}, {"events"}} {
		if c := start(t, env, command...); c.code(t) != exitDone {
			t.Errorf("%v: %s", command, c.errOut.String())
		}
	}
}
