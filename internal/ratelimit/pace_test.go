package ratelimit_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// paced is a replica with a pace, or "off", and limits that nothing reaches.
func (s *store) paced(t testing.TB, pace string) caller {
	t.Helper()
	rules := kit.Rules("100000/30m", "100000/30m", "")
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

func TestPaceIsSharedPerChannel(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		one, other := s.paced(t, "3/1m"), s.paced(t, "3/1m")
		one.postsTo(aChannel, "p1")
		other.postsTo(aChannel, "p2")
		s.advance(t, 20*time.Second)
		one.postsTo(aChannel, "p3")
		for range 3 { // who waits takes nothing
			other.wantPaced(s, 40*time.Second, ratelimit.Post{Name: "p4"})
		}
		other.postsTo("C0000002", "p5")
		s.advance(t, 40*time.Second)
		other.postsTo(aChannel, "p4")
		for range 3 { // a lost reply
			other.postsTo(aChannel, "p6")
		}
		one.wantPaced(s, 20*time.Second, ratelimit.Post{Name: "p7"})
	})
}

// Slack counts a post when it takes it, which may be as late as its answer.
func TestSlotCountsFromTheAnswer(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "1/1m")
		limiter.postsTo(aChannel, "p1")
		s.advance(t, 10*time.Second)
		limiter.posted("p1")
		s.advance(t, 50*time.Second)
		limiter.wantPaced(s, 10*time.Second, ratelimit.Post{Name: "p2"})
		s.advance(t, 10*time.Second)
		limiter.postsTo(aChannel, "p2")
	})
}

// A call that is repeated later than a window takes a slot of its own.
func TestLateRepeatIsPaced(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "1/1m")
		limiter.postsTo(aChannel, "p1")
		limiter.posted("p1")
		s.advance(t, time.Minute)
		limiter.postsTo(aChannel, "p2")
		limiter.wantPaced(s, time.Minute, ratelimit.Post{Name: "p1"})
	})
}

// A post that comes first takes the next slot before everybody who waits for one, and does not have to be
// lucky.
func TestFirstTakesTheNextSlot(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "2/1m")
		limiter.postsTo(aChannel, "p1")
		s.advance(t, 30*time.Second)
		limiter.postsTo(aChannel, "p2")
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
		limiter.postsTo(aChannel, "p3")
		limiter.wantPaced(s, 30*time.Second, ratelimit.Post{Name: "p4"})
	})
}

// waitingPost is a post that waits for the pace since so long before the server's start.
func waitingPost(worker, name string, waited time.Duration) ratelimit.Post {
	since := time.Date(2026, 11, 20, 4, 0, 0, 0, time.UTC).Add(-waited)
	return ratelimit.Post{Worker: worker, Name: name, Since: since}
}

// wantGranted expects a permit.
func (c caller) wantGranted(post ratelimit.Post) {
	c.t.Helper()
	if permit := c.ask(post); permit.Status != ratelimit.Granted {
		c.t.Errorf("%s: %+v, expected a permit", post.Name, permit)
	}
}

// A slot is left to the post of another worker that has waited longer, even if it asks second.
func TestSlotIsLeftToThePostThatWaitsLongest(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		one, other := s.paced(t, "1/1m"), s.paced(t, "1/1m")
		older, newer := waitingPost("one", "o1", time.Hour), waitingPost("other", "n1", time.Minute)
		one.postsTo(aChannel, "p1")
		one.posted("p1")
		other.wantPaced(s, time.Minute, newer)
		one.wantPaced(s, time.Minute, older)
		one.wantPaced(s, time.Minute, older)           // a lost reply
		s.advance(t, time.Minute+300*time.Millisecond) // the slot is free for a while
		other.wantPaced(s, time.Second, newer)
		one.wantGranted(older)
		one.posted("o1")
		s.advance(t, time.Minute)
		other.wantGranted(newer)
		if n := s.Exists(t.Context(), "{n}:pacewaiting:"+aChannel).Val(); n != 0 {
			t.Errorf("posts wait that were made:\n%s", s.contents(t))
		}
	})
}

func TestPostsOfOneTimeDoNotWaitForEachOther(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "1/1m")
		one, other := waitingPost("one", "o1", time.Hour), waitingPost("other", "n1", time.Hour)
		limiter.postsTo(aChannel, "p1")
		limiter.posted("p1")
		limiter.wantPaced(s, time.Minute, one)
		limiter.wantPaced(s, time.Minute, other)
		s.advance(t, time.Minute)
		limiter.wantGranted(other)
	})
}

