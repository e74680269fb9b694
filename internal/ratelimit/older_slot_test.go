package ratelimit_test

import (
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/redistest"
	"notifier/internal/testkit"
)

// A limit in buckets may count an event for longer than its id is known. While another replica keeps the scope exact, the id's
// second admission takes a slot of its own, and the first one goes on counting.
func TestASecondAdmissionOfAnIDLeavesItsOlderSlot(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		precise := s.limiter(t, testkit.Rules("100/10s", "7/1h:1m", ""), time.Second)
		exact := s.limiter(t, testkit.Rules("100/10s", "2/10s", ""), time.Second)
		precise.want(ratelimit.Admitted, event("e", "a"))
		exact.want(ratelimit.Admitted, event("f", "a"))
		again := costing(event("again", "a"), 2)
		precise.want(ratelimit.Admitted, again)
		precise.sent(again)
		s.forms(t, 4, 0)
		s.advance(t, 11*time.Second)
		exact.want(ratelimit.Admitted, event("g", "a"))
		precise.want(ratelimit.Admitted, by("another message", again))
		s.forms(t, 7, 0)
		if got := precise.one(event("h", "a")); got.Outcome != ratelimit.Category || got.Used != 7 {
			t.Errorf("%+v, expected 7 used\n%s", got, s.contents(t))
		}
		if !precise.refund(by("another message", again)) {
			t.Error("nothing was refunded")
		}
		if got := precise.one(costing(event("h", "a"), 3)); got.Outcome != ratelimit.Category || got.Used != 5 {
			t.Errorf("%+v, expected 5 used after the refund\n%s", got, s.contents(t))
		}
		s.advance(t, time.Hour+2*time.Minute)
		precise.want(ratelimit.Admitted, costing(event("h", "a"), 7)) // the older slots have left the window, too
	})
}

// Where nobody uses buckets an id has one slot, and looking for another would cost each admission a call.
func TestWithoutBucketsAnIDHasOneSlot(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/1h", "7/1h", ""), day)
		e := event("e", "a")
		s.put(t, "{n}:category:a", s.Time(t.Context()).Val().UnixMicro()-1, slot(e))
		limiter.want(ratelimit.Admitted, e)
		s.forms(t, 1, 0)
	})
}

// A mark that is further ahead than the longest window is none of a replica's.
func TestAMarkFromTheFarFutureKeepsNoScopeExact(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		exact := s.limiter(t, testkit.Rules("100/30m", "9/10m", ""), day)
		precise := s.limiter(t, testkit.Rules("100/30m", "9/10m:1m", ""), day)
		exact.want(ratelimit.Admitted, event("e", "a"))
		ahead := func(d time.Duration) int64 { return s.Time(t.Context()).Val().Add(d).UnixMicro() }
		s.put(t, "{n}:register", ahead(30*day), " exact {n}:category:a")
		precise.want(ratelimit.Admitted, event("f", "a"))
		s.forms(t, 2, 0)
		s.put(t, "{n}:register", ahead(32*day), " exact {n}:category:a")
		s.advance(t, time.Second)
		precise.want(ratelimit.Admitted, event("g", "a")) // after this one the mark is removed
		precise.want(ratelimit.Admitted, event("h", "a"))
		s.forms(t, 0, 1)
		exact.want(ratelimit.Admitted, event("i", "a"))
		s.forms(t, 5, 0)
		precise.want(ratelimit.Admitted, event("j", "a"))
		s.forms(t, 6, 0) // the mark of a replica counts as before
	})
}

// A replica that has a scope copied counts it for its own window from then on, even if it admits nothing after all: here the
// event fits while slots count from their admission, and not when they count from the end of a bucket.
func TestACopyIsKeptForTheWindowOfWhoeverHasMadeIt(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	exact := s.limiter(t, testkit.Rules("1/10s", "9/10s", ""), 10*time.Second)
	precise := s.limiter(t, testkit.Rules("1/10s:5s+2/1h:1m", "9/10s", ""), 10*time.Second)
	s.later(t, time.Second)
	exact.want(ratelimit.Admitted, event("e", "a"))
	s.advance(t, 10*time.Second)
	precise.want(ratelimit.Global, event("f", "a"))
	if n := s.Exists(t.Context(), "{n}:buckets:global").Val(); n != 1 {
		t.Fatalf("the scope was not copied\n%s", s.contents(t))
	}
	s.advance(t, 2*time.Minute)
	precise.want(ratelimit.Admitted, event("g", "a"))
	s.advance(t, 2*time.Minute)
	if got := precise.one(event("h", "a")); got.Outcome != ratelimit.Global || got.Used != 2 {
		t.Errorf("%+v, expected 2 used\n%s", got, s.contents(t))
	}
}

