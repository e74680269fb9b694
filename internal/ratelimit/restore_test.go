package ratelimit_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/lua"
	"notifier/test/kit"
)

// remembering is a limiter that remembers what it admits, as a replica of this name does.
func (s *store) remembering(t *testing.T, name string, rules ratelimit.Rules, dedupe time.Duration) caller {
	t.Helper()
	c := s.limiter(t, rules, dedupe)
	c.KeepJournal(name)
	return c
}

// withJournal runs a test with a limiter that remembers what it admits.
func withJournal(t *testing.T, test func(t *testing.T, s *store, c caller)) {
	t.Helper()
	eachStore(t, func(t *testing.T, s *store) {
		test(t, s, s.remembering(t, "r", kit.Rules("9/10m", "9/10m", ""), day))
	})
}

// An id that was sent is known for the dedupe window, however short the windows of the limits are.
func TestASentIDIsPutBackLongAfterItsWindow(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		c.want(ratelimit.Admitted, event("e", "a"))
		kit.Check(t, c.Sent(t.Context(), event("e", "a")))
		c.pass(s, 2*time.Hour)
		c.want(ratelimit.Admitted, event("f", "a")) // what is not needed any more is forgotten then
		s.empty(t)
		s.putsBack(t, c)
		c.want(ratelimit.Duplicate, event("e", "a"))
	})
}

// An id without its category is found by the index alone, so the index has to have a sent event whose admission
// its replica has forgotten.
func TestLateSentEventIsFoundAfterALoss(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		c.want(ratelimit.Admitted, event("e", "a"))
		c.pass(s, day+time.Hour)
		c.want(ratelimit.Admitted, event("f", "b")) // which forgets the admission of e
		kit.Check(t, c.Sent(t.Context(), event("e", "a")))
		s.empty(t)
		s.putsBack(t, c)
		if found := c.trace("e"); found.Category != "a" || found.Sent.IsZero() {
			t.Errorf("%+v, expected the sent event of a", found)
		}
	})
}

// forms are limits that are stored in each form.
var forms = map[string]string{"exact": "100/30m", "buckets": "100/30m:1m", "fixed": "100/24h:fixed"}

// pass lets time pass for the store and for what a limiter remembers.
func (c caller) pass(s *store, d time.Duration) {
	c.t.Helper()
	s.advance(c.t, d)
	if s.embedded == nil {
		c.AgeJournal(d.Microseconds())
	}
}

// putsBack puts back what limiters remember, one after the other.
func (s *store) putsBack(t *testing.T, limiters ...caller) {
	t.Helper()
	connection := s.Conn()
	defer func() { _ = connection.Close() }()
	for _, c := range limiters {
		kit.Check(t, c.PutBack(t.Context(), connection))
	}
}

// empty empties the store.
func (s *store) empty(t *testing.T) {
	t.Helper()
	kit.Check(t, s.FlushAll(t.Context()).Err())
}

// used is how many slots are taken in the global scope.
func (s *store) used(t testing.TB, rules ratelimit.Rules) int {
	t.Helper()
	usages, err := s.limiter(t, rules, day).Peek(t.Context())
	kit.Check(t, err)
	return usages[0].Used
}

func (s *store) wantUsed(t testing.TB, rules ratelimit.Rules, want int) {
	t.Helper()
	if got := s.used(t, rules); got != want {
		t.Errorf("%d slots are taken in the global scope, expected %d", got, want)
	}
}

// everything is what a store holds of events, and when.
func (s *store) everything(t testing.TB) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, key := range s.Keys(t.Context(), "{n}:*").Val() {
		switch s.Type(t.Context(), key).Val() {
		case "zset":
			if strings.HasSuffix(key, ":categories") || strings.Contains(key, ":pace:") {
				continue
			}
			for _, entry := range s.ZRangeWithScores(t.Context(), key, 0, -1).Val() {
				if !strings.HasPrefix(fmt.Sprint(entry.Member), "--") { // see sent.lua
					all[fmt.Sprint(key, " ", entry.Member)] = fmt.Sprintf("%.0f", entry.Score)
				}
			}
		case "hash":
			if strings.HasSuffix(key, ":meta") {
				continue
			}
			for field, value := range s.HGetAll(t.Context(), key).Val() {
				all[key+" "+field] = value
			}
		}
	}
	return all
}