// Each worker has one place, that of its oldest post; a pace with more slots leaves as many as others wait.
func TestEachWorkerHasOnePlace(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "3/1m")
		for _, name := range []string{"p1", "p2", "p3"} {
			limiter.postsTo(aChannel, name)
			limiter.posted(name)
		}
		for i := range 3 {
			limiter.ask(waitingPost("one", fmt.Sprint("o", i), time.Hour-time.Duration(i)*time.Second))
		}
		limiter.ask(waitingPost("another", "a1", time.Hour-30*time.Minute))
		s.advance(t, time.Minute)
		newer := waitingPost("other", "n1", time.Minute)
		limiter.wantGranted(newer) // of three slots, two are left to the older ones
		limiter.wantPaced(s, time.Second, waitingPost("other", "n2", time.Minute))
		limiter.wantGranted(waitingPost("one", "o0", time.Hour))
		limiter.wantGranted(waitingPost("another", "a1", time.Hour-30*time.Minute))
	})
}

// A dead worker delays the others by a second. Entries that no worker has written delay none.
func TestWorkerThatIsGoneIsNotWaitedFor(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "1/1m")
		waiting := "{n}:pacewaiting:" + aChannel
		limiter.postsTo(aChannel, "p1")
		limiter.posted("p1")
		limiter.ask(waitingPost("gone", "g1", time.Hour))
		far := s.Time(t.Context()).Val().Add(20 * time.Minute).UnixMicro() // before the clock was set back
		kit.Check(t, s.HSet(t.Context(), waiting, "x", "1 2", "y", fmt.Sprintf("1 %d far", far), "z", "").Err())
		newer := waitingPost("other", "n1", time.Minute)
		s.advance(t, time.Minute)
		limiter.wantPaced(s, time.Second, newer)
		if left := s.PTTL(t.Context(), waiting).Val(); left <= 0 || left > 2*time.Hour {
			t.Errorf("what waits expires in %s", left)
		}
		s.advance(t, time.Second)
		limiter.wantGranted(newer)
		if n := s.Exists(t.Context(), waiting).Val(); n != 0 {
			t.Errorf("what waits for nothing is kept:\n%s", s.contents(t))
		}
	})
}

func TestOnlyPermittedPostsAreRecorded(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "1/1m")
		e := event("e", "a")
		limiter.admits(e)
		limiter.postsTo(aChannel, "p0")
		before := s.contents(t)
		limiter.wantPaced(s, time.Minute, ratelimit.Post{Request: e, Name: "p1"})
		limiter.wantPermit(ratelimit.NotInFlight, 0, event("f", "a"), "", "p1")
		s.unchanged(t, before)
		s.advance(t, time.Minute)
		limiter.posts(1, e, "", "p1")
		limiter.posts(1, e, "", "p1")
		s.advance(t, 2*time.Minute)
		limiter.wantPermit(ratelimit.LastPostUnknown, 1, e, "", "p2") // before the pace
		limiter.posts(2, e, "p1", "p2")
	})
}

func TestChannelIsPacedByItsConfiguredName(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		one, other := s.paced(t, "1/1m"), s.paced(t, "1/1m")
		one.postsTo("#alerts", "p1")
		other.wantPaced(s, time.Minute, ratelimit.Post{Channel: "#alerts", Name: "p2"})
		other.postsTo(aChannel, "p3")
		_, err := one.Begin(t.Context(), ratelimit.Post{Name: "p4", Longest: aPost}) // a webhook's own
		kit.Check(t, err)
		want := []string{"{n}:pace:#alerts", "{n}:pace:" + aChannel, "{n}:pace:webhook"}
		keys := s.Keys(t.Context(), "{n}:pace:*").Val()
		slices.Sort(keys)
		if difference := cmp.Diff(want, keys); difference != "" {
			t.Errorf("keys (-want +got):\n%s", difference)
		}
	})
}

// A channel that is always busy keeps its key alive. What no pace can ask for goes with the next post.
func TestStaleSlotsAreRemoved(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "1000/1h")
		pace := "{n}:pace:" + aChannel
		limiter.postsTo(aChannel, "first")
		s.advance(t, 61*time.Minute)
		limiter.postsTo(aChannel, "second")
		if n := s.count(t, pace); n != 1 {
			t.Errorf("%d slots are kept, expected that of the last hour\n%s", n, s.contents(t))
		}
		clock, _ := limiter.micros(s)
		var slots []redis.Z
		for i := range 3000 {
			slots = append(slots, zAt(clock-time.Minute.Microseconds(), fmt.Sprint("x", i)))
		}
		kit.Check(t, s.ZAdd(t.Context(), pace, slots...).Err())
		s.paced(t, "off").postsTo(aChannel, "third")
		if n := s.count(t, pace); n != 2000 {
			t.Errorf("%d slots are kept, expected 2000", n)
		}
		limiter.wantPaced(s, 59*time.Minute, ratelimit.Post{Name: "fourth"})
	})
}
