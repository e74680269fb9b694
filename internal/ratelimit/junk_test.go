package ratelimit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// put adds entries with one score, as another writer would.
func (s *store) put(t testing.TB, key string, score any, names ...string) {
	t.Helper()
	for _, name := range names {
		kit.Check(t, s.Do(t.Context(), "ZADD", key, score, name).Err())
	}
}

// Digits without an end are read once, not once for each of them.
func TestLongRecordIsReadAtOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		if s.embedded != nil {
			t.Skip("its Lua does not read such numbers")
		}
		limiter := s.limiter(t, kit.Rules("100/30m", "5/10m:1m", ""), day)
		e, f, long := event("e", "a"), event("f", "a"), strings.Repeat("9", 1<<18)
		limiter.admits(f)
		s.put(t, "{n}:buckets:category:a", s.latestAdmission(t), long+"x")
		began := time.Now()
		limiter.refund(f)
		s.HSet(t.Context(), "{n}:inflight", slot(e), long)
		limiter.refund(e)
		limiter.admit(e)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s, expected a moment", took)
		}
	})
}

// decides asks for an event of each of some categories. That may be an error, but no decision that cannot be.
func (c caller) decides(what string, n int) {
	c.t.Helper()
	batch := []ratelimit.Request{
		event(fmt.Sprint("x", n), "a"), event(fmt.Sprint("x", n), "b"), costing(event(fmt.Sprint("y", n), "a"), 2),
	}
	decisions, _ := c.Admit(c.t.Context(), batch)
	for _, decision := range decisions {
		if decision.RetryAfter < 0 || decision.RetryAfter > 62*day || decision.Used < 0 {
			c.t.Errorf("%s: %+v", what, decision)
		}
	}
	_, _ = c.Peek(c.t.Context(), "a", "b") // which may fail as well
}

// Nonsense in a set lives no longer than the set. Then all is decided as ever.
func TestDamagedEntriesExpire(t *testing.T) {
	names := []string{"", "x", "1 2 3 4", "0 999999 5", "9 2 3", "-1 2 3", "0 1e3 5"}
	numbers := []string{"0 99999999999999999999 5", "99999999999999999999 5 5", strings.Repeat("9", 400) + " 1 1"}
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "2/10m:1m", ""), time.Hour)
		keys := []string{"{n}:buckets:category:a", "{n}:category:a", "{n}:global", "{n}:sent", "{n}:categories"}
		names := names
		if s.embedded == nil { // its Lua does not read such numbers
			names = append(slices.Clone(names), numbers...)
		}
		for _, key := range keys {
			for _, score := range []time.Duration{-time.Second, time.Minute, century} {
				for i, name := range names {
					if key != keys[0] && i > 1 { // only buckets are read by their names
						continue
					}
					s.FlushAll(t.Context())
					first := event("first", "a")
					limiter.admits(first)
					limiter.sent(first)
					kit.Check(t, s.ZAdd(t.Context(), "{n}:category:a", zAt(s.latestAdmission(t), "one")).Err())
					s.PExpire(t.Context(), "{n}:category:a", 10*time.Minute)
					s.put(t, key, s.latestAdmission(t)+score.Microseconds(), name)
					what := fmt.Sprintf("%.24q in %s, %s ahead", name, key, score)
					limiter.decides(what, i)
					s.advance(t, 45*time.Minute)
					limiter.admits(event("later", "a"))
				}
			}
		}
	})
}

// Damaged fields of the meta hash stop nothing, and every key still expires.
func TestDamagedMetaStopsNothing(t *testing.T) {
	eachLimiter(t, "100/30m", "5/10m", func(t *testing.T, s *store, limiter caller) {
		for _, field := range []string{"clock", "token", "opens", "seen ", "x"} {
			for _, value := range []string{"", "x", "-5", "0.5", "nan", "inf", "-inf", "1e300", "1e17", "0x10"} {
				s.FlushAll(t.Context())
				kit.Check(t, s.HSet(t.Context(), "{n}:meta", field, value).Err())
				for i, e := range events(5, "e", "a") {
					if decisions, err := limiter.Admit(t.Context(), []ratelimit.Request{e}); err != nil || decisions[0].Verdict != ratelimit.Admitted {
						t.Fatalf("%s is %q, event %d: %+v, %v", field, value, i, decisions, err)
					}
					limiter.sent(e)
				}
				limiter.want(ratelimit.Category, event("f", "a"))
				for _, key := range s.Keys(t.Context(), "*").Val() {
					if left := s.PTTL(t.Context(), key).Val(); left < 0 || left > 33*day {
						t.Errorf("%s is %q: %s is kept for %s", field, value, key, left)
					}
				}
			}
		}
	})
}
