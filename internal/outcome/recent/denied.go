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

const answerTimeout = 5 * time.Second

var errNoAnswer = errors.New("NATS did not respond in time")

// denials ends the requests that a server denies. It never answers them: it reports the denial in a message
// about the connection, which reaches the connection's owner. The owner passes it on to Denied.
type denials struct {
	subjects []string // as the server quotes them, or how they begin

	mu     sync.Mutex
	next   context.Context // ends with the next denial
	cancel context.CancelCauseFunc
}

func newDenials(subjects ...string) *denials {
	d := &denials{subjects: subjects}
	d.next, d.cancel = context.WithCancelCause(context.Background())
	return d
}

// Denied takes an error of the connection and reports whether it denies one of these requests. If so, those
// under way fail with it.
func (d *denials) Denied(err error) bool {
	ours := func(subject string) bool { return strings.Contains(err.Error(), `for Publish to "`+subject) }
	if !errors.Is(err, nats.ErrPermissionViolation) || !slices.ContainsFunc(d.subjects, ours) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cancel(err)
	d.next, d.cancel = context.WithCancelCause(context.Background())
	return true
}

// begin returns a context for a request. It ends with a denial, or when there is no answer in time.
func (d *denials) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	d.mu.Lock()
	denied := d.next
	d.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(denied, func() { cancel(context.Cause(denied)) })
	late := time.AfterFunc(answerTimeout, func() { cancel(errNoAnswer) })
	return ctx, func() {
		stop()
		late.Stop()
		cancel(nil)
	}
}
