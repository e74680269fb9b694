package ratelimit_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// Clocks and scores that are further ahead than any window is long were stored by nobody of ours.

// What was sent is recorded by the server's clock where the stored one is further ahead than any clock was.
func TestSentIsRecordedByTheClockWhateverIsStored(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		e := event("e", "a")
		limiter.want(ratelimit.Admitted, e)
		clock, _ := s.clock(t)
		s.setClock(t, clock+century.Microseconds())
		limiter.sent(e)
		if at := s.score(t, "{n}:sent", slot(e)); at > clock+time.Minute.Microseconds() {
			t.Errorf("recorded as sent %s ahead", time.Duration(at-clock)*time.Microsecond)
		}
		s.setClock(t, clock+century.Microseconds())
		if usages, err := limiter.Peek(t.Context(), "a"); err != nil || usages[0].Used != 1 || usages[1].Used != 1 {
			t.Errorf("%+v, %v, expected one slot to be used still", usages, err)
		}
	})
}

// A global scope of another type fails a refund before anything is given back, so that it can be repeated.
func TestARefundWithADamagedGlobalScopeChangesNothing(t *testing.T) {
	for _, key := range []string{"{n}:global", "{n}:buckets:global"} {
		t.Run(key, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				limiter := s.limiter(t, kit.Rules("100/30m", "1/30m", ""), day)
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
					s.put(t, key, s.latestAdmission(t), fmt.Sprint(slot(e), " ", s.latestAdmission(t)))
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
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		e := event("e", "a")
		limiter.want(ratelimit.Admitted, e)
		s.put(t, "{n}:category:a", "+inf", "x")
		if !limiter.refund(e) {
			t.Error("nothing was refunded")
		}
	})
}
