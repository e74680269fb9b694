package ratelimit_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/ratelimit"
	"notifier/internal/testkit"
)

func TestARefundGivesBackExactlyThatEventsSlots(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("6/30m", "5/30m", ""), day)
		limiter.admit(event("e", "a"))
		before := s.contents(t)
		big := costing(event("big", "a"), 4)
		limiter.admit(big) // on the embedded store at the same microsecond as e
		s.charged(t, 5)
		limiter.want(ratelimit.Category, event("f", "a"))
		if !limiter.refund(big) {
			t.Error("nothing was refunded")
		}
		s.charged(t, 1)
		if s.embedded != nil { // its clock stands still, so even the keys' ends are as before
			if difference := cmp.Diff(before, s.contents(t)); difference != "" {
				t.Errorf("after the refund (-before +after):\n%s", difference)
			}
		}
		limiter.want(ratelimit.Admitted, costing(event("f", "a"), 4)) // both scopes have room again
		limiter.want(ratelimit.Admitted, event("g", "b"))
	})
}

func TestARefundIsForTheDeliveryThatWasAdmitted(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "10/30m", ""), day)
		e := event("e", "a")
		limiter.want(ratelimit.Admitted, e)
		before := s.contents(t)
		for _, other := range []string{"another message", "", e.Delivery + "x", "x" + e.Delivery} {
			if limiter.refund(by(other, e)) {
				t.Errorf("refunded for the delivery %q", other)
			}
		}
		s.unchanged(t, before)
	})
}

func TestARefundIsGivenOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "10/30m", ""), day)
		e := event("e", "a")
		limiter.admit(e, event("f", "a"))
		if !limiter.refund(e) || limiter.refund(e) {
			t.Error("expected the first refund to give something back, and the second nothing")
		}
		s.charged(t, 1)
		limiter.want(ratelimit.Admitted, by("another message", e)) // it is a new event now
		if limiter.refund(e) {
			t.Error("the delivery that was refunded got the slot of another one")
		}
		s.charged(t, 2)
	})
}

func TestWhatWasSentOrNeverAdmittedIsNotRefunded(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "1/30m", ""), day)
		e := event("e", "a")
		limiter.want(ratelimit.Admitted, e)
		limiter.sent(e)
		limiter.want(ratelimit.Category, event("refused", "a"))
		before := s.contents(t)
		if limiter.refund(e) || limiter.refund(event("refused", "a")) || limiter.refund(event("unknown", "b")) {
			t.Error("something was refunded")
		}
		s.unchanged(t, before)
	})
}

func TestARefundWorksWithNoScriptLoaded(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "10/30m", ""), day)
		e := event("an id that is hashed", "a")
		limiter.want(ratelimit.Admitted, e)
		s.advance(t, time.Minute)
		testkit.Check(t, s.ScriptFlush(t.Context()).Err())
		if !limiter.refund(e) {
			t.Error("nothing was refunded")
		}
		s.Del(t.Context(), "{n}:categories", "{n}:register") // they show only that there was an admission, and when
		if got := s.contents(t); got != "" {
			t.Errorf("left over:\n%s", got)
		}
	})
}

// When the newest entry is refunded, what is left of the id goes when its slot does.
func TestAfterARefundNothingStaysInFlightForEver(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "10/30m", ""), day)
		limiter.want(ratelimit.Admitted, event("e", "a"))
		s.advance(t, 10*time.Minute)
		f := event("f", "b")
		limiter.want(ratelimit.Admitted, f)
		limiter.refund(f)
		s.advance(t, 25*time.Minute)
		limiter.want(ratelimit.Admitted, event("g", "c"))
		if n := s.HLen(t.Context(), "{n}:inflight").Val(); n != 1 {
			t.Errorf("%d in flight, expected g alone\n%s", n, s.contents(t))
		}
	})
}