// sameAs expects what everything returned before. The times of posts and of what was sent are estimates.
func (s *store) sameAs(t testing.TB, before map[string]string) {
	t.Helper()
	after := s.everything(t)
	for key, value := range before {
		estimated := strings.HasPrefix(key, "{n}:sent ") || strings.HasPrefix(key, "{n}:inflight ")
		if now, found := after[key]; found && estimated && near(value, now) {
			after[key] = value
		}
	}
	if difference := cmp.Diff(before, after); difference != "" {
		t.Errorf("(-before +after):\n%s", difference)
	}
}

// near reports whether two values are alike but for times that differ by less than a few seconds.
func near(a, b string) bool {
	digits := func(r rune) bool { return r < '0' || r > '9' }
	x, y := strings.FieldsFunc(a, digits), strings.FieldsFunc(b, digits)
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		m, _ := strconv.ParseInt(x[i], 10, 64)
		n, _ := strconv.ParseInt(y[i], 10, 64)
		if m != n && (len(x[i]) != 16 || time.Duration(m-n).Abs()*time.Microsecond > 10*time.Second) {
			return false
		}
	}
	return true
}

func TestEmptiedStoreIsAsItWas(t *testing.T) {
	for name, limit := range forms {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				rules := kit.Rules(limit, limit, "big=50/1h:1m")
				rules.Group = mustParse(limit)
				c := s.remembering(t, "r", rules, day)
				if s.embedded != nil { // what the process knows by its own clock is to be near
					s.now = time.Now().Truncate(time.Hour).Add(90 * time.Second)
					s.embedded.SetTime(s.now)
				}
				e := events(8, "e", "x.a")
				c.want(ratelimit.Admitted, e...)
				c.want(ratelimit.Admitted, costing(event("costly", "big"), 20), event("other", "y"))
				c.wantPermit(ratelimit.Granted, 1, e[1], "", "first")
				c.wantPermit(ratelimit.Granted, 1, e[2], "", "one")
				c.wantPermit(ratelimit.Granted, 2, e[2], "one", "two")
				c.sent(e[3])
				c.sent(e[4])
				c.refund(e[5])
				before := s.everything(t)
				s.empty(t)
				s.putsBack(t, c)
				s.sameAs(t, before)
				c.want(ratelimit.Admitted, e[0], e[1])
				c.want(ratelimit.Duplicate, e[3], by("another", e[0]))
				if permit := c.begin(e[2], "one", "three"); permit.Status != ratelimit.Leased && permit.Last != "two" {
					t.Errorf("%+v, expected that the second post is known", permit)
				}
			})
		})
	}
}

// What status lists and why finds is in the index: without it full categories are missing until they are
// admitted again.
func TestTheIndexIsPutBack(t *testing.T) {
	for name, limit := range forms {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				c := s.remembering(t, "r", kit.Rules(limit, limit, ""), day)
				c.want(ratelimit.Admitted, event("e", "a"))
				s.advance(t, time.Second)
				c.want(ratelimit.Admitted, from("/ci", event("e", "b")), event("f", "a"))
				before := s.ZRangeWithScores(t.Context(), "{n}:categories", 0, -1).Val()
				s.empty(t)
				s.putsBack(t, c)
				after := s.ZRangeWithScores(t.Context(), "{n}:categories", 0, -1).Val()
				if difference := cmp.Diff(before, after); difference != "" {
					t.Errorf("the index (-before +after):\n%s", difference)
				}
				categories, _, err := c.Recent(t.Context(), 10)
				slices.Sort(categories)
				if err != nil || !slices.Equal(categories, []string{"a", "b"}) {
					t.Errorf("categories %q, %v; expected a and b", categories, err)
				}
				if found := c.traces("e"); len(found) != 2 {
					t.Errorf("%+v, expected both events with this id", found)
				}
			})
		})
	}
}

