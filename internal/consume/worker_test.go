package consume

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"notifier/internal/consume/availability"
	"notifier/test/kit"
)

// Fetching stops for what keeps held events from going on, and for nothing else; see also post.TestPaused.
func TestFetchingDependsOnWhatHeldEventsNeed(t *testing.T) {
	w, err := New(Settings{JetStream: JetStream{Connection: &nats.Conn{}}, BatchSize: 1, Concurrency: 1, Log: zap.NewNop()})
	kit.Check(t, err)
	if !w.mayFetch() {
		t.Error("a new worker does not fetch")
	}
	for _, d := range availability.Dependencies() {
		w.tracker.Lost(d, errors.New("refused"))
		stops := d == availability.Redis // not the dead-letter stream: what waits for that waits in the letterbox
		if w.mayFetch() == stops {
			t.Errorf("while %s is unavailable: fetches %t, expected %t", d, w.mayFetch(), !stops)
		}
		w.tracker.Recovered(d)
	}
}
