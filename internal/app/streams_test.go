package app

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/devstack"
	"notifier/internal/status/stats"
	"notifier/test/kit"
)

func TestHowFullAStreamIs(t *testing.T) {
	for name, of := range map[string]struct {
		config jetstream.StreamConfig
		state  jetstream.StreamState
		want   stats.Stream
	}{
		"without a bound": {
			jetstream.StreamConfig{MaxBytes: -1, MaxMsgs: -1}, jetstream.StreamState{Msgs: 7, Bytes: 70},
			stats.Stream{Messages: 7, Bytes: 70, DiscardsOld: true},
		},
		"by bytes": {
			jetstream.StreamConfig{MaxBytes: 100, MaxMsgs: 1000}, jetstream.StreamState{Msgs: 7, Bytes: 70},
			stats.Stream{Messages: 7, Bytes: 70, MaxBytes: 100, MaxMessages: 1000, Used: .7, Bound: "bytes", DiscardsOld: true},
		},
		"by messages": {
			jetstream.StreamConfig{MaxBytes: 1000, MaxMsgs: 10, Discard: jetstream.DiscardNew}, jetstream.StreamState{Msgs: 9, Bytes: 70},
			stats.Stream{Messages: 9, Bytes: 70, MaxBytes: 1000, MaxMessages: 10, Used: .9, Bound: "messages"},
		},
		"empty": {
			jetstream.StreamConfig{MaxBytes: -1, MaxMsgs: 10}, jetstream.StreamState{},
			stats.Stream{MaxMessages: 10, Bound: "messages", DiscardsOld: true},
		},
	} {
		var got stats.Stream
		use(&got, &jetstream.StreamInfo{Config: of.config, State: of.state})
		if diff := cmp.Diff(of.want, got, cmpopts.EquateApprox(0, math.SmallestNonzeroFloat64)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestWhatIsDeniedIsAskedForRarely: it is not known, which is not 0, and it is asked for more and more rarely
// until it is granted.
func TestWhatIsDeniedIsAskedForRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var asked atomic.Int64
		var granted atomic.Bool
		u := &streamUse{names: []string{"NOTIFY"}, info: func(ctx context.Context, _ string) (*jetstream.StreamInfo, error) {
			asked.Add(1)
			if !granted.Load() {
				<-ctx.Done() // the server says nothing
				return nil, ctx.Err()
			}
			return &jetstream.StreamInfo{Config: jetstream.StreamConfig{MaxMsgs: 10}, State: jetstream.StreamState{Msgs: 5}}, nil
		}}
		go u.run(ctx)
		time.Sleep(time.Hour) // of synctest's clock
		if got, n := u.list()[0], asked.Load(); got.Unknown == "" || got.Bound != "" || n < 15 || n > 30 {
			t.Errorf("%+v after %d look-ups in an hour, expected that it is not known, and about 20", got, n)
		}
		granted.Store(true)
		time.Sleep(2 * streamsRarely)
		before := asked.Load()
		time.Sleep(10 * time.Minute)
		if got, n := u.list()[0], asked.Load()-before; got.Unknown != "" || got.Used != .5 || n < 20 || n > 40 {
			t.Errorf("%+v after %d look-ups in ten minutes, expected half of it and about 30", got, n)
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
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "NOTIFY", Subjects: []string{"notify.>"}, MaxMsgs: 4})
	kit.Check(t, err)
	for range 3 {
		_, err := js.Publish(t.Context(), "notify.x", nil)
		kit.Check(t, err)
	}
	u, err := newStreamUse(connection, "NOTIFY")
	kit.Check(t, err)
	if u.look(t.Context()) {
		t.Error("all could be looked up, expected that there is no dead-letter stream")
	}
	got := u.list()
	if len(got) != 2 || got[0].Used != .75 || got[0].Name != "NOTIFY" || got[1].Unknown != "there is no such stream" || got[1].Name != "NOTIFY_DEAD" {
		t.Errorf("%+v", got)
	}
	if (*streamUse)(nil).list() != nil {
		t.Error("there are streams, and none was looked up")
	}
	u.info = func(context.Context, string) (*jetstream.StreamInfo, error) { return nil, errors.New("other") }
	if u.look(t.Context()) || u.list()[0].Unknown != "other" || u.list()[0].Bound != "" {
		t.Errorf("%+v, expected that it is not known", u.list())
	}
}