func TestPuttingBackTwiceChangesNothing(t *testing.T) {
	for name, limit := range forms {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				rules := kit.Rules(limit, limit, "")
				a, b := s.remembering(t, "a", rules, day), s.remembering(t, "b", rules, day)
				e := events(10, "e", "a")
				a.want(ratelimit.Admitted, e...)
				b.want(ratelimit.Admitted, events(5, "f", "a")...)
				b.want(ratelimit.Admitted, e[9]) // redelivered there
				a.want(ratelimit.Admitted, costing(event("costly", "a"), 7))
				a.sent(e[0])
				a.wantPermit(ratelimit.Granted, 1, e[6], "", "post")
				before := s.everything(t)
				s.putsBack(t, a, b, a, b) // nothing was lost
				s.sameAs(t, before)
				s.empty(t)
				s.putsBack(t, a, b, a, b)
				s.wantUsed(t, rules, 22)
				s.empty(t)
				s.putsBack(t, b, a)
				if got := s.used(t, rules); got != 22 && (name == "exact" || got != 23) {
					t.Errorf("%d slots are taken, expected 22, or 23 in buckets: both have put back the redelivered event", got)
				}
			})
		})
	}
}

// An event that was redelivered to another replica is remembered by both, and put back once where nothing was
// lost.
func TestARedeliveredEventIsPutBackOnce(t *testing.T) {
	for name, limit := range forms {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				rules := kit.Rules(limit, limit, "")
				a, b := s.remembering(t, "a", rules, day), s.remembering(t, "b", rules, day)
				waiting, sent := costing(event("waiting", "x"), 3), costing(event("sent", "x"), 5)
				a.want(ratelimit.Admitted, waiting, sent)
				b.want(ratelimit.Admitted, waiting, sent)
				b.sent(sent)
				s.unlessChanged(t, func() { s.putsBack(t, b, a, b) }) // another primary, and nothing was lost
				s.wantUsed(t, rules, 8)
				s.empty(t)
				s.putsBack(t, a, b)
				s.wantUsed(t, rules, 8)
				s.empty(t)
				s.putsBack(t, b) // the one that was given it first has died
				s.wantUsed(t, rules, 8)
			})
		})
	}
}

// What was written in one form is not put back in the other one beside it.
func TestAChangeOfFormPutsNothingBackTwice(t *testing.T) {
	for before, after := range map[string]string{"100/1h:1m": "90/1h", "100/1h": "90/1h:1m"} {
		t.Run(before+" to "+after, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				rules := kit.Rules(before, before, "")
				a, b := s.remembering(t, "a", rules, day), s.remembering(t, "b", rules, day)
				e := costing(event("e", "x"), 7)
				a.want(ratelimit.Admitted, events(4, "a", "x")...)
				a.want(ratelimit.Admitted, e)
				b.want(ratelimit.Admitted, e)
				for _, c := range []caller{a, b} {
					c.SetTemporary(temporaryLimits("global", after, "category/x", after))
				}
				s.unlessChanged(t, func() { s.putsBack(t, a, b) })
				a.want(ratelimit.Admitted, event("later", "x"))
				s.wantUsed(t, rules, 12)
				s.empty(t)
				s.putsBack(t, a, b)
				s.wantUsed(t, rules, 12)
			})
		})
	}
}

