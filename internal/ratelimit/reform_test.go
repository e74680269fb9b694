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

// These tests call reform.lua itself, with what only somebody else could have stored, or a server that has lost a key.

const longestKept = 31*day + time.Minute // no entry is kept for longer than a month; the minute is for a slow machine

// reformed lets reform.lua copy the category "a" into its other form: in buckets of so many microseconds, or exact.
func (s *store) reformed(t *testing.T, window time.Duration, grains ...any) {
	t.Helper()
	keys := []string{"{n}:register", "{n}:category:a", "{n}:buckets:category:a"}
	arguments := append([]any{window.Microseconds(), day.Microseconds()}, grains...)
	got, err := redis.NewScript(lua.Reform).Run(t.Context(), s.Client, keys, arguments...).Int64()
	if err != nil || got != 1 {
		t.Fatalf("reform.lua returned %d, %v, expected 1", got, err)
	}
}

// ends sets when a key expires, in microseconds.
func (s *store) ends(t *testing.T, key string, at int64) {
	t.Helper()
	testkit.Check(t, s.PExpireAt(t.Context(), key, time.UnixMicro(at)).Err())
}

// A slot that is copied replaces none that was copied before.
func TestSlotsOfTwoCopiesKeepApart(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		clock, _ := s.anyLimiter(t).micros(s)
		s.put(t, "{n}:category:a", clock-time.Minute.Microseconds(), "1 copied", "2 copied")
		s.put(t, "{n}:buckets:category:a", clock, fmt.Sprint("0 2 ", clock))
		s.reformed(t, 10*time.Minute)
		s.forms(t, 4, 0)
	})
}

// What is copied is kept for as long as either set kept its entries, and never for more than a month.
func TestACopyIsKeptAsLongAsBothSetsButNoLongerThanAMonth(t *testing.T) {
	const window = 10 * time.Minute
	tests := map[string]struct{ exact, buckets, least, most time.Duration }{
		"the exact set keeps its entries for longer": {2 * time.Hour, window, 2 * time.Hour, 2*time.Hour + time.Minute},
		"the buckets are kept for longer":            {window, 2 * time.Hour, 2*time.Hour - time.Minute, 2*time.Hour + time.Minute},
		"somebody keeps the exact set for a century": {century, window, 30 * day, longestKept},
		"somebody keeps the buckets for a century":   {window, century, 30 * day, longestKept},
	}
	eachStore(t, func(t *testing.T, s *store) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				s.FlushAll(t.Context())
				clock, _ := s.anyLimiter(t).micros(s)
				s.put(t, "{n}:category:a", clock, "a:e")
				s.ends(t, "{n}:category:a", clock+test.exact.Microseconds()+1000)
				s.put(t, "{n}:buckets:category:a", clock, fmt.Sprint("0 2 ", clock))
				s.ends(t, "{n}:buckets:category:a", clock+test.buckets.Microseconds()+1000)
				s.reformed(t, window)
				if left := s.PTTL(t.Context(), "{n}:category:a").Val(); left < test.least-time.Minute || left > test.most {
					t.Errorf("the copy expires in %s, expected %s to %s", left, test.least, test.most)
				}
			})
		}
	})
}

// Times that no admission can have become some that one could have.
func TestACopyHasNoTimeThatNoAdmissionCouldHave(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		precise := s.limiter(t, testkit.Rules("100/30m", "9/10m:1m", ""), day)
		clock, _ := precise.micros(s)
		if s.embedded == nil { // its Lua does not read such numbers
			s.put(t, "{n}:category:a", "-inf", "from before the beginning")
			precise.want(ratelimit.Admitted, event("e", "a"))
			s.FlushAll(t.Context())
		}
		s.put(t, "{n}:category:a", clock, "a:e")
		s.put(t, "{n}:category:a", clock+century.Microseconds(), "from the future")
		s.reformed(t, 10*time.Minute, time.Minute.Microseconds())
		newest := s.ZRevRangeWithScores(t.Context(), "{n}:buckets:category:a", 0, 0).Val()
		if ahead := time.Duration(int64(newest[0].Score)-clock) * time.Microsecond; ahead > day+5*time.Minute {
			t.Errorf("the newest bucket ends in %s, expected a day at most\n%s", ahead, s.contents(t))
		}
	})
}

// A clock in the register that is further ahead than any clock was moves nothing.
func TestACopyIsMadeByTheClockWhateverTheRegisterSays(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		clock, _ := s.anyLimiter(t).micros(s)
		s.put(t, "{n}:register", clock+century.Microseconds(), " clock")
		s.put(t, "{n}:buckets:category:a", clock, fmt.Sprint("0 2 ", clock))
		s.reformed(t, 10*time.Minute)
		if until := s.score(t, "{n}:register", " exact {n}:category:a"); until > clock+time.Hour.Microseconds() {
			t.Errorf("the scope is wanted exact for %s, expected ten minutes", time.Duration(until-clock)*time.Microsecond)
		}
	})
}

// The register lives at least until its marks end, and no shorter than before.
func TestAMarkOnlyLengthensTheRegistersLife(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		for _, before := range []time.Duration{time.Minute, 2 * time.Hour} {
			s.FlushAll(t.Context())
			clock, _ := s.anyLimiter(t).micros(s)
			s.put(t, "{n}:register", clock, " clock")
			s.ends(t, "{n}:register", clock+before.Microseconds())
			s.put(t, "{n}:buckets:category:a", clock, fmt.Sprint("0 2 ", clock))
			s.reformed(t, 10*time.Minute)
			if left := s.PTTL(t.Context(), "{n}:register").Val(); left < max(before, 10*time.Minute)-time.Minute/2 {
				t.Errorf("the register, which had %s left, expires in %s", before, left)
			}
		}
	})
}
