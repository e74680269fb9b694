// Package denial ends requests that a NATS server denies.
//
// The server does not reply to a denied request. It sends an error on the connection, which names the
// subject. Without a Watch, a request waits for its timeout, and nothing names the missing permission. A
// denial ends all contexts of the Watch that are in use, because it names no request.
package denial

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// Watch ends contexts when the server denies an operation. It is safe for concurrent use.
type Watch struct {
	subjects []string

	mu     sync.Mutex
	next   context.Context // ends with the next denial
	cancel context.CancelCauseFunc
}

// NewWatch returns a Watch of requests to the given subjects. They match as prefixes in the server's text,
// for Publish to "SUBJECT"; one that ends in a quote matches alone. Without subjects the Watch concerns all
// operations of its connection.
func NewWatch(subjects ...string) *Watch {
	w := &Watch{subjects: subjects}
	w.next, w.cancel = context.WithCancelCause(context.Background())
	return w
}

// Option makes a connection report its denials to the Watch. It replaces the connection's error handler.
func (w *Watch) Option() nats.Option {
	return nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { w.Denied(err) })
}

// Denied is for connections with their own error handler, which passes each error to it. It reports whether
// the error denied a watched operation.
func (w *Watch) Denied(err error) bool {
	concerns := func(subject string) bool { return strings.Contains(err.Error(), `for Publish to "`+subject) }
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return false
	}
	if len(w.subjects) > 0 && !slices.ContainsFunc(w.subjects, concerns) {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancel(err)
	w.next, w.cancel = context.WithCancelCause(context.Background())
	return true
}

// Context returns a copy of ctx for one operation. It also ends with the next denial, which is then its
// context.Cause.
func (w *Watch) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	w.mu.Lock()
	denied := w.next
	w.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(denied, func() { cancel(context.Cause(denied)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