// An event that another replica has sent is settled, also where its id is forgotten by now.
func TestASettledEventIsNotInFlightAgain(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("9/10m", "9/10m", "")
		a, b := s.remembering(t, "a", rules, time.Second), s.remembering(t, "b", rules, time.Second)
		e := event("e", "x")
		a.want(ratelimit.Admitted, e)
		b.want(ratelimit.Admitted, e)
		b.sent(e)
		for _, c := range []caller{a, b} {
			if s.embedded == nil {
				c.AgeJournal((2 * time.Second).Microseconds())
			}
		}
		s.advance(t, 2*time.Second)
		s.Del(t.Context(), "{n}:sent") // it has expired, or will in a moment
		s.putsBack(t, a)
		if records := s.HGetAll(t.Context(), "{n}:inflight").Val(); len(records) != 0 {
			t.Errorf("in flight: %v, expected nothing", records)
		}
		s.wantUsed(t, rules, 1)
	})
}

// A copy has what a replica had admitted up to some moment: it gets what came later.
func TestCopyGetsOnlyWhatItLacks(t *testing.T) {
	for name, limit := range forms {
		t.Run(name, func(t *testing.T) {
			s := onProcess(t) // the embedded store has no DUMP
			rules := kit.Rules(limit, limit, "")
			a, b := s.remembering(t, "a", rules, day), s.remembering(t, "b", rules, day)
			a.want(ratelimit.Admitted, events(5, "a", "x")...)
			b.want(ratelimit.Admitted, events(5, "b", "x")...)
			copied := map[string]string{}
			for _, key := range s.Keys(t.Context(), "*").Val() {
				copied[key] = s.Dump(t.Context(), key).Val()
			}
			a.want(ratelimit.Admitted, events(3, "later", "x")...)
			b.want(ratelimit.Admitted, costing(event("costly", "x"), 30))
			s.empty(t)
			for key, dump := range copied {
				kit.Check(t, s.Restore(t.Context(), key, 0, dump).Err())
			}
			s.putsBack(t, b, a)
			s.wantUsed(t, rules, 43)
		})
	}
}

// Replicas with limits in different forms put back into one scope.
func TestBothFormsArePutBack(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		exact, buckets := kit.Rules("20/30m", "20/30m", ""), kit.Rules("20/30m:1m", "20/30m:1m", "")
		a, b := s.remembering(t, "a", exact, day), s.remembering(t, "b", buckets, day)
		a.want(ratelimit.Admitted, events(6, "a", "x")...)
		b.want(ratelimit.Admitted, events(6, "b", "x")...)
		s.empty(t)
		s.putsBack(t, b, a)
		for _, rules := range []ratelimit.Rules{exact, buckets} {
			s.wantUsed(t, rules, 12)
		}
	})
}

// An event that was in flight for longer than it is known is charged anew when it comes again, and so it
// is put back.
func TestWhatIsAdmittedAnewIsPutBack(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		e := event("e", "a")
		c.want(ratelimit.Admitted, e)
		c.pass(s, 11*time.Minute)
		c.want(ratelimit.Admitted, e)
		s.empty(t)
		s.putsBack(t, c)
		if n := s.ZCard(t.Context(), "{n}:global").Val(); n != 1 {
			t.Errorf("%d slots, expected 1", n)
		}
	})
}

// The same where another replica is given it then: what the first one knew of it is over.
func TestWhatIsAdmittedAnewElsewhereIsRememberedAnew(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("9/10m", "9/10m", "")
		a, b := s.remembering(t, "a", rules, day), s.remembering(t, "b", rules, day)
		e := event("e", "x")
		a.want(ratelimit.Admitted, e)
		a.pass(s, 11*time.Minute)
		b.want(ratelimit.Admitted, e)
		a.want(ratelimit.Admitted, e)
		a.wantPermit(ratelimit.Granted, 1, e, "", "p1")
		s.empty(t)
		s.putsBack(t, a) // the other one has died
		s.wantUsed(t, rules, 1)
		a.wantPermit(ratelimit.Granted, 2, e, "p1", "p2")
	})
}

