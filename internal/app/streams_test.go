package app

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/consume/feed"
	"notifier/internal/devstack"
	"notifier/internal/event"
	"notifier/internal/settings"
	"notifier/internal/snapshot"
	"notifier/test/kit"
)

// TestDeniedStreamsAreLookedUpRarely denies the lookups for an hour, then grants them.
func TestDeniedStreamsAreLookedUpRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var lookups atomic.Int64
		var granted, connected atomic.Bool
		connected.Store(true)
		info := func(ctx context.Context, _ string) (*jetstream.StreamInfo, error) {
			lookups.Add(1)
			if !granted.Load() {
				<-ctx.Done() // the server does not reply
				return nil, ctx.Err()
			}
			return &jetstream.StreamInfo{
				Config: jetstream.StreamConfig{MaxMsgs: 10}, State: jetstream.StreamState{Msgs: 5},
			}, nil
		}
		stuck := func(context.Context) (feed.StuckLook, error) {
			return feed.StuckLook{Consumer: &jetstream.ConsumerInfo{}}, nil
		}
		isConnected := func() bool { return connected.Load() }
		l := &streamLookup{names: []string{"NOTIFY"}, connected: isConnected, info: info, stuck: stuck}
		go l.run(ctx)
		time.Sleep(time.Hour) // of synctest's clock
		synctest.Wait()
		if got, n := l.list()[0], lookups.Load(); got.Unknown == "" || n < 15 || n > 30 {
			t.Errorf("%+v after %d lookups in an hour, expected an unknown state and about 20", got, n)
		}
		granted.Store(true)
		time.Sleep(2 * streamsRarely)
		synctest.Wait()
		before := lookups.Load()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		used, _ := l.list()[0].Used()
		if n := lookups.Load() - before; used != .5 || n < 20 || n > 40 {
			t.Errorf("%g used after %d lookups in ten minutes, expected 0.5 and about 30", used, n)
		}

		// An outage of NATS makes no requests, and ends for the lookups within seconds.
		connected.Store(false)
		time.Sleep(streamsEvery * 2)
		synctest.Wait()
		before = lookups.Load()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got, n := l.list()[0], lookups.Load()-before; got.Unknown != "no connection to NATS" || n != 0 {
			t.Errorf("%+v after %d lookups without a connection, expected an unknown state and none", got, n)
		}
		connected.Store(true)
		time.Sleep(2 * streamsSoon)
		synctest.Wait()
		if used, _ := l.list()[0].Used(); used != .5 {
			t.Errorf("%g used two seconds after the connection was made again, expected 0.5", used)
		}
		cancel()
		synctest.Wait()
	})
}

func TestStreamsAreLookedUp(t *testing.T) {
	t.Parallel()
	server, err := devstack.StartNATS("127.0.0.1:0", t.TempDir())
	kit.Check(t, err)
	defer func() { _ = server.Close() }()
	connection, err := nats.Connect(server.URL())
	kit.Check(t, err)
	defer connection.Close()
	js, err := jetstream.New(connection)
	kit.Check(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "NOTIFY", Subjects: []string{"notify.>"}, MaxMsgs: 4, Retention: jetstream.WorkQueuePolicy,
	})
	kit.Check(t, err)
	for range 3 {
		_, err := js.Publish(t.Context(), "notify.x", []byte("hello"))
		kit.Check(t, err)
	}
	pattern, err := event.ParsePattern("notify.>")
	kit.Check(t, err)
	names := settings.NATS{Stream: "NOTIFY", Consumer: "notifier", Pattern: pattern}
	l, err := newStreamLookup(connection, names, "notifier")
	kit.Check(t, err)
	if l.list() != nil {
		t.Errorf("%+v before the first lookup", l.list())
	}
	if l.look(t.Context()) {
		t.Error("the lookup succeeded without a consumer and a stream of dead letters")
	}
	want := []snapshot.Stream{
		{Name: "NOTIFY", Messages: 3, MaxMessages: 4, DiscardsOld: true},
		{Name: "NOTIFY_DEAD", Unknown: "there is no such stream"},
	}
	ignored := cmpopts.IgnoreFields(snapshot.Stream{}, "Bytes", "Seen")
	if diff := cmp.Diff(want, l.list(), ignored); diff != "" {
		t.Errorf("without a consumer (-want +got):\n%s", diff)
	}
	if got := l.list()[0]; got.Bytes == 0 || time.Since(got.Seen) > time.Minute {
		t.Errorf("%+v, expected bytes and the time of the lookup", got)
	}

	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "NOTIFY_DEAD", MaxBytes: 1 << 20})
	kit.Check(t, err)
	_, err = js.CreateConsumer(t.Context(), "NOTIFY", jetstream.ConsumerConfig{
		Durable: "notifier", AckPolicy: jetstream.AckExplicitPolicy,
	})
	kit.Check(t, err)
	if !l.look(t.Context()) {
		t.Errorf("a lookup failed: %+v", l.list())
	}
	unread, stuck := uint64(3), uint64(0)
	want[0].Unread, want[0].Stuck = &unread, &stuck
	want[1] = snapshot.Stream{Name: "NOTIFY_DEAD", MaxBytes: 1 << 20, DiscardsOld: true}
	if diff := cmp.Diff(want, l.list(), ignored); diff != "" {
		t.Errorf("with a consumer (-want +got):\n%s", diff)
	}

	resumed := time.Now().Add(time.Hour)
	_, err = js.PauseConsumer(t.Context(), "NOTIFY", "notifier", resumed)
	kit.Check(t, err)
	l.look(t.Context())
	until := resumed.UTC().Format(time.RFC3339)
	if w := l.list()[0].Withheld; w == nil || !w.None || !strings.Contains(w.Why, "is paused until "+until) {
		t.Errorf("a paused consumer: %+v, expected that it is paused until %s", w, until)
	}
}
