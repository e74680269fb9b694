package ratelimit_test

import (
	"fmt"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/testkit"
)

// paced is a replica with a pace, or "off", and limits that nothing reaches.
func (s *store) paced(t testing.TB, pace string) caller {
	t.Helper()
	rules := testkit.Rules("100000/30m", "100000/30m", "")
	if pace != "off" {
		rules.Pace = mustParse(pace)[0]
	}
	return s.limiter(t, rules, day)
}

// wantPaced expects to wait for the pace, and for so long: less where the clock runs by itself.
func (c caller) wantPaced(s *store, want time.Duration, post ratelimit.Post) {
	c.t.Helper()
	permit := c.ask(post)
	if permit.Status != ratelimit.Paced || permit.Wait > want || s.embedded != nil && permit.Wait != want || permit.Wait < want/2 {
		c.t.Errorf("%s: %+v, expected to wait %s for the pace", post.Name, permit, want)
	}
}

func TestThePaceHoldsOverAllReplicasAndPerChannel(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		one, other := s.paced(t, "3/1m"), s.paced(t, "3/1m")
		one.wantDigest(ratelimit.Granted, aChannel, "p1")
		other.wantDigest(ratelimit.Granted, aChannel, "p2")
		s.advance(t, 20*time.Second)
		one.wantDigest(ratelimit.Granted, aChannel, "p3")
		for range 3 { // who waits takes nothing
			other.wantPaced(s, 40*time.Second, ratelimit.Post{Name: "p4"})
		}
		other.wantDigest(ratelimit.Granted, "C0000002", "p5")
		s.advance(t, 40*time.Second)
		other.wantDigest(ratelimit.Granted, aChannel, "p4")
		for range 3 { // a lost reply
			other.wantDigest(ratelimit.Granted, aChannel, "p6")
		}
		one.wantPaced(s, 20*time.Second, ratelimit.Post{Name: "p7"})
	})
}

// A post without an answer counts for as long as it may take. Whoever waits asks again after a window all the same: the answer
// may have come by then.
func TestAWaitForThePaceIsAWindowAtMost(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "1/1s")
		limiter.wantDigest(ratelimit.Granted, aChannel, "p1")
		limiter.wantPaced(s, time.Second, ratelimit.Post{Name: "p2"})
		s.advance(t, time.Second)
		limiter.wantPaced(s, time.Second, ratelimit.Post{Name: "p2"})
		limiter.answered("p1")
		s.advance(t, time.Second)
		limiter.wantDigest(ratelimit.Granted, aChannel, "p2")
	})
}

// Slack counts a post when it takes it, which may be as late as its answer.
func TestASlotCountsFromTheAnswer(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "1/1m")
		limiter.wantDigest(ratelimit.Granted, aChannel, "p1")
		s.advance(t, 10*time.Second)
		limiter.answered("p1")
		s.advance(t, 50*time.Second)
		limiter.wantPaced(s, 10*time.Second, ratelimit.Post{Name: "p2"})
		s.advance(t, 10*time.Second)
		limiter.wantDigest(ratelimit.Granted, aChannel, "p2")
	})
}

func TestASlotWithoutAnAnswerCountsAsLongAsItsPostMayTake(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "1/10s")
		post := func(name string) ratelimit.Post { return ratelimit.Post{Name: name, Longest: time.Minute} }
		limiter.ask(post("p1"))
		limiter.wantPaced(s, 10*time.Second, post("p2")) // the answer may come at once
		s.advance(t, 59*time.Second)
		limiter.wantPaced(s, time.Second, post("p2"))
		s.advance(t, time.Second)
		limiter.wantDigest(ratelimit.Granted, aChannel, "p2")
	})
}

// A post that comes first takes the next slot before everybody who waits for one, and does not have to be lucky.
func TestTheFirstTakesTheNextSlot(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "2/1m")
		limiter.wantDigest(ratelimit.Granted, aChannel, "p1")
		s.advance(t, 30*time.Second)
		limiter.wantDigest(ratelimit.Granted, aChannel, "p2")
		digest := ratelimit.Post{Name: "d", First: true}
		for range 3 {
			limiter.wantPaced(s, 30*time.Second, digest)
		}
		limiter.wantPaced(s, time.Minute, ratelimit.Post{Name: "p3"})
		s.advance(t, 30*time.Second)
		limiter.wantPaced(s, 30*time.Second, ratelimit.Post{Name: "p3"}) // the free slot is not for it
		for range 3 {
			if permit := limiter.ask(digest); permit.Status != ratelimit.Granted {
				t.Errorf("%+v, expected the slot that was kept", permit)
			}
		}
		limiter.wantPaced(s, 30*time.Second, ratelimit.Post{Name: "p3"})
		s.advance(t, 30*time.Second)
		limiter.wantDigest(ratelimit.Granted, aChannel, "p3")
		limiter.wantPaced(s, 30*time.Second, ratelimit.Post{Name: "p4"})
	})
}

func TestReplicasWithOtherPacesShareTheSlots(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		short, long, off := s.paced(t, "1/100ms"), s.paced(t, "3/30m"), s.paced(t, "off")
		off.wantDigest(ratelimit.Granted, aChannel, "p0")
		long.wantDigest(ratelimit.Granted, aChannel, "p1")
		for i := range 4 {
			s.advance(t, time.Minute)
			short.wantDigest(ratelimit.Granted, aChannel, fmt.Sprint("s", i))
			short.answered(fmt.Sprint("s", i))
		}
		long.wantPaced(s, 28*time.Minute, ratelimit.Post{Name: "p2"})
		off.wantDigest(ratelimit.Granted, aChannel, "p3")
	})
}

