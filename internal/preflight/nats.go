package preflight

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/redact"
	"notifier/internal/settings"
)

// checkNATS connects as a worker would and looks at what a worker uses. It creates nothing.
func checkNATS(ctx context.Context, s settings.Settings, r *report) {
	client := &natsClient{}
	options := append(
		s.NATS.WorkerOptions("notifier check"),
		nats.Timeout(Timeout),
		nats.NoReconnect(),
		nats.ErrorHandler(client.onError),
	)
	connection, err := nats.Connect(s.NATS.URL, options...)
	if err != nil {
		r.fail(connectAdvice(err), "no connection to %s: %v", s.NATS.Servers(), err)
		return
	}
	defer connection.Close()
	r.ok(
		"%s, version %s, %s",
		redact.Servers([]string{connection.ConnectedUrl()}),
		connection.ConnectedServerVersion(),
		tlsVersion(connection),
	)
	if takesStrangers(connection, s.NATS) {
		r.warn("give it the users in docs/security.md, and put the worker's into NATS_URL",
			"it requires no user: whoever can reach it can read, publish and delete events")
	}
	js, err := jetstream.New(connection)
	if err != nil {
		r.fail("", "%v", err)
		return
	}
	client.js = js
	check := streamCheck{client: client, settings: s, report: r}
	check.run(ctx)
}

// takesStrangers reports whether the server takes a client without a user. That it requires one is not in
// what it says of itself at every moment: where it has a no_auth_user, its second INFO contradicts the first.
// With a certificate nothing is known: that may be the user.
func takesStrangers(connection *nats.Conn, s settings.NATS) bool {
	if s.HasCertificate() {
		return false
	}
	server := redact.Servers([]string{connection.ConnectedUrl()})
	stranger, err := nats.Connect(
		server,
		append(s.StrangerOptions("notifier check"), nats.Timeout(Timeout), nats.NoReconnect())...)
	if err != nil {
		return false
	}
	stranger.Close()
	return true
}

// connectAdvice is what to do about a connection that failed.
func connectAdvice(err error) string {
	switch {
	case errors.Is(err, nats.ErrAuthorization),
		errors.Is(err, nats.ErrAuthExpired),
		errors.Is(err, nats.ErrAuthRevoked):
		return "check the user in NATS_URL, NATS_CREDS_FILE and NATS_NKEY_FILE"
	case errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrTimeout):
		return "check NATS_URL, and whether the server is running"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "check NATS_URL: what listens there does not greet as NATS does, so it may be the port of Redis"
	case errors.Is(err, nats.ErrSecureConnRequired):
		return "use tls:// in NATS_URL, and NATS_TLS_CA if the certificate is signed by your own authority"
	case errors.Is(err, nats.ErrSecureConnWanted):
		return "the server has no TLS: use nats:// in NATS_URL, and no NATS_TLS_ settings, or turn TLS on there"
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return "set NATS_TLS_CA to the authority that signed the server's certificate"
	}
	return ""
}

func tlsVersion(connection *nats.Conn) string {
	state, err := connection.TLSConnectionState()
	if err != nil {
		return "no TLS"
	}
	return tls.VersionName(state.Version)
}

// natsClient makes one request after the other. A server that denies one reports that in a message of its own
// and never answers, so that message ends the request.
type natsClient struct {
	js jetstream.JetStream

	mu     sync.Mutex
	cancel context.CancelCauseFunc // of the request under way, or nil
}

func (c *natsClient) onError(_ *nats.Conn, _ *nats.Subscription, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil && errors.Is(err, nats.ErrPermissionViolation) {
		c.cancel(err)
	}
}

// request waits for an answer, for at most Timeout. Its errors are for people.
func (c *natsClient) request(ctx context.Context, do func(context.Context) error) error {
	ctx, stop := context.WithTimeout(ctx, Timeout)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.setCancel(cancel)
	defer c.setCancel(nil)
	err := do(ctx)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return fmt.Errorf("no answer within %s", Timeout)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

func (c *natsClient) setCancel(cancel context.CancelCauseFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel = cancel
}

// requestAdvice is what to do about a request that failed.
func requestAdvice(err error) string {
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		return "give the user the permissions in docs/security.md"
	case errors.Is(err, nats.ErrNoResponders),
		errors.Is(err, jetstream.ErrJetStreamNotEnabled),
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return "JetStream is off here: start the server with it (nats-server -js)"
	}
	return ""
}