// An id that was sent again after its dedupe window has two slots: two posts.
func TestBothSlotsOfAnIDArePutBack(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("9/10m", "9/10m", "")
		c := s.remembering(t, "r", rules, time.Second)
		e := event("e", "a")
		c.want(ratelimit.Admitted, e)
		c.sent(e)
		c.pass(s, 2*time.Second)
		c.want(ratelimit.Admitted, by("another", e))
		s.empty(t)
		s.putsBack(t, c)
		s.wantUsed(t, rules, 2)
	})
}

func TestWhatIsRefundedTwiceIsNotPutBack(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		e := event("e", "a")
		c.want(ratelimit.Admitted, e)
		c.refund(e)
		c.refund(e)
		s.empty(t)
		s.putsBack(t, c)
		if n := s.ZCard(t.Context(), "{n}:global").Val(); n != 0 {
			t.Errorf("%d slots, expected 0", n)
		}
	})
}

// A refund without an answer may have been made: what it gave back is not put back, until the event is
// posted after all.
func TestWhatMayHaveBeenRefundedIsNotPutBack(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		e, posted := event("e", "a"), event("posted", "a")
		c.want(ratelimit.Admitted, e, posted)
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		for _, refunded := range []ratelimit.Request{e, posted} {
			if _, err := c.Refund(cancelled, refunded, ""); err == nil {
				t.Fatal("a refund without an answer reports no error")
			}
		}
		c.wantPermit(ratelimit.Granted, 1, posted, "", "first")
		s.empty(t)
		s.putsBack(t, c)
		slots := s.ZRange(t.Context(), "{n}:global", 0, -1).Val()
		if len(slots) != 1 || !strings.HasPrefix(slots[0], slot(posted)+" ") {
			t.Errorf("slots %q, expected that of the posted event alone", slots)
		}
		c.want(ratelimit.Admitted, e) // it was not refunded, so it goes on and is charged
		s.empty(t)
		s.putsBack(t, c)
		if n := s.ZCard(t.Context(), "{n}:global").Val(); n != 2 {
			t.Errorf("%d slots after the event was asked for again, expected 2", n)
		}
	})
}

// An event in flight is known for the longest window of any limit, and put back for as long.
func TestEventInFlightIsPutBackBeyondTheGlobalWindow(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		c := s.remembering(t, "r", kit.Rules("9/1s", "9/10m:1m", ""), day)
		e := event("e", "a")
		c.want(ratelimit.Admitted, e)
		c.pass(s, 10*time.Second)
		s.empty(t)
		s.putsBack(t, c)
		if _, found, err := c.InFlight(t.Context(), e); err != nil || !found {
			t.Errorf("the event is not in flight any more (%v): it would be charged and sent again", err)
		}
	})
}

// A post that began after a copy of the store was made is put back into that copy, also where the admission
// alone is too old by then to be known.
func TestAPostIsPutBackIntoARecordThatIsTooOldWithoutIt(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		e := event("e", "a")
		c.want(ratelimit.Admitted, e)
		c.pass(s, 9*time.Minute)
		c.wantPermit(ratelimit.Granted, 1, e, "", "p1")
		state, delivery, _ := strings.Cut(s.HGet(t.Context(), "{n}:inflight", slot(e)).Val(), " ")
		fields := strings.Split(state, ":") // since, posts, begun, name
		if len(fields) != 4 {
			t.Fatalf("the record of a post is %q", state)
		}
		begun, err := strconv.ParseInt(fields[2], 10, 64)
		kit.Check(t, err)
		c.JournalTimes(e, begun, 0)
		kit.Check(t, s.HSet(t.Context(), "{n}:inflight", slot(e), fields[0]+":0:0: "+delivery).Err())
		c.pass(s, 2*time.Minute)
		s.putsBack(t, c)
		if refunded, err := c.Refund(t.Context(), e, ""); refunded || err != nil {
			t.Errorf("refunded: %t, %v, although a post has begun whose result nobody knows", refunded, err)
		}
		c.wantPermit(ratelimit.Granted, 2, e, "p1", "p2")
	})
}

