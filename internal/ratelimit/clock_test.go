package ratelimit_test

import (
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/testkit"
)

// A server's clock steps back when it is corrected, or when a replica whose clock is behind takes over. The limiter's
// clock then stands still at the newest admission.

func TestAClockThatStepsBackGivesNoSlotAway(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("4/30m", "3/10m", ""), day)
		limiter.admit(events(3, "e", "a")...)
		for _, back := range []time.Duration{time.Microsecond, time.Second, 10 * time.Minute, 3 * time.Hour} {
			s.advance(t, -back)
			decision := limiter.one(event("x", "a"))
			clock, lag := s.clock(t)
			newest := s.score(t, "{n}:global", "a:e-3")
			if lag != max(0, newest-clock) {
				t.Errorf("back by %s: a lag of %d us is reported, expected %d", back, lag, newest-clock)
			}
			if lag == 0 && back > time.Minute {
				t.Errorf("back by %s, and the clock is not behind", back)
			}
			wait := newest + (10 * time.Minute).Microseconds() - clock
			if decision.Outcome != ratelimit.Category || decision.Used != 3 || decision.RetryAfter.Microseconds() != wait {
				t.Errorf("back by %s: %+v, expected a refusal with 3 used for %d us", back, decision, wait)
			}
		}
		limiter.want(ratelimit.Admitted, event("b", "b"))
		limiter.want(ratelimit.Global, event("c", "c"))
	})
}

func TestAdmissionsWhileTheClockIsBehindCountFromTheNewestOne(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "3/10m", ""), day)
		limiter.admit(event("before", "a"))
		s.advance(t, -5*time.Minute)
		limiter.want(ratelimit.Admitted, event("behind", "a"), event("behind too", "a"))
		before := s.score(t, "{n}:global", "a:before")
		if behind := s.score(t, "{n}:global", "a:behind"); behind != before {
			t.Errorf("admitted at %d, expected at the newest admission, %d", behind, before)
		}
		decision := limiter.one(event("x", "a"))
		s.advance(t, decision.RetryAfter-time.Second)
		if late := limiter.one(event("x", "a")); late.Outcome != ratelimit.Category || late.RetryAfter > time.Second {
			t.Errorf("a second early: %+v", late)
		}
		s.advance(t, time.Second)
		limiter.want(ratelimit.Admitted, event("x", "a"))
		if _, lag := s.clock(t); lag != 0 {
			t.Errorf("a lag of %d us after the clock has caught up", lag)
		}
	})
}

func TestAnEventInFlightOrSentIsKnownWhileTheClockIsBehind(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "10/10m", ""), 2*time.Hour)
		e, f := event("e", "a"), event("f", "a")
		limiter.admit(e, f)
		s.advance(t, -3*time.Hour)
		limiter.sent(f) // recorded at the newest admission, not three hours before it
		limiter.want(ratelimit.Admitted, e)
		limiter.want(ratelimit.Duplicate, by("another message", e), f)
		s.advance(t, 4*time.Hour)
		limiter.want(ratelimit.Duplicate, f)
		s.advance(t, time.Hour+time.Second)
		limiter.want(ratelimit.Admitted, f)
	})
}

// Whoever set the server's clock an hour ahead and back again has to wait, and is told for how long.
func TestAMemberFromTheFutureHoldsTheClock(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("2/30m", "2/30m", ""), day)
		limiter.admit(event("e", "a"))
		future := s.score(t, "{n}:global", "a:e") + time.Hour.Microseconds()
		s.ZAdd(t.Context(), "{n}:global", zAt(future, "from the future"))
		s.ZAdd(t.Context(), "{n}:register", zAt(future, " clock"))
		limiter.want(ratelimit.Admitted, event("f", "a")) // e is out of the window of an hour later
		if got := s.score(t, "{n}:category:a", "a:f"); got != future {
			t.Errorf("admitted at %d, expected %d", got, future)
		}
		decision := limiter.one(event("x", "a"))
		clock, lag := s.clock(t)
		if wait := future + (30 * time.Minute).Microseconds() - clock; lag != future-clock || decision.RetryAfter.Microseconds() != wait {
			t.Errorf("%+v with a lag of %d us, expected %d us and %d us", decision, lag, wait, future-clock)
		}
	})
}
