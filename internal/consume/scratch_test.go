package consume

import (
	"testing"

	"notifier/internal/consume/feed"
	"notifier/internal/consume/result"
	"notifier/internal/ratelimit"
)

// The room that is kept from batch to batch has nothing of the last one in it: the largest would stay in
// memory.
func TestTheRoomOfABatchKeepsNoEvents(t *testing.T) {
	held := result.Result{Delivery: &feed.Delivery{}}
	b := batch{items: []item{{Result: held}}, requests: []ratelimit.Request{{ID: "a"}}, settled: []*result.Result{&held, &held}}
	b.forget()
	for _, r := range b.settled[:2] {
		if r != nil {
			t.Error("a settled event is kept")
		}
	}
	if b.items[:1][0].Delivery != nil || b.requests[:1][0] != (ratelimit.Request{}) {
		t.Error("an event that was decided is kept")
	}
}
