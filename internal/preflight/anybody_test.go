package preflight

import (
	"crypto/tls"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"notifier/internal/settings"
	"notifier/test/kit"
)

// TestNATSThatKnowsClientsByTheirCertificates: where the client has one, nobody knows whether others may do
// without, and nothing is warned of.
func TestNATSThatKnowsClientsByTheirCertificates(t *testing.T) {
	t.Parallel()
	cert, key := kit.Certificate(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	kit.Check(t, err)
	s := kit.NATSServer(t, &server.Options{JetStream: true, TLS: true, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}})
	withCA := func(env *settings.Environment) { env.NATSURL, env.NATSTLSCA = s.ClientURL(), cert }
	wantFinding(t, found(t, checkNATS, parsed(t, withCA)), Warn, "it requires no user")
	wantNone(t, found(t, checkNATS, parsed(t, func(env *settings.Environment) {
		withCA(env)
		env.NATSTLSCert, env.NATSTLSKey = cert, key
	})), Warn)
}
