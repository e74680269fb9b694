package recent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const requestTimeout = 5 * time.Second

var errTimeout = errors.New("NATS did not respond in time")

// denials ends requests that the server denies. The server sends no reply to a denied request. It reports an
// error on the connection, which the owner of the connection passes to Denied.
type denials struct {
	subjects []string // of the requests, or their beginnings

	mu     sync.Mutex
	next   context.Context // ends with the next denial
	cancel context.CancelCauseFunc
}

func newDenials(subjects ...string) *denials {
	d := &denials{subjects: subjects}
	d.next, d.cancel = context.WithCancelCause(context.Background())
	return d
}

// Denied takes an error of the connection and reports whether it denies a request of d's owner. If so, the
// requests under way fail with it.
func (d *denials) Denied(err error) bool {
	concerns := func(subject string) bool { return strings.Contains(err.Error(), `for Publish to "`+subject) }
	if !errors.Is(err, nats.ErrPermissionViolation) || !slices.ContainsFunc(d.subjects, concerns) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cancel(err)
	d.next, d.cancel = context.WithCancelCause(context.Background())
	return true
}

// begin returns a context for one request. It ends with a denial or after requestTimeout.
func (d *denials) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	d.mu.Lock()
	denied := d.next
	d.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(denied, func() { cancel(context.Cause(denied)) })
	ctx, end := context.WithTimeoutCause(ctx, requestTimeout, errTimeout)
	return ctx, func() {
		stop()
		end()
		cancel(nil)
	}
}