// What is posted to a name and to its ID is posted to one channel.
func TestANameAndItsIDAreOneChannel(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		one, other := s.paced(t, "2/1m"), s.paced(t, "2/1m")
		one.wantDigest(ratelimit.Granted, "#alerts", "p1")
		other.wantPaced(s, 200*time.Millisecond, ratelimit.Post{Channel: "#alerts", Name: "p2"}) // until the ID is known
		one.wantDigest(ratelimit.Granted, "#alerts", "p1")
		one.answer(ratelimit.Answer{Channel: "#alerts", Name: "p1", ID: "C0ALERTS1"}, ratelimit.NoPause)
		other.wantDigest(ratelimit.Granted, "#alerts", "p2")
		for _, c := range []caller{one, other} {
			for _, channel := range []string{"#alerts", "C0ALERTS1"} {
				c.wantPaced(s, time.Minute, ratelimit.Post{Channel: channel, Name: "p3"})
			}
		}
		if keys := s.Keys(t.Context(), "{n}:pace:*").Val(); len(keys) != 1 || keys[0] != "{n}:pace:C0ALERTS1" {
			t.Errorf("%v, expected the set of the ID alone", keys)
		}
		// The channel is another one by now, and Redis forgets everything after that.
		s.advance(t, time.Minute)
		one.wantDigest(ratelimit.Granted, "#alerts", "p4")
		one.answer(ratelimit.Answer{Channel: "#alerts", Name: "p4", ID: "C0ALERTS2"}, ratelimit.NoPause)
		other.wantDigest(ratelimit.Granted, "#alerts", "p5")
		other.wantPaced(s, time.Minute, ratelimit.Post{Channel: "C0ALERTS2", Name: "p6"})
		testkit.Check(t, s.FlushAll(t.Context()).Err())
		other.wantDigest(ratelimit.Granted, "#alerts", "p7")
		one.wantPaced(s, 200*time.Millisecond, ratelimit.Post{Channel: "#alerts", Name: "p8"})
	})
}

// A post whose answer shows no ID, and one that never ends, leave the name to the next post.
func TestAPostThatShowsNoIDLeavesTheNameToTheNext(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "3/1m")
		limiter.wantDigest(ratelimit.Granted, "#a", "p1")
		limiter.answer(ratelimit.Answer{Channel: "#a", Name: "p1"}, ratelimit.NoPause)
		limiter.wantDigest(ratelimit.Granted, "#a", "p2")
		s.advance(t, aPost)
		limiter.wantDigest(ratelimit.Granted, "#a", "p3")
		limiter.answer(ratelimit.Answer{Channel: "#a", Name: "p3", ID: "C000000A"}, ratelimit.NoPause)
		limiter.wantPaced(s, 50*time.Second, ratelimit.Post{Channel: "#a", Name: "p4"}) // all three count
	})
}

func TestOnlyPermittedPostsAreRecorded(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "1/1m")
		e := event("e", "a")
		limiter.want(ratelimit.Admitted, e)
		limiter.wantDigest(ratelimit.Granted, aChannel, "p0")
		before := s.contents(t)
		limiter.wantPaced(s, time.Minute, ratelimit.Post{Request: e, Name: "p1"})
		limiter.wantPermit(ratelimit.NotInFlight, 0, event("f", "a"), "", "p1")
		s.unchanged(t, before)
		s.advance(t, time.Minute)
		limiter.wantPermit(ratelimit.Granted, 1, e, "", "p1")
		limiter.wantPermit(ratelimit.Granted, 1, e, "", "p1")
		s.advance(t, 2*time.Minute)
		limiter.wantPermit(ratelimit.OutcomeUnknown, 1, e, "", "p2") // before the pace
		limiter.wantPermit(ratelimit.Granted, 2, e, "p1", "p2")
	})
}

// A permit that is asked for again after its slot is free is a new one.
func TestAnOldPermitIsNotForEver(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "1/3s")
		limiter.wantDigest(ratelimit.Granted, aChannel, "p1")
		limiter.answered("p1")
		s.advance(t, 4*time.Second)
		limiter.wantDigest(ratelimit.Granted, aChannel, "p2")
		limiter.wantDigest(ratelimit.Paced, aChannel, "p1")
	})
}

// A channel that is always busy keeps its key alive; slots that no longer count go with the next post, answered or not.
func TestSlotsThatNoLongerCountAreRemoved(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "100/10s")
		for i := range 6 {
			s.advance(t, 6*time.Second)
			limiter.wantDigest(ratelimit.Granted, aChannel, fmt.Sprint("p", i))
		}
		if n := s.ZCard(t.Context(), "{n}:pace:"+aChannel).Val(); n != 2 {
			t.Errorf("%d slots are kept, expected the two of the last ten seconds\n%s", n, s.contents(t))
		}
	})
}

// A probe that takes a moment does not shorten the life of one that may take long.
func TestAShortProbeForgetsNoLongOne(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "off")
		limiter.ask(ratelimit.Post{Channel: "#a", Name: "p1", Longest: 5 * time.Minute})
		limiter.ask(ratelimit.Post{Channel: "#b", Name: "p2", Longest: time.Second})
		if left := s.PTTL(t.Context(), "{n}:probes").Val(); left < 5*time.Minute {
			t.Errorf("the probes expire in %s, expected five minutes and more", left)
		}
	})
}
