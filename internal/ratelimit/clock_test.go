package ratelimit_test

import (
	"fmt"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// A server's clock steps back when it is corrected, or when a replica whose clock is behind takes over. The limiter's
// clock then stands still at the newest admission.

func TestAClockThatStepsBackGivesNoSlotAway(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("4/30m", "3/10m", ""), day)
		limiter.admit(events(3, "e", "a")...)
		for _, back := range []time.Duration{time.Microsecond, time.Second, 10 * time.Minute, 3 * time.Hour} {
			s.advance(t, -back)
			decision := limiter.one(event("x", "a"))
			clock, lag := s.clock(t)
			newest := s.takenAt(t, "{n}:global", "a:e-3")
			if lag != max(0, newest+1-clock) {
				t.Errorf("back by %s: a lag of %d us is reported, expected %d", back, lag, newest+1-clock)
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
		limiter := s.limiter(t, kit.Rules("100/30m", "3/10m", ""), day)
		limiter.admit(event("before", "a"))
		s.advance(t, -5*time.Minute)
		limiter.want(ratelimit.Admitted, event("behind", "a"), event("behind too", "a"))
		before := s.takenAt(t, "{n}:global", "a:before")
		if behind := s.takenAt(t, "{n}:global", "a:behind"); behind != before+1 {
			t.Errorf("admitted at %d, expected a microsecond after the newest admission, %d", behind, before)
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
		limiter := s.limiter(t, kit.Rules("100/30m", "10/10m", ""), 2*time.Hour)
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
		limiter := s.limiter(t, kit.Rules("2/30m", "2/30m", ""), day)
		limiter.admit(event("e", "a"))
		future := s.takenAt(t, "{n}:global", "a:e") + time.Hour.Microseconds()
		s.ZAdd(t.Context(), "{n}:global", zAt(future, "from the future"))
		s.setClock(t, future)
		limiter.want(ratelimit.Admitted, event("f", "a")) // e is out of the window of an hour later
		if got := s.takenAt(t, "{n}:category:a", "a:f"); got != future+1 {
			t.Errorf("admitted at %d, expected %d", got, future+1)
		}
		decision := limiter.one(event("x", "a"))
		clock, lag := s.clock(t)
		if wait := future + (30 * time.Minute).Microseconds() - clock; lag != future+2-clock || decision.RetryAfter.Microseconds() != wait {
			t.Errorf("%+v with a lag of %d us, expected %d us and %d us", decision, lag, wait, future+2-clock)
		}
	})
}

// After a step back of days buckets lie ahead. They keep their order and count, so that no window gets more than its limit.
func TestBucketsThatLieAheadKeepTheirOrder(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/1h:1m", "9/1h:1m", ""), day)
		for i := range 3 {
			limiter.want(ratelimit.Admitted, events(2, fmt.Sprint(i), "a")...)
			s.advance(t, 2*time.Minute)
		}
		s.advance(t, -3*day)
		for i := range 3 {
			limiter.want(ratelimit.Admitted, event(fmt.Sprint("back ", i), "a"))
			if usages, err := limiter.Peek(t.Context(), "a"); err != nil || usages[1].Used != 7+i {
				t.Errorf("%+v, %v; expected %d used", usages, err, 7+i)
			}
		}
		limiter.want(ratelimit.Category, event("x", "a"))
	})
}

// No two calls admit at the same time, so that the name of a slot is unique.
func TestNoTwoCallsAdmitAtTheSameTime(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t)) // its clock stands still
	limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
	for i, e := range events(4, "e", "a") {
		limiter.want(ratelimit.Admitted, e)
		limiter.want(ratelimit.Admitted, e) // which takes no time
		if got, want := s.takenAt(t, "{n}:global", slot(e)), s.now.UnixMicro()+int64(i); got != want {
			t.Errorf("%s was admitted at %d, expected %d", e.ID, got, want)
		}
	}
}

// setClock sets the latest admission.
func (s *store) setClock(t testing.TB, at int64) {
	t.Helper()
	kit.Check(t, s.HSet(t.Context(), "{n}:meta", "clock", at).Err())
}

// latestAdmission is the clock that no decision is before, in microseconds.
func (s *store) latestAdmission(t testing.TB) int64 {
	t.Helper()
	at, err := s.HGet(t.Context(), "{n}:meta", "clock").Int64()
	kit.Check(t, err)
	return at
}

// takenAt is when the first slot of an event was taken, in microseconds, by the log of a scope.
func (s *store) takenAt(t testing.TB, log, member string) int64 {
	t.Helper()
	for _, entry := range s.ZRangeWithScores(t.Context(), log, 0, -1).Val() {
		if entry.Member == fmt.Sprintf("%s %.0f", member, entry.Score) {
			return int64(entry.Score)
		}
	}
	t.Fatalf("%s has no slot in %s:\n%s", member, log, s.contents(t))
	return 0
}
