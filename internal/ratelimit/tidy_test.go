package ratelimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/internal/testkit"
	"notifier/lua"
)

// putLost puts ten records of an hour ago among those in flight, as a set leaves them that has expired.
func (s *store) putLost(t *testing.T, clock int64) {
	t.Helper()
	for i := range 10 {
		s.HSet(t.Context(), "{n}:inflight", fmt.Sprint("a:lost", i), fmt.Sprintf("%d a message", clock-time.Hour.Microseconds()))
	}
}

// Records of which neither the register nor the global scope knows are removed once no replica counts them any more; those of events
// in flight stay.
func TestWhatIsInFlightStaysWhenLostRecordsAreRemoved(t *testing.T) {
	eachForm(t, func(t *testing.T, s *store, limiter caller) {
		e := event("e", "a")
		limiter.want(ratelimit.Admitted, e)
		clock, _ := s.clock(t)
		s.putLost(t, clock)
		s.HSet(t.Context(), "{n}:inflight", "a:recent", fmt.Sprintf("%d a message", clock))
		s.advance(t, time.Minute)
		limiter.want(ratelimit.Admitted, event("f", "a"))
		if n := s.HLen(t.Context(), "{n}:inflight").Val(); n != 3 {
			t.Errorf("%d in flight, expected e, f and the recent one\n%s", n, s.contents(t))
		}
		limiter.want(ratelimit.Duplicate, by("another message", e))
	})
}

// So does one whose admission is older than any replica counts, and whose post is not.
func TestAPostKeepsWhatIsInFlightWhenLostRecordsAreRemoved(t *testing.T) {
	eachForm(t, func(t *testing.T, s *store, limiter caller) {
		e := event("e", "a")
		limiter.want(ratelimit.Admitted, e)
		s.advance(t, 29*time.Minute)
		limiter.begin(e, "", "p1")
		clock, _ := s.clock(t)
		s.putLost(t, clock)
		s.advance(t, 2*time.Minute)
		limiter.want(ratelimit.Admitted, event("f", "a"))
		if n := s.HLen(t.Context(), "{n}:inflight").Val(); n != 2 {
			t.Errorf("%d in flight, expected e and f\n%s", n, s.contents(t))
		}
		limiter.want(ratelimit.Duplicate, by("another message", e))
	})
}

// The index is written by the server's clock where the newest admission is further ahead than any clock was.
func TestTheIndexIsWrittenByTheClockWhateverTheRegisterSays(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "10/30m", ""), day)
		clock, _ := limiter.micros(s)
		s.ZAdd(t.Context(), "{n}:register", zAt(clock+century.Microseconds(), " clock"))
		keys := []string{"{n}:register", "{n}:inflight", "{n}:global", "{n}:categories"}
		testkit.Check(t, redis.NewScript(lua.Tidy).Run(t.Context(), s.Client, keys, day.Microseconds(), day.Microseconds(), "a").Err())
		if at := s.score(t, "{n}:categories", "a"); at > clock+time.Minute.Microseconds() {
			t.Errorf("recorded %s ahead", time.Duration(at-clock)*time.Microsecond)
		}
	})
}

// An entry of the index is kept for two of the longest windows where a replica asks for that, whoever writes to it later.
func TestTheIndexKeepsWhatIsFoundForTwoMonths(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		const month = 31 * day
		long := s.limiter(t, testkit.Rules("100/744h", "10/744h", ""), month)
		short := s.limiter(t, testkit.Rules("100/30m", "10/30m", ""), time.Hour)
		long.want(ratelimit.Admitted, event("e", "a"))
		s.advance(t, time.Minute)
		short.want(ratelimit.Admitted, event("f", "a"))
		if left := s.PTTL(t.Context(), "{n}:categories").Val(); left < 2*month {
			t.Errorf("the index expires in %s, expected two months\n%s", left, s.contents(t))
		}
	})
}

// An id may be recorded as sent at the end of the time for which it is in flight, and is known for as long again: the index finds it
// until then, however short the dedupe window is.
func TestTheIndexFindsAnIDForAsLongAsItIsKnown(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/2h", "10/30m", ""), time.Millisecond)
		limiter.want(ratelimit.Admitted, event("e", "a"))
		if left := s.PTTL(t.Context(), "{n}:categories").Val(); left < 4*time.Hour-time.Minute {
			t.Errorf("the index expires in %s, expected four hours", left)
		}
	})
}
