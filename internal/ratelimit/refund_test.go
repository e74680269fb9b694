package ratelimit_test

import (
	"fmt"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// The delivery that was admitted gets its slots back, once, unless it was posted.
func TestRefundGivesSlotsBackOnce(t *testing.T) {
	eachLimiter(t, "6/30m", "5/30m", func(t *testing.T, s *store, limiter caller) {
		sent, big := event("sent", "a"), costing(event("big", "a"), 4)
		limiter.admits(sent, big)
		limiter.sent(sent)
		limiter.want(ratelimit.Category, event("refused", "a"))
		before := s.contents(t)
		for _, other := range []ratelimit.Request{
			by("another message", big), by("", big), by(big.Delivery+"x", big), sent, event("refused", "a"), event("unknown", "b"),
		} {
			if limiter.refund(other) {
				t.Errorf("refunded %+v", other)
			}
		}
		s.unchanged(t, before)
		if !limiter.refund(big) || limiter.refund(big) {
			t.Error("expected the first refund to give something back, and the second nothing")
		}
		s.charged(t, 1)
		limiter.admits(by("another message", big)) // it is a new event now
		if limiter.refund(big) {
			t.Error("the delivery that was refunded got the slots of another one")
		}
		s.charged(t, 5)
	})
}

// An event whose message was purged is never settled. Its record goes once it is out of every possible
// window.
func TestUnsettledRecordIsForgottenAfterAMonth(t *testing.T) {
	eachLimiter(t, "1000/744h", "1000/744h", func(t *testing.T, s *store, limiter caller) {
		limiter.admits(event("purged", "a"))
		admissions := 0
		admitOne := func() (known bool) {
			admissions++
			e := event(fmt.Sprint("e", admissions), "a")
			limiter.admits(e)
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
func TestShorterWindowsKeepTheInFlightRecord(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		long := s.limiter(t, kit.Rules("9/1h", "9/1h", ""), day)
		long.admits(event("held", "a"))
		s.advance(t, 10*time.Minute)
		short := s.limiter(t, kit.Rules("1000/1m", "1000/1m", ""), day)
		short.admits(events(100, "e", "b")...) // now and then one looks at what is in flight
		if !s.HExists(t.Context(), "{n}:inflight", "a:held").Val() {
			t.Error("it is forgotten")
		}
	})
}
