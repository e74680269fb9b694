package ratelimit_test

import (
	"errors"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/testkit"
)

// Marks, scores and lives of keys that are further ahead than any window is long were stored by nobody of ours.

// What was sent is recorded by the server's clock where the register's is further ahead than any clock was.
func TestSentIsRecordedByTheClockWhateverTheRegisterSays(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "10/30m", ""), day)
		e := event("e", "a")
		limiter.want(ratelimit.Admitted, e)
		clock, _ := s.clock(t)
		s.put(t, "{n}:register", clock+century.Microseconds(), " clock")
		limiter.sent(e)
		if at := s.score(t, "{n}:sent", slot(e)); at > clock+time.Minute.Microseconds() {
			t.Errorf("recorded as sent %s ahead", time.Duration(at-clock)*time.Microsecond)
		}
		s.put(t, "{n}:register", clock+century.Microseconds(), " clock")
		if usages, err := limiter.Peek(t.Context(), "a"); err != nil || usages[0].Used != 1 || usages[1].Used != 1 {
			t.Errorf("%+v, %v, expected one slot to be used still", usages, err)
		}
	})
}

// No replica can have asked to keep ids for more than a month: a longer mark is as good as none.
func TestARetentionOfMoreThanAMonthIsNobodys(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "10/30m", ""), day)
		e, f := event("e", "a"), event("f", "a")
		limiter.want(ratelimit.Admitted, e)
		clock, _ := s.clock(t)
		s.put(t, "{n}:register", clock+60*day.Microseconds(), " kept")
		limiter.sent(e)
		limiter.want(ratelimit.Admitted, f)
		for key, most := range map[string]time.Duration{"{n}:sent": day, "{n}:inflight": 30 * time.Minute} {
			if left := s.PTTL(t.Context(), key).Val(); left > most+time.Minute {
				t.Errorf("%s expires in %s, expected %s", key, left, most)
			}
		}
	})
}

// A key that somebody else has given a longer life than any window is long gets ours back.
func TestNoKeyIsKeptForLongerThanItsEntriesCanMatter(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "10/30m:1m", ""), day)
		e, f := event("e", "a"), event("f", "a")
		limiter.want(ratelimit.Admitted, e)
		limiter.sent(e)
		clock, _ := limiter.micros(s)
		for _, key := range s.Keys(t.Context(), "*").Val() {
			s.ends(t, key, clock+century.Microseconds())
		}
		s.put(t, "{n}:register", clock+century.Microseconds(), " buckets")
		s.advance(t, time.Second)
		limiter.want(ratelimit.Admitted, f)
		limiter.sent(f)
		for key, most := range map[string]time.Duration{
			"{n}:register": 62 * day, "{n}:categories": 62 * day, "{n}:sent": 31 * day, "{n}:global": 31 * day, "{n}:buckets:category:a": 31 * day,
		} {
			if left := s.PTTL(t.Context(), key).Val(); left <= 0 || left > most+time.Hour {
				t.Errorf("%s expires in %s, expected %s at most", key, left, most)
			}
		}
	})
}

// A global scope of another type fails a refund before anything is given back, so that it can be repeated.
func TestARefundWithADamagedGlobalScopeChangesNothing(t *testing.T) {
	for _, key := range []string{"{n}:global", "{n}:buckets:global"} {
		t.Run(key, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				limiter := s.limiter(t, testkit.Rules("100/30m", "1/30m", ""), day)
				e := event("e", "a")
				limiter.want(ratelimit.Admitted, e)
				whole := s.Dump(t.Context(), key).Val()
				s.Del(t.Context(), key)
				s.Set(t.Context(), key, "somebody else's", 0)
				before := s.contents(t)
				var damaged ratelimit.DamagedKey
				if refunded, err := limiter.Refund(t.Context(), e, ""); refunded || !errors.As(err, &damaged) || damaged.Key != key {
					t.Errorf("%t, %v, expected an error that names the key", refunded, err)
				}
				s.unchanged(t, before)
				s.Del(t.Context(), key)
				if whole != "" {
					s.put(t, key, s.score(t, "{n}:register", " clock"), slot(e))
				}
				if !limiter.refund(e) {
					t.Error("nothing was refunded")
				}
				limiter.want(ratelimit.Admitted, event("f", "a"))
			})
		})
	}
}

// A slot at the end of all times is nobody's. The refund of another one leaves the set's life as it is.
func TestARefundBesideASlotWithoutATimeSucceeds(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		if s.embedded != nil {
			t.Skip("its Lua does not read such numbers")
		}
		limiter := s.limiter(t, testkit.Rules("100/30m", "10/30m", ""), day)
		e := event("e", "a")
		limiter.want(ratelimit.Admitted, e)
		s.put(t, "{n}:category:a", "+inf", "x")
		if !limiter.refund(e) {
			t.Error("nothing was refunded")
		}
	})
}
