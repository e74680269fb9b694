package ratelimit_test

import (
	"fmt"
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
func (s *store) charged(t *testing.T, want int64) {
	t.Helper()
	for _, key := range []string{"{n}:global", "{n}:category:a"} {
		if got := s.ZCard(t.Context(), key).Val(); got != want {
			t.Fatalf("%s has %d slots taken, expected %d", key, got, want)
		}
	}
}

func inGlobal(t *testing.T, s *store, want int) {
	t.Helper()
	if got := s.ZCard(t.Context(), "{n}:global").Val(); got != int64(want) {
		t.Fatalf("%d slots are taken, expected %d", got, want)
	}
}

func TestARedeliveryOfAnAdmittedEventGoesOnAndIsNotChargedAgain(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("2/30m", "2/30m", ""), day)
		e := costing(event("e", "a"), 2)
		limiter.want(ratelimit.Admitted, e)
		before := s.contents(t)
		for range 3 {
			limiter.want(ratelimit.Admitted, e) // although no slot is free
		}
		kit.Check(t, s.ScriptFlush(t.Context()).Err())
		limiter.want(ratelimit.Admitted, e)
		s.unchanged(t, before)
		s.charged(t, 2)
	})
}

// A call whose answer was lost is made again with the same batch.
func TestARepeatedBatchIsAnsweredTheSameAndChargedOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "3/30m", ""), day)
		batch := append(events(5, "e", "a"), by("another message", event("e-1", "a")), event("e-2", "a"), costing(event("b", "b"), 2))
		first := outcomes(limiter.admit(batch...))
		before := s.contents(t)
		if difference := cmp.Diff(first, outcomes(limiter.admit(batch...))); difference != "" {
			t.Errorf("the answers changed (-first +second):\n%s", difference)
		}
		s.unchanged(t, before)
	})
}

func TestAnIDInFlightIsADuplicateForEveryOtherDelivery(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		e := event("e", "a")
		limiter.want(ratelimit.Admitted, e)
		limiter.want(ratelimit.Duplicate, by("another message", e), by("", e), by(e.Delivery+" ", e))
		s.charged(t, 1)
	})
}

// An id counts within its category, and together with its source where it has one: each of these is an event of its own, in
// one batch or in several, and whatever becomes of one concerns no other.
func TestAnIDOfAnotherCategoryOrSourceIsAnotherEvent(t *testing.T) {
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
					sameOutcomes(t, slices.Repeat([]ratelimit.Outcome{ratelimit.Admitted}, len(all)), limiter.admit(all...))
				} else {
					limiter.want(ratelimit.Admitted, all...)
				}
				inGlobal(t, s, len(all))
				for _, one := range all {
					limiter.want(ratelimit.Admitted, one) // the same delivery, not charged again
					limiter.want(ratelimit.Duplicate, by("another message", one))
				}
				limiter.sent(all[0])
				if !limiter.refund(all[4]) {
					t.Fatal("nothing was refunded")
				}
				limiter.want(ratelimit.Duplicate, all[0])
				limiter.want(ratelimit.Admitted, all[1:]...) // one of them again
				inGlobal(t, s, len(all))
				for _, one := range all[1:] {
					limiter.wantPermit(ratelimit.Granted, 1, one, "", "p")
				}
			}
		}
	})
}

func TestTheSameIDTwiceInOneBatchIsADuplicate(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		e := event("e", "a")
		got := outcomes(limiter.admit(e, by("second message", e), event("f", "a"), by("third message", e)))
		want := []ratelimit.Outcome{ratelimit.Admitted, ratelimit.Duplicate, ratelimit.Admitted, ratelimit.Duplicate}
		if difference := cmp.Diff(want, got); difference != "" {
			t.Errorf("(-want +got):\n%s", difference)
		}
		s.charged(t, 2)
	})
}

// The same message twice in one batch is one delivery: were the second called a duplicate, it would be acknowledged
// while the first is not in Slack yet.
func TestTheSameDeliveryTwiceInOneBatchIsChargedOnceAndNoDuplicate(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("1/30m", "1/30m", ""), day)
		e := event("e", "a")
		limiter.want(ratelimit.Admitted, e)
		f := event("f", "a")
		s.advance(t, 30*time.Minute)
		if got, want := outcomes(limiter.admit(f, f)), []ratelimit.Outcome{ratelimit.Admitted, ratelimit.Admitted}; !cmp.Equal(got, want) {
			t.Errorf("%v, expected %v", got, want)
		}
		s.charged(t, 1)
	})
}

