package recent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"notifier/internal/devstack"
	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/outcome/recent"
	"notifier/test/kit"
	"notifier/test/natstest"
)

func TestMain(m *testing.M) {
	kit.Overlap(12) // they wait
	goleak.VerifyTestMain(m, kit.NATSServerEnds()...)
}

// bench is a NATS server with a recorder and a reader.
type bench struct {
	server   *devstack.NATS
	js       jetstream.JetStream
	place    recent.Place
	recorder *recent.Recorder
	reader   *recent.Reader
	client   *nats.Conn // of the recorder and the reader
	logs     *observer.ObservedLogs
	denials  atomic.Int64 // errors that the recorder took
	stop     func()
}

func place(t testing.TB) recent.Place {
	t.Helper()
	pattern, err := event.ParsePattern("notify.>")
	kit.Check(t, err)
	p, err := recent.NewPlace("NOTIFY", pattern)
	kit.Check(t, err)
	return p
}

// start starts a server and a recorder.
func start(t testing.TB) *bench {
	t.Helper()
	b := startServer(t)
	b.record(t, b.server.URL())
	return b
}

// startServer starts a server without a recorder, which would create the stream.
func startServer(t testing.TB) *bench {
	t.Helper()
	server, err := devstack.StartNATS(kit.FreeAddr(t), t.TempDir())
	kit.Check(t, err)
	t.Cleanup(func() { _ = server.Close() })
	b := &bench{server: server, place: place(t)}
	b.js = kit.JetStream(t, server.URL())
	return b
}

// record starts a recorder that connects to a URL and hears of denials as in a worker.
func (b *bench) record(t testing.TB, url string) {
	t.Helper()
	var recorder atomic.Pointer[recent.Recorder]
	denied := func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if recorder.Load().Denied(err) {
			b.denials.Add(1)
		}
	}
	connection, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond),
		nats.CustomInboxPrefix("_W"), nats.ErrorHandler(denied))
	kit.Check(t, err)
	t.Cleanup(connection.Close)
	core, logs := observer.New(zap.InfoLevel)
	r, err := recent.NewRecorder(recent.Config{Place: b.place, Connection: connection, Log: zap.New(core)})
	kit.Check(t, err)
	r.Hurry()
	recorder.Store(r)
	b.client = connection
	b.recorder, b.logs, b.reader = r, logs, recent.NewReader(connection, b.place)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	b.stop = func() { cancel(); running.Wait() }
	t.Cleanup(b.stop)
}

// readAs makes the reader use another URL.
func (b *bench) readAs(t testing.TB, url string) {
	t.Helper()
	connection, err := nats.Connect(url)
	kit.Check(t, err)
	t.Cleanup(connection.Close)
	b.reader = recent.NewReader(connection, b.place)
}

// emptyStream creates the stream without a recorder, and returns a connection for a publisher.
func (b *bench) emptyStream(t testing.TB) *nats.Conn {
	t.Helper()
	b.readAs(t, b.server.URL())
	_, err := b.js.CreateStream(t.Context(), b.place.Config())
	kit.Check(t, err)
	client, err := nats.Connect(b.server.URL())
	kit.Check(t, err)
	t.Cleanup(client.Close)
	return client
}

// stored waits until the stream holds this number of messages.
func (b *bench) stored(t testing.TB, messages uint64) {
	t.Helper()
	kit.Eventually(t, "all are stored", func() bool {
		stream, err := b.js.Stream(t.Context(), b.place.Stream)
		return err == nil && stream.CachedInfo().State.LastSeq == messages
	})
}

// add records r.
func (b *bench) add(r outcome.Record) {
	kind := recent.Kind{Category: r.Category, Outcome: r.Outcome, Reason: r.Reason}
	b.recorder.Record(kind, 1, func(int) outcome.Record { return r })
}

func record(category, result, reason, id string) outcome.Record {
	return outcome.Record{
		Time: time.Now().UTC(), EventID: id, Category: category, Outcome: result, Reason: reason,
		Subject: "notify." + category,
	}
}

func (b *bench) list(t testing.TB, filter recent.Filter) recent.Page {
	t.Helper()
	page, err := b.reader.List(t.Context(), filter)
	kit.Check(t, err)
	return page
}

// ids returns the ids of records, the oldest first.
func ids(records []outcome.Record) string {
	var ids []string
	for _, r := range records {
		ids = append(ids, r.EventID)
	}
	return strings.Join(ids, " ")
}

// eventually waits until a filter selects n records.
func (b *bench) eventually(t testing.TB, filter recent.Filter, n int) []outcome.Record {
	t.Helper()
	var page recent.Page
	kit.EventuallyNil(t, func() (err error) {
		page, err = b.reader.List(t.Context(), filter)
		if err == nil && len(page.Records) != n {
			err = fmt.Errorf("%d records of %+v, expected %d", len(page.Records), filter, n)
		}
		return err
	})
	return page.Records
}

// guarded is a NATS server that lets user w publish to the subjects allowed last.
type guarded struct {
	server  *server.Server
	file    string
	started *server.Options
}

const reading = "$JS.API.DIRECT.GET.NOTIFY_EVENTS"

var writing = []string{"notify-events.>", "$JS.API.STREAM.INFO.NOTIFY_EVENTS", "$JS.API.STREAM.CREATE.NOTIFY_EVENTS"}

func startGuarded(t testing.TB, subjects ...string) *guarded {
	t.Helper()
	g := &guarded{file: filepath.Join(t.TempDir(), "nats.conf")}
	g.started = g.options(t, subjects...)
	g.started.JetStream = true
	g.server = natstest.Server(t, g.started)
	return g
}

func (g *guarded) options(t testing.TB, subjects ...string) *server.Options {
	t.Helper()
	configuration := `authorization {users = [{user: all, password: x}, {user: w, password: x, permissions:
		{publish: {allow: ["` + strings.Join(subjects, `", "`) + `"]}, subscribe: {allow: ["_W.>"]}}}]}`
	kit.Check(t, os.WriteFile(g.file, []byte(configuration), 0o600))
	options, err := server.ProcessConfigFile(g.file)
	kit.Check(t, err)
	return options
}

func (g *guarded) allow(t testing.TB, subjects ...string) {
	t.Helper()
	options := *g.started
	options.Users = g.options(t, subjects...).Users
	kit.Check(t, g.server.ReloadOptions(&options))
}

func (g *guarded) as(user string) string {
	return strings.Replace(g.server.ClientURL(), "//", "//"+user+":x@", 1)
}
