package consume

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"notifier/internal/consume/feed"
	"notifier/internal/consume/result"
	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/wait"
)

func aLetter(string, *result.Result) *nats.Msg { return nats.NewMsg("dropped.errors") }

func always() bool { return true }

func dropped(size int) *result.Result {
	return &result.Result{Outcome: outcome.Dropped, Delivery: &feed.Delivery{Bytes: int64(size)}}
}

// stuckRepublisher returns a republisher that blocks on its first event until end is called.
func stuckRepublisher() (r *republisher, end func()) {
	stuck, began := make(chan struct{}), make(chan struct{}, republishQueue)
	r = newRepublisher("dropped", aLetter, always, func(*nats.Msg) error {
		began <- struct{}{}
		<-stuck
		return nil
	}, zap.NewNop())
	finish := r.start()
	r.add([]*result.Result{dropped(1)})
	<-began
	return r, func() {
		close(stuck)
		finish()
	}
}

// Large payloads reach the byte limit before the queue is full.
func TestRepublisherIsBoundedInBytes(t *testing.T) {
	r, end := stuckRepublisher()
	half := republishBytes / 2
	r.add([]*result.Result{dropped(half), dropped(half), dropped(1)})
	if n := r.unpublished.Load(); n != 1 {
		t.Errorf("%d are counted as not republished, expected the one above %d bytes", n, republishBytes)
	}
	end()
	if n := r.bytes.Load(); n != 0 {
		t.Errorf("%d bytes are counted in an empty queue", n)
	}
}

// The cost includes headers and the decoded payload.
func TestRepublisherCountsHeadersAndPayload(t *testing.T) {
	r, end := stuckRepublisher()
	message := event.Message{Data: make([]byte, 20<<10)}
	one := result.Result{Outcome: outcome.Dropped, Delivery: &feed.Delivery{Message: message, Bytes: 81 << 10}}
	r.add(slices.Repeat([]*result.Result{&one}, 1000))
	if n, most := 1000-r.unpublished.Load(), int64(republishBytes/(100<<10)); n > most || n < most*9/10 {
		t.Errorf("%d are queued, expected about %d: each takes 60 kB of headers and twice 20 kB of payload",
			n, most)
	}
	end()
}

// A NATS server that accepts nothing must not block the worker. Events without room are counted.
func TestSlowRepublisherNeverBlocks(t *testing.T) {
	r, end := stuckRepublisher()
	batch := make([]*result.Result, republishQueue+10)
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

func TestUnpublishedDropsAreCounted(t *testing.T) {
	core, log := observer.New(zap.InfoLevel)
	r := newRepublisher("dropped", aLetter, always, func(*nats.Msg) error { return errors.New("no") }, zap.New(core))
	end := r.start()
	r.add([]*result.Result{dropped(1), {Outcome: outcome.Sent}, {Outcome: outcome.Dead}, dropped(1)})
	end()
	total := int64(0)
	for _, line := range log.All() {
		total += line.ContextMap()["count"].(int64)
	}
	if total != 2 || log.Len() != 2 { // one at once, and the rest at the end
		t.Errorf("%d lines count %d events, expected 2 lines about the 2 dropped ones", log.Len(), total)
	}
}

// Without a connection nothing is published, and nothing is lost if the connection is made again.
func TestRepublisherWaitsForAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var connected atomic.Bool
		published := 0
		r := newRepublisher("dropped", aLetter, connected.Load, func(*nats.Msg) error {
			published++
			return nil
		}, zap.NewNop())
		end := r.start()
		r.add([]*result.Result{dropped(1), dropped(1), dropped(republishBytes)})
		time.Sleep(time.Hour) // of synctest's clock
		synctest.Wait()
		if n := r.unpublished.Load(); published != 0 || n != 1 {
			t.Errorf("without a connection %d are published and %d left out, expected none and the large one",
				published, n)
		}
		connected.Store(true)
		time.Sleep(wait.ConnectionCheck)
		synctest.Wait()
		if n := r.unpublished.Load(); published != 2 || n != 1 {
			t.Errorf("%d are published and %d left out, expected 2 and 1", published, n)
		}
		connected.Store(false)
		r.add([]*result.Result{dropped(1), dropped(1)})
		began := time.Now()
		end()
		if n := r.unpublished.Load(); published != 2 || n != 3 || time.Since(began) != republishEnd {
			t.Errorf("it ends after %s with %d published and %d left out, expected %s, 2 and 3",
				time.Since(began), published, n, republishEnd)
		}
	})
}
