package ratelimit_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// charged fails unless so many slots are taken in the global set and in that of category "a".
func (s *store) charged(t *testing.T, want int) {
	t.Helper()
	for _, key := range []string{"{n}:global", "{n}:category:a"} {
		if got := s.count(t, key); got != want {
			t.Fatalf("%s has %d slots taken, expected %d", key, got, want)
		}
	}
}

func inGlobal(t *testing.T, s *store, want int) {
	t.Helper()
	if got := s.count(t, "{n}:global"); got != want {
		t.Fatalf("%d slots are taken, expected %d", got, want)
	}
}

func inCategory(t *testing.T, s *store, category string, want int) {
	t.Helper()
	if got := s.count(t, "{n}:category:"+category); got != want {
		t.Fatalf("%d slots of %s are taken, expected %d", got, category, want)
	}
}

// One delivery goes on; every other one is a duplicate, and so is each once the event is in Slack, however
// full the limits are.
func TestEventIsSentOnce(t *testing.T) {
	eachLimiter(t, "2/30m", "2/30m", func(t *testing.T, s *store, limiter caller) {
		e, f := event("e", "a"), event("f", "a")
		copied := by("another message", e)
		sameVerdicts(t, []ratelimit.Verdict{ratelimit.Category, ratelimit.Admitted, ratelimit.Admitted, ratelimit.Duplicate, ratelimit.Admitted},
			limiter.admit(costing(by("refused", e), 3), e, e, copied, f))
		limiter.duplicates(copied, by("", e), by(e.Delivery+" ", e))
		for range 2 { // again, as after a lost answer
			limiter.sent(e)
			limiter.duplicates(e, copied)
		}
		if n := s.HLen(t.Context(), "{n}:inflight").Val(); n != 1 {
			t.Errorf("%d in flight, expected the one that was not sent", n)
		}
		s.charged(t, 2) // being sent gives nothing back
	})
}

// A call whose answer was lost is made again with the same batch.
func TestRepeatedBatchIsChargedOnce(t *testing.T) {
	eachLimiter(t, "100/30m", "3/30m", func(t *testing.T, s *store, limiter caller) {
		batch := append(events(5, "e", "a"), by("another message", event("e-1", "a")), event("e-2", "a"), costing(event("b", "b"), 2))
		first := verdicts(limiter.admit(batch...))
		before := s.contents(t)
		kit.Check(t, s.ScriptFlush(t.Context()).Err())
		if difference := cmp.Diff(first, verdicts(limiter.admit(batch...))); difference != "" {
			t.Errorf("the answers changed (-first +second):\n%s", difference)
		}
		s.unchanged(t, before)
	})
}

// An id counts within its category, and together with its source where it has one: each of these is an event
// of its own, in one batch or in several, and whatever becomes of one concerns no other.
func TestCategoryAndSourceArePartsOfAnEventsIdentity(t *testing.T) {
	long := strings.Repeat("x", 200)
	eachStore(t, func(t *testing.T, s *store) {
		for _, id := range []string{"e", "b:e", "two words", long} {
			for _, together := range []bool{true, false} {
				s.FlushAll(t.Context())
				limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
				e := event(id, "a")
				all := []ratelimit.Request{
					e, in("b", e), in("a:b", e), in(long[:100], e), from("/ci", e), from("/cd", e), from("/ci", in("b", e)), from(long, e), from("a "+id, e),
				}
				if together {
					sameVerdicts(t, slices.Repeat([]ratelimit.Verdict{ratelimit.Admitted}, len(all)), limiter.admit(all...))
				} else {
					limiter.admits(all...)
				}
				inGlobal(t, s, len(all))
				for _, one := range all {
					limiter.admits(one) // the same delivery, not charged again
					limiter.duplicates(by("another message", one))
				}
				limiter.sent(all[0])
				if !limiter.refund(all[4]) {
					t.Fatal("nothing was refunded")
				}
				limiter.duplicates(all[0])
				limiter.admits(all[1:]...) // one of them again
				inGlobal(t, s, len(all))
				for _, one := range all[1:] {
					limiter.posts(1, one, "", "p")
				}
			}
		}
	})
}

func TestDedupeWindowEnds(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), 2*time.Hour)
		e, f := event("e", "a"), event("f", "a")
		limiter.admit(e, f)
		limiter.sent(e)
		s.advance(t, time.Hour)
		limiter.sent(f)
		s.advance(t, 59*time.Minute)
		limiter.duplicates(e, f)
		s.advance(t, time.Minute)
		limiter.admits(e)
		limiter.duplicates(f)
	})
}