// A post is put back into a copy from before it, also where it seems to have begun before its admission: the
// replica's clock may be behind the store's.
func TestAPostByASlowClockIsPutBack(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		e := event("e", "a")
		c.want(ratelimit.Admitted, e)
		before := s.HGet(t.Context(), "{n}:inflight", slot(e)).Val()
		c.wantPermit(ratelimit.Granted, 1, e, "", "p1")
		c.JournalTimes(e, s.Time(t.Context()).Val().Add(-time.Minute).UnixMicro(), 0)
		kit.Check(t, s.HSet(t.Context(), "{n}:inflight", slot(e), before).Err())
		s.putsBack(t, c)
		if refunded, err := c.Refund(t.Context(), e, ""); refunded || err != nil {
			t.Errorf("refunded: %t, %v, although a post has begun whose result nobody knows", refunded, err)
		}
		c.wantPermit(ratelimit.Granted, 2, e, "p1", "p2")
	})
}

// Another replica posted the event and recorded it before the one that was given it puts back.
func TestSentBeforeThePutBackIsNotUndone(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("9/10m", "9/10m", "")
		a, b := s.remembering(t, "a", rules, day), s.remembering(t, "b", rules, day)
		e := event("e", "x")
		a.want(ratelimit.Admitted, e)
		a.wantPermit(ratelimit.Granted, 1, e, "", "p1")
		s.empty(t)
		b.sent(e)
		s.putsBack(t, a)
		if _, found, err := a.InFlight(t.Context(), e); found || err != nil {
			t.Errorf("in flight: %t, %v, expected that it is settled", found, err)
		}
		a.want(ratelimit.Duplicate, e)
		s.wantUsed(t, rules, 1) // it keeps its slot
	})
}

// The same, with the record put back first.
func TestSentSettlesWhatWasPutBackInFlight(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("9/10m", "9/10m", "")
		a, b := s.remembering(t, "a", rules, day), s.remembering(t, "b", rules, day)
		e := event("e", "x")
		a.want(ratelimit.Admitted, e)
		b.want(ratelimit.Admitted, e)
		b.sent(e)
		b.JournalTimes(e, 0, s.Time(t.Context()).Val().UnixMicro())
		s.empty(t)
		s.putsBack(t, a, b)
		if _, found, err := a.InFlight(t.Context(), e); found || err != nil {
			t.Errorf("in flight: %t, %v, expected that it is settled", found, err)
		}
		a.want(ratelimit.Duplicate, e)
	})
}

// An id that a copy of the store had as sent earlier is known for as long as one that it did not have.
func TestAnIDThatWasSentAgainIsKnownAsLong(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		ctx, e := t.Context(), event("e", "a")
		c.sent(e)
		sent, ends := s.score(t, "{n}:sent", slot(e)), s.PExpireTime(ctx, "{n}:sent").Val()
		c.JournalTimes(e, 0, sent)
		const earlier = time.Hour
		was := redis.Z{Score: float64(sent - earlier.Microseconds()), Member: slot(e)}
		kit.Check(t, s.ZAdd(ctx, "{n}:sent", was).Err())
		kit.Check(t, s.PExpireAt(ctx, "{n}:sent", time.UnixMilli((ends-earlier).Milliseconds())).Err())
		s.putsBack(t, c)
		if got := s.PExpireTime(ctx, "{n}:sent").Val(); got < ends {
			t.Errorf("ids are forgotten %s early", ends-got)
		}
		if got := s.score(t, "{n}:sent", slot(e)); got != sent {
			t.Errorf("sent at %d, expected %d", got, sent)
		}
	})
}

// quarantine looks at the store as a healer of a primary of this generation does.
func (s *store) quarantine(t *testing.T, generation string) (token string, wait time.Duration) {
	t.Helper()
	script := redis.NewScript(lua.Quarantine)
	keys := []string{"{n}:meta"}
	reply, err := script.Run(t.Context(), s.Client, keys, generation, 1_500_000, 30_000_000).Slice()
	kit.Check(t, err)
	return reply[0].(string), time.Duration(reply[1].(int64)) * time.Microsecond
}

