package ratelimit_test

import (
	"fmt"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// A server's clock steps back when it is corrected, or when a replica whose clock is behind takes over. The
// limiter's clock then stands still at the newest admission.

func TestClockStepsGiveNoSlotAway(t *testing.T) {
	eachLimiter(t, "4/30m", "3/10m", func(t *testing.T, s *store, limiter caller) {
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
			if decision.Verdict != ratelimit.Category || decision.Used != 3 || decision.RetryAfter.Microseconds() != wait {
				t.Errorf("back by %s: %+v, expected a refusal with 3 used for %d us", back, decision, wait)
			}
		}
		limiter.admits(event("b", "b"))
		limiter.want(ratelimit.Global, event("c", "c"))
	})
}

// After the server's clock was an hour ahead, events wait for it, and are told how long.
func TestFutureEntryHoldsTheClock(t *testing.T) {
	eachLimiter(t, "2/30m", "2/30m", func(t *testing.T, s *store, limiter caller) {
		limiter.admit(event("e", "a"))
		future := s.takenAt(t, "{n}:global", "a:e") + time.Hour.Microseconds()
		s.ZAdd(t.Context(), "{n}:global", zAt(future, "from the future"))
		s.setClock(t, future)
		limiter.admits(event("f", "a")) // e is out of the window of an hour later
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

// After a step back of days buckets lie ahead. They keep their order and count, so that no window gets more
// than its limit.
func TestBucketsAheadKeepTheirOrder(t *testing.T) {
	eachLimiter(t, "100/1h:1m", "9/1h:1m", func(t *testing.T, s *store, limiter caller) {
		for i := range 3 {
			limiter.admits(events(2, fmt.Sprint(i), "a")...)
			s.advance(t, 2*time.Minute)
		}
		s.advance(t, -3*day)
		for i := range 3 {
			limiter.admits(event(fmt.Sprint("back ", i), "a"))
			if usages, err := limiter.Peek(t.Context(), "a"); err != nil || usages[1].Used != 7+i {
				t.Errorf("%+v, %v; expected %d used", usages, err, 7+i)
			}
		}
		limiter.want(ratelimit.Category, event("x", "a"))
	})
}
