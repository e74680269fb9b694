package ratelimit_test

import (
	"strings"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/testkit"
)

func (c caller) trace(id string, categories ...string) ratelimit.Trace {
	c.t.Helper()
	trace, err := c.Trace(c.t.Context(), id, categories...)
	testkit.Check(c.t, err)
	return trace
}

func TestATraceFollowsAnEvent(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "10/30m", ""), day)
		e := event("an id of more than sixty-four bytes "+strings.Repeat("long ", 20), "a")
		if trace := limiter.trace(e.ID); trace.Known() || trace != (ratelimit.Trace{}) {
			t.Errorf("before anything: %+v", trace)
		}
		limiter.want(ratelimit.Admitted, e)
		admitted := limiter.trace(e.ID, "b", "a")
		if !admitted.InFlight || admitted.Category != "a" || admitted.Admitted.IsZero() || admitted.Posts != 0 || !admitted.LastPost.IsZero() {
			t.Errorf("admitted: %+v", admitted)
		}
		limiter.wantPermit(ratelimit.Granted, 1, e, "", "p1")
		limiter.wantPermit(ratelimit.Granted, 2, e, "p1", "p2")
		begun := limiter.trace(e.ID, "a")
		if !begun.InFlight || begun.Posts != 2 || begun.LastPost.Before(begun.Admitted) || !begun.Admitted.Equal(admitted.Admitted) {
			t.Errorf("being posted: %+v", begun)
		}
		limiter.sent(e)
		sent := limiter.trace(e.ID, "a")
		if sent.InFlight || sent.Sent.Before(sent.Admitted) || !sent.Admitted.Equal(admitted.Admitted) || sent.Posts != 0 {
			t.Errorf("sent: %+v", sent)
		}
		s.advance(t, time.Hour)
		limiter.want(ratelimit.Admitted, event("f", "b")) // which trims what has left the window
		late := limiter.trace(e.ID)
		if !late.Known() || late.Sent.IsZero() || !late.Admitted.IsZero() || late.Category != "" {
			t.Errorf("when its slot is gone: %+v", late)
		}
		limiter.want(ratelimit.Admitted, event("g", "c"))
		limiter.refund(event("g", "c"))
		if trace := limiter.trace("g", "c"); trace.Known() {
			t.Errorf("refunded: %+v", trace)
		}
	})
}

func TestATraceDoesNotTrustWhatItReads(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "10/30m", ""), day)
		s.HSet(t.Context(), "{n}:inflight", "e", "soon")
		if trace, err := limiter.Trace(t.Context(), "e"); err == nil || !strings.Contains(err.Error(), "{n}:inflight") {
			t.Errorf("%+v, %v; expected an error that names the key", trace, err)
		}
	})
}

func TestSlotsTellWhoHoldsThem(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m+5/1m", "10/10m", ""), day)
		limiter.want(ratelimit.Admitted, event("old", "a"))
		s.advance(t, 20*time.Minute)
		limiter.want(ratelimit.Admitted, costing(event("e", "a"), 2), event("f", "b"))
		slots, err := limiter.Slots(t.Context(), 100, "a", "b")
		testkit.Check(t, err)
		holders := map[string]string{}
		for _, slot := range slots {
			holders[slot.ID] = slot.Category
			if slot.Frees.Sub(slot.At) != 30*time.Minute {
				t.Errorf("slot %+v frees after %s, expected 30m", slot, slot.Frees.Sub(slot.At))
			}
		}
		want := map[string]string{"e": "a", "e 2": "a", "f": "b", "old": ""} // its category no longer counts it
		if len(holders) != len(want) {
			t.Errorf("slots %v, expected %v", holders, want)
		}
		for id, category := range want {
			if got, held := holders[id]; !held || got != category {
				t.Errorf("slot %q is held by %q (%t), expected %q", id, got, held, category)
			}
		}
		if slots[len(slots)-1].ID != "old" {
			t.Errorf("the last slot is %+v, expected the oldest", slots[len(slots)-1])
		}
		if two, err := limiter.Slots(t.Context(), 2, "a"); err != nil || len(two) != 2 {
			t.Errorf("%d slots, %v; expected the newest 2", len(two), err)
		}
		s.advance(t, 10*time.Minute)
		if slots, _ := limiter.Slots(t.Context(), 100, "a"); len(slots) != 3 {
			t.Errorf("%d slots when the oldest has left the window, expected 3", len(slots))
		}
	})
}