// waits compares when the store opens: a redis-server's clock goes on meanwhile.
func (s *store) waits(t *testing.T, wait, want time.Duration) {
	t.Helper()
	tolerated := 400 * time.Millisecond
	if s.embedded != nil {
		tolerated = 0
	}
	if wait > want || wait < want-tolerated {
		t.Errorf("the store opens in %s, expected %s", wait, want)
	}
}

func TestStoreWithoutATokenIsClosedForItsQuarantine(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		c := s.limiter(t, kit.Rules("9/10m", "9/10m", ""), day)
		token, wait := s.quarantine(t, "g1")
		s.waits(t, wait, 1500*time.Millisecond)
		c.UseToken(token)
		before := s.contents(t)
		if decisions, err := c.Admit(t.Context(), events(1, "e", "a")); err != ratelimit.ErrHealing {
			t.Errorf("%v, %v; expected that nothing is decided", decisions, err)
		}
		s.unchanged(t, before)
		s.advance(t, 500*time.Millisecond)
		again, wait := s.quarantine(t, "g1")
		s.waits(t, wait, time.Second)
		s.advance(t, time.Second)
		c.want(ratelimit.Admitted, event("e", "a"))
		open, wait := s.quarantine(t, "g1")
		if again != token || open != token || wait != 0 {
			t.Errorf("tokens %q, %q, %q, open in %s; expected one, and that it is open", token, again, open, wait)
		}
		if another, wait := s.quarantine(t, "g2"); another == token || wait == 0 {
			t.Errorf("token %q, open in %s; expected another one in the quarantine of another primary", another, wait)
		}
		if decisions, err := c.Admit(t.Context(), events(1, "f", "a")); err != ratelimit.ErrHealing {
			t.Errorf("%v, %v; expected that the old token decides nothing", decisions, err)
		}
	})
}

// A store that gets a new token forgets replicas that no window can have anything of: their names differ from
// start to start.
func TestANewTokenForgetsReplicasThatAreLongGone(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		ctx, now := t.Context(), s.Time(t.Context()).Val()
		gone, there := now.Add(-32*day-time.Second), now.Add(-32*day+time.Minute)
		kit.Check(t, s.HSet(ctx, "{n}:meta", "seen gone", gone.UnixMicro(), "seen there", there.UnixMicro()).Err())
		s.quarantine(t, "g1")
		if s.HExists(ctx, "{n}:meta", "seen gone").Val() || !s.HExists(ctx, "{n}:meta", "seen there").Val() {
			t.Errorf("%v, expected the mark of the replica that may have something in a window, and no other",
				s.HGetAll(ctx, "{n}:meta").Val())
		}
	})
}

func TestOpeningFarInTheFutureIsReset(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		token, _ := s.quarantine(t, "g1")
		opens := s.Time(t.Context()).Val().Add(time.Hour).UnixMicro()
		kit.Check(t, s.HSet(t.Context(), "{n}:meta", "opens", opens).Err())
		again, wait := s.quarantine(t, "g1")
		s.waits(t, wait, 1500*time.Millisecond)
		if again != token {
			t.Errorf("token %q, expected %q as before", again, token)
		}
	})
}

// Each call that puts something back moves the opening on, for 30 seconds at most.
func TestPuttingBackMovesTheOpeningOn(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		c := s.remembering(t, "r", kit.Rules("9/10m", "9/10m", ""), day)
		c.want(ratelimit.Admitted, event("e", "a"))
		s.empty(t)
		s.quarantine(t, "primary") // the name that PutBack gives
		s.putsBack(t, c)
		_, wait := s.quarantine(t, "primary")
		s.waits(t, wait, 1500*time.Millisecond) // never earlier
		c.pass(s, 1400*time.Millisecond)
		s.putsBack(t, c)
		_, wait = s.quarantine(t, "primary")
		s.waits(t, wait, 500*time.Millisecond)
	})
}
