package consume

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"
)

func aLetter(string, *Settled) *nats.Msg { return nats.NewMsg("dropped.errors") }

// A NATS that takes nothing must not stop the worker: what there is no room for is counted.
func TestAnArchiveThatLagsNeverBlocks(t *testing.T) {
	stuck, began := make(chan struct{}), make(chan struct{}, archiveQueue)
	a := newArchive("dropped", aLetter, func(*nats.Msg) error {
		began <- struct{}{}
		<-stuck
		return nil
	}, zap.NewNop())
	end := a.start()
	a.add([]Settled{{Outcome: OutcomeDropped}})
	<-began
	batch := make([]Settled, archiveQueue+10)
	for i := range batch {
		batch[i].Outcome = OutcomeDropped
	}
	a.add(batch)
	if n := a.unpublished.Load(); n != 10 {
		t.Errorf("%d are counted as not republished, expected 10", n)
	}
	close(stuck)
	end()
	if n := a.unpublished.Load(); n != 10 {
		t.Errorf("%d are counted as not republished at the end, expected 10", n)
	}
}

func TestWhatCannotBePublishedIsCounted(t *testing.T) {
	a := newArchive("dropped", aLetter, func(*nats.Msg) error { return errors.New("no") }, zap.NewNop())
	end := a.start()
	a.add([]Settled{{Outcome: OutcomeDropped}, {Outcome: OutcomeSent}, {Outcome: OutcomeDead}, {Outcome: OutcomeDropped}})
	end()
	if n := a.unpublished.Load(); n != 2 {
		t.Errorf("%d are counted, expected the 2 dropped ones", n)
	}
}