// An event that was refused is not known: a later copy of it in the same batch has its own chance.
func TestARefusedIDIsNoDuplicate(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "2/30m", ""), day)
		e := event("e", "a")
		got := outcomes(limiter.admit(costing(e, 3), by("second message", e)))
		if want := []ratelimit.Outcome{ratelimit.Category, ratelimit.Admitted}; !cmp.Equal(got, want) {
			t.Errorf("%v, expected %v", got, want)
		}
	})
}

func TestAnIDThatWasSentIsADuplicateForEveryDelivery(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		e := event("e", "a")
		limiter.want(ratelimit.Admitted, e)
		limiter.sent(e)
		limiter.want(ratelimit.Duplicate, e, by("another message", e))
		limiter.sent(e) // again, as after a lost answer
		limiter.want(ratelimit.Duplicate, e)
		if n := s.HLen(t.Context(), "{n}:inflight").Val(); n != 0 {
			t.Errorf("%d in flight after all were sent", n)
		}
		s.charged(t, 1) // being sent gives nothing back
	})
}

func TestADuplicateIsADuplicateHoweverFullTheLimitsAre(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("1/30m", "1/30m", ""), day)
		e := event("e", "a")
		limiter.want(ratelimit.Admitted, e)
		limiter.want(ratelimit.Duplicate, by("another message", e))
		limiter.sent(e)
		limiter.want(ratelimit.Duplicate, e)
		limiter.want(ratelimit.Category, event("f", "a"))
	})
}

func TestTheDedupeWindowEnds(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), 2*time.Hour)
	e := event("e", "a")
	limiter.want(ratelimit.Admitted, e)
	s.advance(t, time.Minute)
	limiter.sent(e)
	s.advance(t, 2*time.Hour-time.Microsecond)
	limiter.want(ratelimit.Duplicate, e)
	s.advance(t, time.Microsecond)
	limiter.want(ratelimit.Admitted, e)
	limiter.sent(e)
	limiter.want(ratelimit.Duplicate, e)
}

func TestTheDedupeWindowEndsOnEveryStore(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), 2*time.Hour)
		e, f := event("e", "a"), event("f", "a")
		limiter.admit(e, f)
		limiter.sent(e)
		s.advance(t, time.Hour)
		limiter.sent(f)
		s.advance(t, 59*time.Minute)
		limiter.want(ratelimit.Duplicate, e, f)
		s.advance(t, time.Minute)
		limiter.want(ratelimit.Admitted, e)
		limiter.want(ratelimit.Duplicate, f)
	})
}

func TestARecordInFlightIsStaleAfterTheLongestWindow(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "2/30m", "slow=5/1h"), day)
		e, f, g := event("e", "a"), event("f", "a"), costing(event("g", "b"), 2)
		limiter.admit(e, g)
		s.advance(t, time.Minute)
		limiter.admit(f)

		s.advance(t, 58*time.Minute) // out of every window of "a", and still in flight
		limiter.want(ratelimit.Admitted, e, g)
		limiter.want(ratelimit.Duplicate, by("another message", e))

		s.advance(t, time.Minute)
		limiter.want(ratelimit.Admitted, by("another message", e)) // decided anew
		limiter.want(ratelimit.Duplicate, e)
		limiter.want(ratelimit.Admitted, f)
		inGlobal(t, s, 1) // e, charged anew
	})
}

