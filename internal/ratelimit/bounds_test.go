package ratelimit_test

import (
	"testing"
	"time"

	"notifier/test/kit"
)

// Clocks and scores further ahead than the longest window were not stored by notifier.

// What was sent is recorded by the server's clock where the stored one is further ahead than any clock was.
func TestSentIgnoresAClockFarAhead(t *testing.T) {
	eachLimiter(t, "100/30m", "10/30m", func(t *testing.T, s *store, limiter caller) {
		e := event("e", "a")
		limiter.admits(e)
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

// A slot with an infinite score does not fail the refund of another.
func TestRefundBesideAnInfiniteScore(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		if s.embedded != nil {
			t.Skip("its Lua does not read such numbers")
		}
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		e := event("e", "a")
		limiter.admits(e)
		s.put(t, "{n}:category:a", "+inf", "x")
		limiter.refunds(e)
	})
}
