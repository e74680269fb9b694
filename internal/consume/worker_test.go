package consume

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"notifier/internal/consume/availability"
	"notifier/test/kit"
)

// Fetching stops only for dependencies that block held events. See also post.TestOnlyTheWorkspacePausesFetching.
func TestOutagesThatStopFetching(t *testing.T) {
	w, err := New(Settings{
		JetStream: JetStream{Connection: &nats.Conn{}}, BatchSize: 1, Concurrency: 1, Log: zap.NewNop(),
	})
	kit.Check(t, err)
	if !w.mayFetch() {
		t.Error("a new worker does not fetch")
	}
	for _, d := range availability.Dependencies() {
		w.tracker.Lost(d, errors.New("refused"))
		// Not for the dead-letter stream: its events wait in the letterbox.
		stops := d == availability.Redis || d == availability.Log
		if w.mayFetch() == stops {
			t.Errorf("while %s is unavailable: fetches %t, expected %t", d, w.mayFetch(), !stops)
		}
		w.tracker.Recovered(d)
	}
}
