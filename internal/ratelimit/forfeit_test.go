package ratelimit_test

import (
	"context"
	"testing"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// forfeit reports whether the event was in flight.
func (c caller) forfeit(e ratelimit.Request, known string) bool {
	c.t.Helper()
	ended, err := c.Forfeit(c.t.Context(), e, known)
	kit.Check(c.t, err)
	return ended
}

func TestForfeitKeepsSlotsAndFreesTheID(t *testing.T) {
	eachForm(t, func(t *testing.T, s *store, limiter caller) {
		e := costing(event("e", "a"), 2)
		limiter.admits(e)
		limiter.posts(1, e, "", "p1")
		if limiter.forfeit(by("another message", e), "p1") || limiter.forfeit(e, "") {
			t.Error("ended for another delivery, or after a post whose result is not known")
		}
		if !limiter.forfeit(e, "p1") || limiter.forfeit(e, "p1") {
			t.Error("expected that the first call ends it, and the second finds nothing")
		}
		usages := limiter.peek("a")
		if usages[0].Used != 2 || usages[1].Used != 2 {
			t.Errorf("%+v, expected two slots to be taken", usages)
		}
		limiter.wantPermit(ratelimit.NotInFlight, 0, e, "p1", "p2")
		limiter.admits(by("another message", e))
	})
}

// A forfeit without an answer may not have been made: an event that is posted after all, or redelivered, is
// in flight.
func TestUnansweredForfeitIsUndoneByAPost(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		posted, redelivered, ended := event("posted", "a"), event("redelivered", "a"), event("ended", "a")
		c.admits(posted, redelivered, ended)
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		for _, e := range []ratelimit.Request{posted, redelivered, ended} {
			if _, err := c.Forfeit(cancelled, e, ""); err == nil {
				t.Fatal("a forfeit without an answer reports no error")
			}
		}
		c.posts(1, posted, "", "first")
		c.admits(redelivered)
		s.empty(t)
		s.putsBack(t, c)
		for _, e := range []ratelimit.Request{posted, redelivered, ended} {
			if _, found, err := c.InFlight(t.Context(), e); err != nil || found != (e != ended) {
				t.Errorf("%s is in flight: %t (%v)", e.ID, found, err)
			}
		}
		if n := s.count(t, "{n}:global"); n != 3 {
			t.Errorf("%d slots, expected 3", n)
		}
	})
}

func TestForfeitedSlotIsRestored(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		e := event("e", "a")
		c.admits(e)
		c.forfeit(e, "")
		s.empty(t)
		s.putsBack(t, c)
		s.takenAt(t, "{n}:global", slot(e))
		if n := s.HLen(t.Context(), "{n}:inflight").Val(); n != 0 {
			t.Errorf("%d events are in flight, expected none", n)
		}
	})
}
