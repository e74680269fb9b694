package recent_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"notifier/internal/devstack"
	"notifier/internal/event"
	"notifier/internal/outcome/recent"
	"notifier/test/kit"
)

func TestMain(m *testing.M) {
	kit.Overlap(12) // they wait
	goleak.VerifyTestMain(m, kit.NATSServerEnds()...)
}

// bench is a NATS server with a recorder and a reader.
type bench struct {
	server     *devstack.NATS
	connection *nats.Conn
	js         jetstream.JetStream
	place      recent.Place
	recorder   *recent.Recorder
	reader     *recent.Reader
	logs       *observer.ObservedLogs
	denials    atomic.Int64 // that the recorder has taken for its own
	stop       func()
}

func place(t testing.TB) recent.Place {
	t.Helper()
	pattern, err := event.ParsePattern("notify.>")
	kit.Check(t, err)
	p, err := recent.NewPlace("NOTIFY", pattern)
	kit.Check(t, err)
	return p
}

// start starts a server and a recorder on it. What the server denies is handed to it as a worker does.
func start(t testing.TB) *bench {
	t.Helper()
	server, err := devstack.StartNATS(kit.FreeAddr(t), t.TempDir())
	kit.Check(t, err)
	t.Cleanup(func() { _ = server.Close() })
	b := &bench{server: server, place: place(t)}
	b.js = kit.JetStream(t, server.URL())
	b.record(t, server.URL())
	return b
}

// record starts a recorder that connects to a URL.
func (b *bench) record(t testing.TB, url string) {
	t.Helper()
	var recording atomic.Pointer[recent.Recorder]
	denied := func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if recording.Load().Denied(err) {
			b.denials.Add(1)
		}
	}
	connection, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.CustomInboxPrefix("_W"),
		nats.ErrorHandler(denied))
	kit.Check(t, err)
	t.Cleanup(connection.Close)
	core, logs := observer.New(zap.InfoLevel)
	recorder, err := recent.NewRecorder(recent.Config{Place: b.place, Connection: connection, Log: zap.New(core)})
	kit.Check(t, err)
	recorder.Hurry()
	recording.Store(recorder)
	b.connection, b.recorder, b.logs, b.reader = connection, recorder, logs, recent.NewReader(connection, b.place)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { recorder.Run(ctx) })
	b.stop = func() { cancel(); running.Wait() }
	t.Cleanup(b.stop)
}

// add records an outcome.
func (b *bench) add(o recent.Outcome) {
	b.recorder.Record(recent.Kind{Category: o.Category, Outcome: o.Outcome, Reason: o.Reason}, 1,
		func(int) recent.Outcome { return o })
}

// outcome is one that can be recorded.
func outcomeOf(category, result, reason, id string) recent.Outcome {
	return recent.Outcome{Time: time.Now().UTC(), EventID: id, Category: category, Outcome: result, Reason: reason, Subject: "notify." + category}
}

// list is what a filter selects.
func (b *bench) list(t testing.TB, filter recent.Filter) recent.Answer {
	t.Helper()
	answer, err := b.reader.List(t.Context(), filter)
	kit.Check(t, err)
	return answer
}

// eventually waits until a filter selects as many.
func (b *bench) eventually(t testing.TB, filter recent.Filter, n int) []recent.Outcome {
	t.Helper()
	var got []recent.Outcome
	kit.EventuallyNil(t, func() error {
		answer, err := b.reader.List(t.Context(), filter)
		got = answer.Outcomes
		if err == nil && len(got) != n {
			err = fmt.Errorf("%d outcomes of %+v, expected %d", len(got), filter, n)
		}
		return err
	})
	return got
}
