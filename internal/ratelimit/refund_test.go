package ratelimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

func TestARefundGivesBackExactlyThatEventsSlots(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("6/30m", "5/30m", ""), day)
		limiter.admit(event("e", "a"))
		s.Del(t.Context(), "{n}:meta") // the clock of decisions goes on
		before := s.contents(t)
		big := costing(event("big", "a"), 4)
		limiter.admit(big) // on the embedded store at the same microsecond as e
		s.charged(t, 5)
		limiter.want(ratelimit.Category, event("f", "a"))
		if !limiter.refund(big) {
			t.Error("nothing was refunded")
		}
		s.charged(t, 1)
		s.Del(t.Context(), "{n}:meta")
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
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
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
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
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
		limiter := s.limiter(t, kit.Rules("100/30m", "1/30m", ""), day)
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
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		e := event("an id that is hashed", "a")
		limiter.want(ratelimit.Admitted, e)
		s.advance(t, time.Minute)
		kit.Check(t, s.ScriptFlush(t.Context()).Err())
		if !limiter.refund(e) {
			t.Error("nothing was refunded")
		}
		s.Del(t.Context(), "{n}:categories", "{n}:meta") // they show only that there was an admission, and when
		if got := s.contents(t); got != "" {
			t.Errorf("left over:\n%s", got)
		}
	})
}

// Nobody settles an event whose message was purged. Its record goes when no window can have it any more.
func TestARecordThatNobodySettlesIsForgottenAfterAMonth(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("1000/744h", "1000/744h", ""), day)
		limiter.want(ratelimit.Admitted, event("purged", "a"))
		admissions := 0
		admitOne := func() (known bool) {
			admissions++
			e := event(fmt.Sprint("e", admissions), "a")
			limiter.want(ratelimit.Admitted, e)
			limiter.sent(e)
			return s.HExists(t.Context(), "{n}:inflight", "a:purged").Val()
		}
		for range 2 {
			s.advance(t, 15*day)
			for range 30 { // some look at records
				if !admitOne() {
					t.Fatalf("forgotten at the %d. admission", admissions)
				}
			}
		}
		s.advance(t, day+time.Minute)
		for admitOne() {
			if admissions > 600 {
				t.Fatal("still in flight after a month")
			}
		}
	})
}

// A replica with short windows leaves what another one with longer windows has in flight.
func TestWhatAnotherReplicaKnowsStaysInFlight(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		long := s.limiter(t, kit.Rules("9/1h", "9/1h", ""), day)
		long.want(ratelimit.Admitted, event("held", "a"))
		s.advance(t, 10*time.Minute)
		short := s.limiter(t, kit.Rules("1000/1m", "1000/1m", ""), day)
		short.want(ratelimit.Admitted, events(100, "e", "b")...) // now and then one looks at what is in flight
		if !s.HExists(t.Context(), "{n}:inflight", "a:held").Val() {
			t.Error("it is forgotten")
		}
	})
}
