package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/consume"
)

// checkNATS connects as a worker would and looks at what a worker uses. It creates nothing.
func checkNATS(ctx context.Context, c config, f *findings) {
	asking := &natsAsking{}
	options := append(insideOptions(c.nats, "notifier check"), nats.Timeout(checkPatience), nats.NoReconnect(), nats.ErrorHandler(asking.refused))
	connection, err := nats.Connect(c.nats.url, options...)
	if err != nil {
		f.fail(natsAdvice(err), "no connection to %s: %v", c.nats.servers(), err)
		return
	}
	defer connection.Close()
	f.ok("%s, version %s, %s", consume.RedactServers([]string{connection.ConnectedUrl()}), connection.ConnectedServerVersion(), natsTLS(connection))
	if c.nats.core {
		f.note("use jetstream where none may get lost", "NATS_MODE is core: what is published while no worker listens, or is held by one that dies, is lost")
		return
	}
	js, err := jetstream.New(connection)
	if err != nil {
		f.fail("", "%v", err)
		return
	}
	asking.js = js
	look := streamLook{asking: asking, settings: c, f: f}
	look.run(ctx)
}

// natsAdvice says what to do about a connection that failed.
func natsAdvice(err error) string {
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return "look at the user in NATS_URL, at NATS_CREDS_FILE and NATS_NKEY_FILE"
	case errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrTimeout):
		return "look at NATS_URL, and whether the server runs"
	case errors.Is(err, nats.ErrSecureConnRequired):
		return "use tls:// in NATS_URL, and NATS_TLS_CA if its certificate is your own"
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return "set NATS_TLS_CA to the authority that has signed the server's certificate"
	}
	return ""
}

func natsTLS(connection *nats.Conn) string {
	state, err := connection.TLSConnectionState()
	if err != nil {
		return "no TLS"
	}
	return tls.VersionName(state.Version)
}

// natsAsking asks one question after the other. A server that refuses one says so in a word of its own and never
// answers, so that word ends the question.
type natsAsking struct {
	js jetstream.JetStream

	mu  sync.Mutex
	end context.CancelCauseFunc // of the question that is being asked, or nil
}

func (a *natsAsking) refused(_ *nats.Conn, _ *nats.Subscription, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.end != nil && errors.Is(err, nats.ErrPermissionViolation) {
		a.end(err)
	}
}

// ask waits for an answer, at most checkPatience. Its errors are for people.
func (a *natsAsking) ask(ctx context.Context, question func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	a.set(end)
	defer a.set(nil)
	err := question(ctx)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return fmt.Errorf("no answer in %s", checkPatience)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

func (a *natsAsking) set(end context.CancelCauseFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end = end
}

// natsRefusal is what to do about a question that failed.
func natsRefusal(err error) string {
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		return "give the user the permissions of docs/security.md"
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return "JetStream is off here: start the server with it (nats-server -js), or use NATS_MODE=core"
	}
	return ""
}

// covers reports whether a subscription takes every subject that another one does.
func covers(wide, narrow string) bool {
	wides, narrows := strings.Split(wide, "."), strings.Split(narrow, ".")
	for i, token := range wides {
		switch {
		case token == ">":
			return len(narrows) > i
		case i >= len(narrows) || narrows[i] == ">":
			return false
		case token != "*" && token != narrows[i]:
			return false
		}
	}
	return len(wides) == len(narrows)
}
