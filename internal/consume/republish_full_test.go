package consume

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"notifier/internal/event"
	"notifier/internal/outcome"
)

func aLetter(string, *Settled) *nats.Msg { return nats.NewMsg("dropped.errors") }

func dropped(size int) Settled {
	return Settled{Outcome: outcome.Dropped, delivery: &delivery{Message: event.Message{Data: make([]byte, size)}}}
}

// stuckRepublisher is one whose first event does not get out before end is called.
func stuckRepublisher() (r *republisher, end func()) {
	stuck, began := make(chan struct{}), make(chan struct{}, republishQueue)
	r = newRepublisher("dropped", aLetter, func(*nats.Msg) error {
		began <- struct{}{}
		<-stuck
		return nil
	}, zap.NewNop())
	finish := r.start()
	r.add([]Settled{dropped(1)})
	<-began
	return r, func() {
		close(stuck)
		finish()
	}
}

// Large payloads fill memory before the queue is full.
func TestTheRepublisherIsBoundedInBytes(t *testing.T) {
	r, end := stuckRepublisher()
	half := republishBytes / 2
	r.add([]Settled{dropped(half), dropped(half), dropped(1)})
	if n := r.unpublished.Load(); n != 1 {
		t.Errorf("%d are counted as not republished, expected the one above %d bytes", n, republishBytes)
	}
	end()
	if n := r.bytes.Load(); n != 0 {
		t.Errorf("%d bytes are counted in an empty queue", n)
	}
}

// A NATS server that takes nothing must not stop the worker: what there is no room for is counted.
func TestARepublisherThatLagsNeverBlocks(t *testing.T) {
	r, end := stuckRepublisher()
	batch := make([]Settled, republishQueue+10)
	for i := range batch {
		batch[i] = dropped(1)
	}
	r.add(batch)
	if n := r.unpublished.Load(); n != 10 {
		t.Errorf("%d are counted as not republished, expected 10", n)
	}
	end()
	if n := r.unpublished.Load(); n != 10 {
		t.Errorf("%d are counted as not republished at the end, expected 10", n)
	}
}

func TestWhatCannotBePublishedIsCounted(t *testing.T) {
	r := newRepublisher("dropped", aLetter, func(*nats.Msg) error { return errors.New("no") }, zap.NewNop())
	end := r.start()
	r.add([]Settled{dropped(1), {Outcome: outcome.Sent}, {Outcome: outcome.Dead}, dropped(1)})
	end()
	if n := r.unpublished.Load(); n != 2 {
		t.Errorf("%d are counted, expected the 2 dropped ones", n)
	}
}