// An event that waits is known for the longest window, in whatever form that is counted and however short the dedupe window is.
func TestAnEventThatWaitsIsChargedOnce(t *testing.T) {
	for _, limits := range [][2]string{{"1000/1h:1m", "100/1h:1m"}, {"1000/1h", "100/1h"}, {"1000/1h:fixed", "100/1h:fixed"}} {
		t.Run(limits[0], func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				limiter := s.limiter(t, kit.Rules(limits[0], limits[1], ""), 2*time.Second)
				waiting := events(5, "e", "a")
				limiter.want(ratelimit.Admitted, waiting...)
				for i := range 12 { // redelivered while Slack's pause lasts
					s.advance(t, 9*time.Second)
					limiter.want(ratelimit.Admitted, waiting...)
					limiter.wantPermit(ratelimit.Granted, i+1, waiting[0], aPostName(i-1), aPostName(i))
					limiter.want(ratelimit.Duplicate, by("another message", waiting[1]))
				}
				usages, err := limiter.Peek(t.Context(), "a")
				kit.Check(t, err)
				if usages[0].Used != 5 || usages[1].Used != 5 {
					t.Errorf("%+v, expected that five slots are taken", usages)
				}
			})
		})
	}
}

// aPostName is the name of the n-th post; empty: none.
func aPostName(n int) string {
	if n < 0 {
		return ""
	}
	return fmt.Sprint("p", n)
}

// The dedupe window is what was configured. An id that comes again after it is another event, and takes a slot of its own while
// the first one still counts.
func TestAnIDThatIsSentAgainTakesASecondSlot(t *testing.T) {
	for _, limit := range []string{"2/24h", "2/24h:15m", "2/744h:fixed"} {
		t.Run(limit, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				limiter := s.limiter(t, kit.Rules(limit, limit, ""), time.Minute)
				e := event("e", "a")
				limiter.want(ratelimit.Admitted, e)
				limiter.sent(e)
				s.advance(t, 50*time.Second)
				limiter.want(ratelimit.Duplicate, e)
				s.advance(t, 10*time.Second)
				limiter.want(ratelimit.Admitted, e)
				limiter.sent(e)
				if got := limiter.one(event("f", "a")); got.Outcome != ratelimit.Category || got.Used != 2 {
					t.Errorf("%+v, expected 2 used: both were sent", got)
				}
			})
		})
	}
}

// An id is a duplicate for the dedupe window, however long the window of a temporary limit was.
func TestAnIDIsForgottenAfterALongTemporaryLimit(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/2s", "100/2s", ""), 3*time.Second)
		e := event("e", "r")
		limiter.SetTemporary(temporaryLimits("category/r", "100/744h"))
		limiter.want(ratelimit.Admitted, e)
		limiter.sent(e)
		s.advance(t, time.Second)
		limiter.want(ratelimit.Duplicate, e)
		s.advance(t, 4*time.Second)
		limiter.SetTemporary(ratelimit.Temporary{})
		limiter.want(ratelimit.Admitted, e)
		limiter.sent(e)
		for i := range 20 { // what is admitted later forgets what no window has any more
			s.advance(t, 4*time.Second)
			other := event(fmt.Sprint("other", i), "r")
			limiter.want(ratelimit.Admitted, other)
			limiter.sent(other)
		}
		for key, most := range map[string]int64{"{n}:global": 1, "{n}:category:r": 1, "{n}:sent": 2} { // with the member of dashes
			if n := s.ZCard(t.Context(), key).Val(); n > most {
				t.Errorf("%s has %d entries, expected %d at most:\n%s", key, n, most, s.contents(t))
			}
		}
	})
}

func TestAStaleRecordIsHeldAgainstTheLimitsLikeANewEvent(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "2/30m", ""), day)
		e := event("e", "a")
		limiter.want(ratelimit.Admitted, e)
		s.advance(t, 30*time.Minute)
		limiter.want(ratelimit.Admitted, events(2, "new", "a")...)
		limiter.want(ratelimit.Category, e)
	})
}

// Ids that must be hashed keep apart in the store as they do by themselves.
func TestIDsOfEveryShapeAreToldApart(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("1000/30m", "1000/30m", ""), day)
		long := string(make([]byte, 5000))
		ids := []string{"e", "e 2", "e 3", " e", "e ", "~e", "é", "e\n2", "", long, long + "x", "\x00", "日本語", "%s", "e'2", "-inf"}
		for _, id := range ids {
			limiter.want(ratelimit.Admitted, costing(event(id, "a"), 2))
		}
		for _, id := range ids {
			limiter.want(ratelimit.Duplicate, by("another message", event(id, "a")))
		}
		s.charged(t, int64(2*len(ids)))
	})
}
