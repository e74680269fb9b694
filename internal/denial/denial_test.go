package denial_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"notifier/internal/denial"
	"notifier/test/kit"
	"notifier/test/natstest"
)

func TestDeniedRequestEndsAtOnce(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t, &server.Options{Users: []*server.User{{
		Username: "some", Password: "p",
		Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"secret.>"}}},
	}}})
	watch := denial.NewWatch()
	connection, err := nats.Connect("nats://some:p@"+s.Addr().String(), watch.Option())
	kit.Check(t, err)
	defer connection.Close()
	for range 2 { // a denial ends the operation under way, and no later one
		ctx, end := watch.Context(t.Context())
		_, err = connection.RequestWithContext(ctx, "secret.x", nil)
		if !errors.Is(err, context.Canceled) || !errors.Is(context.Cause(ctx), nats.ErrPermissionViolation) {
			t.Errorf("%v, cause %v; expected the denial", err, context.Cause(ctx))
		}
		end()
		later, end := watch.Context(t.Context())
		select {
		case <-later.Done():
			t.Errorf("%v, expected a new context", context.Cause(later))
		case <-time.After(50 * time.Millisecond):
		}
		end()
	}
}

func TestWatchOfSubjects(t *testing.T) {
	t.Parallel()
	watch := denial.NewWatch("records.", `$JS.API.STREAM.INFO.X"`)
	for operation, want := range map[string]bool{
		`Publish to "records.errors"`:          true,
		`Publish to "$JS.API.STREAM.INFO.X"`:   true,
		`Publish to "$JS.API.STREAM.INFO.X_2"`: false,
		`Publish to "other.records.x"`:         false,
		`Subscription to "records.errors"`:     false,
	} {
		ctx, end := watch.Context(t.Context())
		err := fmt.Errorf("%w: Permissions Violation for %s", nats.ErrPermissionViolation, operation)
		if got := watch.Denied(err); got != want {
			t.Errorf("%s: %t, expected %t", operation, got, want)
		}
		if want {
			kit.Eventually(t, "the operation ends", func() bool { return ctx.Err() != nil })
		}
		if denied := errors.Is(context.Cause(ctx), nats.ErrPermissionViolation); denied != want {
			t.Errorf("%s: cause %v", operation, context.Cause(ctx))
		}
		end()
	}
	if watch.Denied(nats.ErrSlowConsumer) {
		t.Error("another error counts as a denial")
	}
}