// A bucket has no names. A refund takes out of the one that was open at the admission, also where the slots were copied twice.
func TestARefundFindsTheBucketThatWasOpen(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	precise := s.limiter(t, testkit.Rules("100/30m", "3/1m:5s", ""), day)
	exact := s.limiter(t, testkit.Rules("100/30m", "4/10s", ""), day)
	e := event("e", "a")
	s.later(t, 0)
	precise.want(ratelimit.Admitted, e)
	exact.want(ratelimit.Admitted, event("f", "a")) // in the same microsecond
	s.advance(t, 11*time.Second)
	precise.want(ratelimit.Admitted, event("g", "a"))
	s.forms(t, 0, 2)
	if !precise.refund(e) {
		t.Error("nothing was refunded")
	}
	s.forms(t, 0, 2)
	if got := precise.one(costing(event("h", "a"), 2)); got.Used != 2 {
		t.Errorf("%+v, expected 2 used: those of f and g", got)
	}
}

// In the millisecond in which a set comes to its end it is still there, and so is what it says of how long its entries are
// needed.
func TestAWindowIsRememberedUntilItsSetIsGone(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	long := s.limiter(t, testkit.Rules("1/2m", "9/10s", ""), 2*time.Minute)
	short := s.limiter(t, testkit.Rules("1/10s", "9/10s", ""), 10*time.Second)
	long.want(ratelimit.Admitted, event("e", "a"))
	s.advance(t, 2*time.Minute)
	short.want(ratelimit.Admitted, event("f", "a"))
	s.advance(t, time.Minute)
	long.want(ratelimit.Global, event("g", "a"))
}

// A post keeps the record of its event for as long as an admission at that time would, to the millisecond.
func TestAPostKeepsARecordAsLongAsAnAdmissionDoes(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	limiter := s.limiter(t, testkit.Rules("100/30m", "9/10m", ""), day)
	e := event("e", "a")
	limiter.want(ratelimit.Admitted, e)
	before := s.PExpireTime(t.Context(), "{n}:inflight").Val()
	permit, err := limiter.Begin(t.Context(), ratelimit.Post{Request: e, Channel: "C0123456789", Name: "p1", Longest: time.Second})
	testkit.Check(t, err)
	if after := s.PExpireTime(t.Context(), "{n}:inflight").Val(); permit.Status != ratelimit.Granted || after != before {
		t.Errorf("%+v; the records end %s later", permit, after-before)
	}
}

// A replica with a longer retention knows what is still recorded as in flight, also where the set with its id is gone.
func TestARecordIsKnownForTheLongestRetention(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		short := s.limiter(t, testkit.Rules("9/2m", "9/10s", ""), time.Second)
		long := s.limiter(t, testkit.Rules("9/10s:1s", "9/1h", ""), time.Second)
		e, f := event("e", "a"), event("f", "a")
		short.want(ratelimit.Admitted, append(events(6, "more", "b"), e, f)...) // marks of the register may hide a few records
		s.advance(t, 10*time.Second)
		permit, err := short.Begin(t.Context(), ratelimit.Post{Request: f, Channel: "C0123456789", Name: "p1", Longest: time.Second})
		if err != nil || permit.Status != ratelimit.Granted {
			t.Fatalf("%+v, %v", permit, err)
		}
		s.advance(t, 115*time.Second)
		long.want(ratelimit.Duplicate, by("another message", e))
		long.want(ratelimit.Admitted, event("g", "b"))
		long.want(ratelimit.Duplicate, by("another message", e))
		s.advance(t, time.Hour)
		long.want(ratelimit.Admitted, event("h", "b"), by("another message", e))
	})
}