// The dedupe window is what was configured. An id that comes again after it is another event, and takes a
// slot of its own while the first one still counts.
func TestResentIDTakesASecondSlot(t *testing.T) {
	for _, limit := range []string{"2/24h", "2/24h:15m", "2/744h:fixed"} {
		t.Run(limit, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				limiter := s.limiter(t, kit.Rules(limit, limit, ""), time.Minute)
				e := event("e", "a")
				limiter.admits(e)
				limiter.sent(e)
				s.advance(t, 50*time.Second)
				limiter.duplicates(e)
				s.advance(t, 10*time.Second)
				limiter.admits(e)
				limiter.sent(e)
				if got := limiter.one(event("f", "a")); got.Verdict != ratelimit.Category || got.Used != 2 {
					t.Errorf("%+v, expected 2 used: both were sent", got)
				}
			})
		})
	}
}

// An admission is good for as long as its slots count in every tier. Then the event is decided again, and the
// longer windows count it once.
func TestAdmissionEndsWithItsShortestWindow(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "3/1h+2/10m", "slow=5/1h"), day)
		e, f := event("e", "a"), event("f", "a")
		limiter.admit(e)
		s.advance(t, time.Minute)
		limiter.admit(f)

		s.advance(t, 8*time.Minute)
		limiter.admits(e)
		limiter.duplicates(by("another message", e))

		s.advance(t, time.Minute)
		limiter.admits(by("another message", e))
		limiter.duplicates(e)
		limiter.admits(f)
		inGlobal(t, s, 2)
		inCategory(t, s, "a", 2)
	})
}

// A refused event gives its old slots back, unless a post of it may be in Slack.
func TestSecondRefusalReleasesTheOldSlots(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("99/30m", "4/1h+2/10m", ""), day)
		waits, failed, unknown := event("waits", "a"), event("failed", "b"), costing(event("unknown", "c"), 2)
		limiter.admits(waits, failed, unknown)
		limiter.posts(1, failed, "", "p1")
		limiter.failed(failed, "p1")
		limiter.posts(1, unknown, "", "q1")
		s.advance(t, 11*time.Minute)
		limiter.admits(costing(event("f", "a"), 2), costing(event("f", "b"), 2), costing(event("f", "c"), 2))
		for _, e := range []ratelimit.Request{waits, failed, unknown} {
			if got := limiter.one(e); got.Verdict != ratelimit.Category || got.Tier.Count != 2 {
				t.Errorf("%s: %+v, expected a refusal by 2/10m", e.ID, got)
			}
		}
		for category, want := range map[string]int{"a": 2, "b": 2, "c": 4} {
			inCategory(t, s, category, want)
		}
		inGlobal(t, s, 8)
		if s.HExists(t.Context(), "{n}:inflight", slot(waits)).Val() {
			t.Error("there is a record of an event that has no slot and no post")
		}
		if left := s.TTL(t.Context(), "{n}:category:c").Val(); left < 59*time.Minute {
			t.Errorf("the log expires in %s, expected an hour", left)
		}
	})
}

// The rest of a batch finds the slots where a refusal has left them. Another replica had admitted more than the
// limit of this one.
func TestBatchCountsSlotsThatARefusedEventKeeps(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		before := s.limiter(t, kit.Rules("99/2h", "5/2h", ""), day)
		unknown := event("unknown", "a")
		before.admits(unknown)
		before.posts(1, unknown, "", "p1")
		s.advance(t, 11*time.Minute)
		before.admits(events(2, "e", "a")...)
		for i, got := range s.limiter(t, kit.Rules("99/2h", "2/2h+2/10m", ""), day).admit(unknown, event("f", "a")) {
			if got.Verdict != ratelimit.Category || got.Tier.Window != 2*time.Hour || got.Used != 2+i {
				t.Errorf("%d: %+v, expected a refusal by 2/2h with %d used", i, got, 2+i)
			}
		}
	})
}

// The slots were the only ones of their log, which was empty for a moment.
func TestSlotsThatARefusedEventKeepsExpire(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("9/2h+1/10m", "9/2h", ""), day)
		unknown := event("unknown", "a")
		limiter.admits(unknown)
		limiter.posts(1, unknown, "", "p1")
		s.advance(t, 11*time.Minute)
		limiter.admits(event("e", "b"))
		limiter.want(ratelimit.Global, unknown)
		inCategory(t, s, "a", 1)
		if left := s.TTL(t.Context(), "{n}:category:a").Val(); left < time.Hour || left > 2*time.Hour+time.Second {
			t.Errorf("the log expires in %s, expected two hours at most", left)
		}
	})
}

func TestDedupeWindowEndsToTheMicrosecond(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), 2*time.Hour)
	e := event("e", "a")
	limiter.admits(e)
	s.advance(t, time.Minute)
	limiter.sent(e)
	s.advance(t, 2*time.Hour-time.Microsecond)
	limiter.duplicates(e)
	s.advance(t, time.Microsecond)
	limiter.admits(e)
	limiter.sent(e)
	limiter.duplicates(e)
}
