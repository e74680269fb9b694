package consume

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"notifier/internal/lanes"
	"notifier/internal/testkit"
)

// Pulling stops for what keeps held events from going on, and for nothing else.
func TestPullingDependsOnWhatHeldEventsNeed(t *testing.T) {
	w, err := New(Settings{JetStream: JetStream{Connection: &nats.Conn{}}, BatchSize: 1, Concurrency: 1, Log: zap.NewNop()})
	testkit.Check(t, err)
	if !w.mayPull() {
		t.Error("a new worker does not pull")
	}
	for d := range dependency(numberOfDependencies) {
		w.availability.lost(d, errors.New("refused"))
		stops := d == redisScripts // not the dead-letter stream: what waits for that waits in the letterbox
		if w.mayPull() == stops {
			t.Errorf("while %s is unavailable: pulls %t, expected %t", d, w.mayPull(), !stops)
		}
		w.availability.recovered(d)
	}
	w.lanes.Add("C1", lanes.Item[*posting]{})
	turn, err := w.lanes.Next(t.Context())
	testkit.Check(t, err)
	turn.PauseChannel(time.Hour)
	if !w.mayPull() {
		t.Error("a worker does not pull while one channel takes no posts")
	}
	turn.PauseWorkspace(time.Hour)
	if w.mayPull() {
		t.Error("a worker pulls while no channel takes posts")
	}
}

// Dead events alone wait for the dead-letter stream; everything in flight waits for the rest.
func TestWhatIsHeldForWhat(t *testing.T) {
	w, err := New(Settings{JetStream: JetStream{Connection: &nats.Conn{}}, BatchSize: 1, Log: zap.NewNop()})
	testkit.Check(t, err)
	w.inflight.add(&delivery{token: "a"})
	w.inflight.add(&delivery{token: "b"})
	w.letterbox.keep(Settled{delivery: &delivery{token: "b"}}, nil)
	for d := range dependency(numberOfDependencies) {
		if n := w.Held()[d.String()]; n != 0 {
			t.Errorf("%d events are held for %s, expected none while it is available", n, d)
		}
		w.availability.lost(d, errors.New("refused"))
		want := 2
		switch d {
		case deadLetterStream:
			want = 1
		case redisClock: // work continues
			want = 0
		}
		if n := w.Held()[d.String()]; n != want {
			t.Errorf("%d events are held for %s, expected %d", n, d, want)
		}
	}
}
