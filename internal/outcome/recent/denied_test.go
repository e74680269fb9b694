package recent_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"notifier/internal/outcome"
	"notifier/internal/outcome/recent"
	"notifier/test/kit"
)

// guarded is a NATS server whose user w may publish to what was allowed last.
type guarded struct {
	server  *server.Server
	file    string
	started *server.Options
}

func (g *guarded) options(t testing.TB, subjects ...string) *server.Options {
	t.Helper()
	configuration := `authorization {users = [{user: all, password: x}, {user: w, password: x, permissions: {publish: {allow: ["` +
		strings.Join(subjects, `", "`) + `"]}, subscribe: {allow: ["_W.>"]}}}]}`
	kit.Check(t, os.WriteFile(g.file, []byte(configuration), 0o600))
	options, err := server.ProcessConfigFile(g.file)
	kit.Check(t, err)
	return options
}

// allow changes what w may publish to.
func (g *guarded) allow(t testing.TB, subjects ...string) {
	t.Helper()
	options := *g.started
	options.Users = g.options(t, subjects...).Users
	kit.Check(t, g.server.ReloadOptions(&options))
}

func startGuarded(t testing.TB, subjects ...string) *guarded {
	t.Helper()
	g := &guarded{file: filepath.Join(t.TempDir(), "nats.conf")}
	g.started = g.options(t, subjects...)
	g.started.JetStream = true
	g.server = kit.NATSServer(t, g.started)
	return g
}

func (g *guarded) as(user string) string {
	return strings.Replace(g.server.ClientURL(), "//", "//"+user+":x@", 1)
}

const reading = "$JS.API.DIRECT.GET.NOTIFY_EVENTS"

var writing = []string{"notify-events.>", "$JS.API.STREAM.INFO.NOTIFY_EVENTS", "$JS.API.STREAM.CREATE.NOTIFY_EVENTS"}

// A permission that is missing, granted, revoked and granted again is said each time, and nothing needs a
// restart.
func TestAPermissionComesAndGoes(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, reading)
	b := &bench{place: place(t), js: kit.JetStream(t, g.as("all"))}
	b.record(t, g.as("w"))
	reader := readerAs(t, b, g.as("all"))
	said := func(message string, n int) {
		t.Helper()
		kit.Eventually(t, message, func() bool {
			b.add(outcomeOf("errors", outcome.Sent, "", message))
			return b.logs.FilterMessage(message).Len() == n
		})
	}
	for i := range 3 {
		said("outcomes are not recorded", i+1)
		line := b.logs.FilterMessage("outcomes are not recorded").All()[i].ContextMap()
		if !strings.Contains(line["error"].(string), "Permissions Violation for Publish to") || !strings.Contains(line["advice"].(string), "docs/security.md") {
			t.Errorf("%v", line)
		}
		g.allow(t, append(writing, reading)...)
		said("outcomes are recorded again", i+1)
		g.allow(t, reading)
	}
	answer, err := reader.List(t.Context(), recent.Filter{})
	if err != nil || len(answer.Outcomes) == 0 || answer.Outcomes[0].LeftOut+uint64(len(answer.Outcomes)) < 2 {
		t.Errorf("%v %+v", err, answer)
	}
}

// What is denied is tried again after pauses, however much there is to record, and is logged once.
func TestADeniedPermissionCausesNoStorm(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, reading)
	b := &bench{place: place(t), js: kit.JetStream(t, g.as("all"))}
	begun := time.Now()
	b.record(t, g.as("w"))
	for i := range 100 {
		b.add(outcomeOf(fmt.Sprint("c", i), outcome.Sent, "", "e"))
	}
	kit.Eventually(t, "it is tried again", func() bool { return b.denials.Load() >= 10 })
	if n, most := b.denials.Load(), 2+time.Since(begun)/(10*time.Millisecond); n > int64(most) {
		t.Errorf("%d requests were denied in %s", n, time.Since(begun))
	}
	if n := b.logs.Len(); n != 1 {
		t.Errorf("%d lines: %v", n, b.logs.All())
	}
}

// readerAs is a reader of its own.
func readerAs(t testing.TB, b *bench, url string) *recent.Reader {
	t.Helper()
	connection, err := nats.Connect(url)
	kit.Check(t, err)
	t.Cleanup(connection.Close)
	return recent.NewReader(connection, b.place)
}

// A worker that may create nothing, and not look the stream up, records where the stream exists.
func TestPublishingIsEnough(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "notify-events.>")
	b := &bench{place: place(t), js: kit.JetStream(t, g.as("all"))}
	_, err := b.js.CreateStream(t.Context(), b.place.Config())
	kit.Check(t, err)
	b.record(t, g.as("w"))
	b.reader = readerAs(t, b, g.as("all"))
	b.add(outcomeOf("errors", outcome.Sent, "", "e-1"))
	b.eventually(t, recent.Filter{}, 1)
}

// A reading that the server denies ends at once, and ends no writing that is under way.
func TestADeniedReadingEndsNoWriting(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, writing...)
	b := &bench{place: place(t), js: kit.JetStream(t, g.as("all"))}
	b.record(t, g.as("w"))
	violation := func(subject string) error {
		return fmt.Errorf("%w: Permissions Violation for Publish to %q", nats.ErrPermissionViolation, subject)
	}
	others := []error{
		errors.New("x"), nats.ErrPermissionViolation, violation("notify-dead.errors"), violation("$JS.API.STREAM.INFO.NOTIFY"),
		fmt.Errorf("%w: Permissions Violation for Subscription to %q", nats.ErrPermissionViolation, "notify-events.errors"),
	}
	for _, other := range append(others, violation(reading)) {
		if b.recorder.Denied(other) {
			t.Errorf("the recorder takes this for its own: %v", other)
		}
	}
	var reader atomic.Pointer[recent.Reader]
	denied := func(_ *nats.Conn, _ *nats.Subscription, err error) { reader.Load().Denied(err) }
	connection, err := nats.Connect(g.as("w"), nats.CustomInboxPrefix("_W"), nats.ErrorHandler(denied))
	kit.Check(t, err)
	t.Cleanup(connection.Close)
	reader.Store(recent.NewReader(connection, b.place))
	tail := recent.NewTail(reader.Load())
	for _, filter := range []recent.Filter{{}, {Category: "errors"}} {
		if _, err := tail.List(t.Context(), t.Context(), filter); !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("%+v: %v, expected that it is denied", filter, err)
		}
	}
	b.add(outcomeOf("errors", outcome.Sent, "", "e-1"))
	b.reader = readerAs(t, b, g.as("all"))
	b.eventually(t, recent.Filter{}, 1)
	if n := b.logs.FilterMessage("outcomes are not recorded").Len(); n > 0 {
		t.Errorf("%v", b.logs.All())
	}
}
