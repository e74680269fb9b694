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

// remembering returns a limiter that keeps a journal, as the worker of this name.
func (s *store) remembering(t *testing.T, name string, rules ratelimit.Rules, dedupe time.Duration) caller {
	t.Helper()
	c := s.limiter(t, rules, dedupe)
	c.KeepJournal(name)
	return c
}

// withJournal runs a test on each store, with a limiter that keeps a journal.
func withJournal(t *testing.T, test func(t *testing.T, s *store, c caller)) {
	t.Helper()
	eachStore(t, func(t *testing.T, s *store) {
		test(t, s, s.remembering(t, "r", kit.Rules("9/10m", "9/10m", ""), day))
	})
}

// Sent ids are restored for the whole dedupe window, even if all limits have shorter windows.
func TestASentIDIsRestoredLongAfterItsWindow(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		c.want(ratelimit.Admitted, event("e", "a"))
		kit.Check(t, c.Sent(t.Context(), event("e", "a")))
		c.pass(s, 2*time.Hour)
		c.want(ratelimit.Admitted, event("f", "a")) // trims the journal
		s.empty(t)
		s.putsBack(t, c)
		c.want(ratelimit.Duplicate, event("e", "a"))
	})
}

// Only the index leads from an id to its category. A sent event is therefore restored to the index even
// if the journal has already dropped its admission.
func TestLateSentEventIsFoundAfterALoss(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		c.want(ratelimit.Admitted, event("e", "a"))
		c.pass(s, day+time.Hour)
		c.want(ratelimit.Admitted, event("f", "b")) // drops the admission of e from the journal
		kit.Check(t, c.Sent(t.Context(), event("e", "a")))
		s.empty(t)
		s.putsBack(t, c)
		if found := c.trace("e"); found.Category != "a" || found.Sent.IsZero() {
			t.Errorf("%+v, expected the sent event of a", found)
		}
	})
}

// forms has a limit for each form of storage.
var forms = map[string]string{"exact": "100/30m", "buckets": "100/30m:1m", "fixed": "100/24h:fixed"}

// pass advances the store by d. On a redis-server, where store.advance ages the entries instead of
// setting the clock, it ages the journal as well.
func (c caller) pass(s *store, d time.Duration) {
	c.t.Helper()
	s.advance(c.t, d)
	if s.embedded == nil {
		c.AgeJournal(d.Microseconds())
	}
}

// putsBack restores the journals of the limiters, one after the other.
func (s *store) putsBack(t *testing.T, limiters ...caller) {
	t.Helper()
	connection := s.Conn()
	defer func() { _ = connection.Close() }()
	for _, c := range limiters {
		kit.Check(t, c.Restore(t.Context(), connection))
	}
}

func (s *store) empty(t *testing.T) {
	t.Helper()
	kit.Check(t, s.FlushAll(t.Context()).Err())
}

// used counts the slots taken in the global scope.
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

// everything returns the store's data about events: scores by key and member, values by key and field.
// It leaves out meta, the index and the pace.
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

// sameAs compares the store with an earlier result of everything. The journal only estimates when posts
// began and events were sent, so these times may differ slightly.
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

// near reports whether two values are equal, except for times up to 10 s apart.
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
				if s.embedded != nil { // near the host's clock, which the journal uses
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

// The commands status and why read the index. Without it, full categories would be missing until their
// next admission.
func TestTheIndexIsRestored(t *testing.T) {
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
				b.want(ratelimit.Admitted, e[9]) // redelivered to b
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
					t.Errorf("%d slots are taken, expected 22, or 23 in buckets: both workers have restored the redelivered event", got)
				}
			})
		})
	}
}

// A redelivered event is in two journals. Restoring both charges it once: always if nothing was lost,
// otherwise if the worker that admitted it first also restores first.
func TestARedeliveredEventIsRestoredOnce(t *testing.T) {
	for name, limit := range forms {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				rules := kit.Rules(limit, limit, "")
				a, b := s.remembering(t, "a", rules, day), s.remembering(t, "b", rules, day)
				waiting, sent := costing(event("waiting", "x"), 3), costing(event("sent", "x"), 5)
				a.want(ratelimit.Admitted, waiting, sent)
				b.want(ratelimit.Admitted, waiting, sent)
				b.sent(sent)
				s.unlessChanged(t, func() { s.putsBack(t, b, a, b) }) // a new primary that lost nothing
				s.wantUsed(t, rules, 8)
				s.empty(t)
				s.putsBack(t, a, b)
				s.wantUsed(t, rules, 8)
				s.empty(t)
				s.putsBack(t, b) // the worker that admitted them first has died
				s.wantUsed(t, rules, 8)
			})
		})
	}
}

// Slots that the store still has in one form are not added again in the other form.
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

// A log would need a member for each slot, so an event above MaxExactCost is restored into buckets even
// if the limit writes logs by now.
func TestCostlyEventIsRestoredInBuckets(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("5000/1h:1m", "5000/1h:1m", "")
		c := s.remembering(t, "r", rules, day)
		e := costing(event("e", "a"), ratelimit.MaxExactCost+1)
		c.admits(e)
		c.posts(1, e, "", "p1")
		s.putsBack(t, c)
		s.wantUsed(t, rules, e.Cost) // slots in buckets do not move
		c.SetTemporary(temporaryLimits("global", "5000/1h", "category/a", "5000/1h"))
		s.empty(t)
		s.putsBack(t, c)
		s.wantUsed(t, rules, ratelimit.MaxExactCost+1)
		inGlobal(t, s, 0)
	})
}

// An event that another worker sent stays settled, even after its dedupe window has ended.
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
		s.Del(t.Context(), "{n}:sent") // expired, or about to expire
		s.putsBack(t, a)
		if records := s.HGetAll(t.Context(), "{n}:inflight").Val(); len(records) != 0 {
			t.Errorf("in flight: %v, expected nothing", records)
		}
		s.wantUsed(t, rules, 1)
	})
}

// An id that is admitted again after its dedupe window takes a second slot. Both are restored.
func TestBothSlotsOfAnIDAreRestored(t *testing.T) {
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

// An event that was decided again has two entries in the journal. After its refund neither is restored.
func TestRefundAfterASecondDecisionIsRestored(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		e := event("e", "a")
		c.admits(e)
		c.posts(1, e, "", "p1")
		c.failed(e, "p1")
		c.pass(s, 11*time.Minute)
		c.admits(e)
		if !c.refundAfter(e, "p1") {
			t.Error("nothing is refunded")
		}
		before := s.everything(t)
		s.empty(t)
		s.putsBack(t, c)
		s.sameAs(t, before)
	})
}

// An event that was posted and is refused in its second decision keeps its record. If it may be in
// Slack, it also keeps its slots.
func TestRefusalOfASecondDecisionIsPutBack(t *testing.T) {
	e := event("e", "a")
	for name, test := range map[string]struct {
		posts   func(c caller)
		entries int // in the store: three of another event, the rest of this one
	}{
		"not posted":      {func(caller) {}, 3},
		"failed":          {func(c caller) { c.posts(1, e, "", "p1"); c.failed(e, "p1") }, 4},
		"may be in Slack": {func(c caller) { c.posts(1, e, "", "p1") }, 6},
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				c := s.remembering(t, "r", kit.Rules("1/10m+9/2h", "1/10m+9/2h", ""), day)
				c.admits(e)
				test.posts(c)
				c.pass(s, 11*time.Minute)
				c.admits(event("other", "a"))
				c.want(ratelimit.Category, e)
				before := s.everything(t)
				if len(before) != test.entries {
					t.Errorf("%d entries, expected %d: %v", len(before), test.entries, before)
				}
				s.empty(t)
				s.putsBack(t, c)
				s.sameAs(t, before)
			})
		})
	}
}

// A duplicate takes no slots away from the event in flight.
func TestDuplicateReleasesNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("9/10m", "9/10m", "")
		c := s.remembering(t, "r", rules, day)
		c.admits(event("e", "a"))
		c.duplicates(by("another message", event("e", "a")))
		s.empty(t)
		s.putsBack(t, c)
		s.wantUsed(t, rules, 1)
	})
}

// A redelivery tells a worker that another one has decided its event again.
func TestAnotherWorkersSecondDecisionIsRestored(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("9/10m", "9/10m", "")
		a, b := s.remembering(t, "a", rules, day), s.remembering(t, "b", rules, day)
		e := event("e", "x")
		a.admits(e)
		a.pass(s, 11*time.Minute)
		b.admits(e)
		a.admits(e)
		s.empty(t)
		s.putsBack(t, a)
		s.wantUsed(t, rules, 1)
	})
}

// A restored record names the last post, because the message may be in Slack, unless Slack's response
// proves that the post failed.
func TestPostWithAnUncertainAnswerIsPutBack(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		e := event("e", "a")
		c.admits(e)
		c.posts(1, e, "", "p1")
		c.answer(ratelimit.Answer{Request: e, Name: "p1"}, ratelimit.NoPause)
		s.empty(t)
		s.putsBack(t, c)
		c.wantUnknown(e, "", "p2")
	})
}

// A refund without a reply may have reached Redis, so its event is restored only if it is posted after
// all.
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
		c.want(ratelimit.Admitted, e) // no longer in flight, so it is charged again
		s.empty(t)
		s.putsBack(t, c)
		if n := s.ZCard(t.Context(), "{n}:global").Val(); n != 2 {
			t.Errorf("%d slots after the event was asked for again, expected 2", n)
		}
	})
}

// A post is restored over an older record even if it seems to have begun before its admission: the
// worker's clock may be behind the store's.
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

// Another worker records the event as sent before the worker that admitted it restores its journal.
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

// One worker restores the event as in flight, then another one restores it as sent.
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

// quarantine runs quarantine.lua with generation as the replication id of the primary.
func (s *store) quarantine(t *testing.T, generation string) (token string, wait time.Duration) {
	t.Helper()
	script := redis.NewScript(lua.Quarantine)
	keys := []string{"{n}:meta"}
	reply, err := script.Run(t.Context(), s.Client, keys, generation, 1_500_000, 30_000_000).Slice()
	kit.Check(t, err)
	return reply[0].(string), time.Duration(reply[1].(int64)) * time.Microsecond
}

// waits checks how long the store stays closed. On a redis-server it may be up to 400 ms less, because
// time passes between the calls.
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

// Workers look at the store twice a second, so a look must not cost replication and an append-only file.
func TestLookAtAnIdleStoreWritesNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		s.quarantine(t, "g1")
		first := s.PExpireTime(t.Context(), "{n}:meta").Val()
		s.advance(t, 10*time.Millisecond)
		s.quarantine(t, "g1")
		moved := s.PExpireTime(t.Context(), "{n}:meta").Val() - first
		if moved != 0 && moved != day { // a day at midnight
			t.Errorf("the second look moved the expiry by %s", moved)
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

// Each restoring call postpones the opening, to at most 30 s after the token was made.
func TestPuttingBackMovesTheOpeningOn(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		c := s.remembering(t, "r", kit.Rules("9/10m", "9/10m", ""), day)
		c.want(ratelimit.Admitted, event("e", "a"))
		s.empty(t)
		s.quarantine(t, "primary") // as in Restore
		s.putsBack(t, c)
		_, wait := s.quarantine(t, "primary")
		s.waits(t, wait, 1500*time.Millisecond) // never earlier
		c.pass(s, 1400*time.Millisecond)
		s.putsBack(t, c)
		_, wait = s.quarantine(t, "primary")
		s.waits(t, wait, 500*time.Millisecond)
	})
}

// Posts are restored with the second admission of an event. Without a second one they are restored with
// the first, although that has left every window.
func TestPostsArePutBackAfterASecondDecision(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("9/10m", "9/10m", "")
		a, b := s.remembering(t, "a", rules, day), s.remembering(t, "b", rules, day)
		again, once, failed := event("again", "x"), event("once", "x"), event("failed", "x")
		a.admits(again, once, failed)
		a.posts(1, again, "", "p1")
		a.posts(1, once, "", "p2")
		a.posts(1, failed, "", "p3")
		a.failed(failed, "p3")
		advance := func(d time.Duration) {
			s.advance(t, d)
			if s.embedded == nil {
				a.AgeJournal(d.Microseconds())
				b.AgeJournal(d.Microseconds())
			}
		}
		advance(time.Hour)
		b.admits(again, failed)
		before := s.HGetAll(t.Context(), "{n}:inflight").Val()
		delete(before, slot(once)) // only a remembers it
		s.empty(t)
		s.putsBack(t, b)
		if difference := cmp.Diff(before, s.HGetAll(t.Context(), "{n}:inflight").Val()); difference != "" {
			t.Errorf("in flight (-before +restored):\n%s", difference)
		}
		b.wantPermit(ratelimit.LastPostUnknown, 1, again, "", "q1")
		b.posts(2, failed, "", "q2")
		s.empty(t)
		s.putsBack(t, a)
		s.putsBack(t, b)
		b.wantPermit(ratelimit.LastPostUnknown, 1, again, "", "q1")
		if n := s.count(t, "{n}:global"); n != 2 {
			t.Errorf("%d slots are restored, expected those of the second admissions", n)
		}
		b.admits(once)
		b.wantPermit(ratelimit.LastPostUnknown, 1, once, "", "q3")
		s.empty(t)
		s.putsBack(t, a)
		if left := s.PTTL(t.Context(), "{n}:inflight").Val(); left < 22*time.Hour {
			t.Errorf("the restored posts expire in %s, expected a day", left)
		}
	})
}

func TestWhatIsPutBackExpires(t *testing.T) {
	for name, limit := range map[string]string{"exact": "9/10m", "buckets": "9/10m:1m"} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				c := s.remembering(t, "r", kit.Rules(limit, limit, ""), time.Hour)
				c.want(ratelimit.Admitted, events(3, "e", "a")...)
				c.sent(event("e-1", "a"))
				s.empty(t)
				s.putsBack(t, c)
				keys := s.Keys(t.Context(), "*").Val()
				if len(keys) != 6 { // meta, in flight, sent, the index, and both scopes
					t.Errorf("keys %q, expected 6", keys)
				}
				for _, key := range keys {
					least := 9 * time.Minute
					if key == "{n}:categories" {
						least += time.Hour // the dedupe window
					}
					if left := s.PTTL(t.Context(), key).Val(); left < least {
						t.Errorf("%s expires in %s, expected %s at least, and an end", key, left, least)
					}
				}
			})
		})
	}
}

// An index of another type is left untouched and does not prevent the rest from being restored.
func TestAnIndexOfAnotherTypeIsLeftAsItIs(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		c.want(ratelimit.Admitted, event("e", "a"))
		s.empty(t)
		kit.Check(t, s.Set(t.Context(), "{n}:categories", "foreign", 0).Err())
		s.putsBack(t, c)
		if n := s.ZCard(t.Context(), "{n}:global").Val(); n != 1 {
			t.Errorf("%d slots, expected 1", n)
		}
		if got, ends := s.Get(t.Context(), "{n}:categories").Val(), s.TTL(t.Context(), "{n}:categories").Val(); got != "foreign" || ends != -1 {
			t.Errorf("the foreign key holds %q and expires in %s, expected that it is as it was", got, ends)
		}
	})
}

// All admissions of a batch have the same time, so one call restores them, even if they are many.
func TestALargeBatchIsPutBackWhole(t *testing.T) {
	for name, limit := range map[string]string{"exact": "1000/30m", "buckets": "1000/30m:1m"} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				rules := kit.Rules(limit, limit, "")
				c := s.remembering(t, "r", rules, day)
				_, err := c.Admit(t.Context(), events(700, "e", "a"))
				kit.Check(t, err)
				s.empty(t)
				s.putsBack(t, c)
				s.wantUsed(t, rules, 700)
			})
		})
	}
}

// A post restarts the retention of its event in the journal.
func TestAPostIsRememberedLongerThanItsAdmission(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		c := s.remembering(t, "r", kit.Rules("9/10m", "9/10m", ""), time.Second)
		e := event("e", "a")
		c.want(ratelimit.Admitted, e)
		c.pass(s, 9*time.Minute)
		c.wantPermit(ratelimit.Granted, 1, e, "", "p1")
		c.JournalTimes(e, s.Time(t.Context()).Val().UnixMicro(), 0)
		c.pass(s, 2*time.Minute)
		c.want(ratelimit.Admitted, event("another", "a")) // trims the journal
		s.empty(t)
		s.putsBack(t, c)
		c.wantPermit(ratelimit.Granted, 2, e, "p1", "p2")
	})
}

// The longest window in force sets the journal's retention, even if it is a temporary limit's.
func TestATemporaryLimitsWindowIsRemembered(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		c := s.remembering(t, "r", kit.Rules("9/10m", "9/10m", ""), time.Second)
		c.SetTemporary(temporaryLimits("global", "2/2h"))
		c.want(ratelimit.Admitted, event("e", "a"))
		c.pass(s, time.Hour)
		c.want(ratelimit.Admitted, event("another", "a")) // trims the journal
		s.empty(t)
		s.putsBack(t, c)
		c.want(ratelimit.Global, event("a third", "a"))
	})
}

// One call restores several buckets next to one that the store still has.
func TestEachBucketIsPutBackInItsPlace(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("9/10m:1m", "9/10m:1m", "")
		c := s.remembering(t, "r", rules, day)
		c.want(ratelimit.Admitted, events(2, "e", "a")...)
		mark := s.HGet(t.Context(), "{n}:meta", "seen r").Val()
		for i := range 2 {
			c.pass(s, 2*time.Minute)
			c.want(ratelimit.Admitted, event(fmt.Sprint("later ", i), "a"))
		}
		before := s.ZRange(t.Context(), "{n}:buckets:global", 0, -1).Val()
		if s.embedded == nil {
			mark = "0" // aging has moved admissions to before the mark
			s.Del(t.Context(), "{n}:buckets:global")
		} else {
			s.ZRem(t.Context(), "{n}:buckets:global", before[1], before[2])
		}
		kit.Check(t, s.HSet(t.Context(), "{n}:meta", "seen r", mark).Err())
		s.putsBack(t, c)
		after := s.ZRange(t.Context(), "{n}:buckets:global", 0, -1).Val()
		if s.embedded == nil && len(after) != 3 || s.embedded != nil && !slices.Equal(after, before) {
			t.Errorf("buckets %q, expected as before: %q", after, before)
		}
		s.wantUsed(t, rules, 4)
	})
}

// After the server's clock is corrected by days, marks and admissions from the future have no effect.
func TestTimesFarAheadAreNotPutBack(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("9/10m:1m", "9/10m:1m", "")
		c := s.remembering(t, "r", rules, day)
		c.want(ratelimit.Admitted, event("ahead", "a"), event("sent ahead", "a"))
		c.sent(event("sent ahead", "a"))
		s.empty(t)
		c.pass(s, -3*day) // the journal is three days ahead
		c.want(ratelimit.Admitted, event("e", "a"))
		clock, _ := s.clock(t)
		s.empty(t)
		ahead := clock + 3*day.Microseconds()
		kit.Check(t, s.HSet(t.Context(), "{n}:meta", "clock", ahead, "seen r", ahead).Err())
		s.putsBack(t, c)
		s.wantUsed(t, rules, 1) // e alone
		if latest := s.latestAdmission(t); latest > clock+time.Minute.Microseconds() {
			t.Errorf("the latest admission is %d, expected about %d", latest, clock)
		}
		if sent := s.ZCard(t.Context(), "{n}:sent").Val(); sent != 0 {
			t.Errorf("%d ids were sent, expected none", sent)
		}
		if active := s.score(t, "{n}:categories", "a"); active > clock+time.Minute.Microseconds() {
			t.Errorf("the category was active at %d, expected about %d", active, clock)
		}
	})
}

// Entries of the store that are later than the journal's stay: a mark, a sent time, the time of a
// category, the record of a later post or of a later admission.
func TestPuttingBackReplacesNothingLater(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		c := s.remembering(t, "r", kit.Rules("9/10m", "9/10m", ""), day)
		posted, sent, again := event("posted", "a"), event("sent", "a"), event("again", "a")
		unsettled := event("unsettled", "a")
		c.want(ratelimit.Admitted, posted, sent, again, unsettled)
		c.wantPermit(ratelimit.Granted, 1, posted, "", "first")
		c.wantPermit(ratelimit.Granted, 1, unsettled, "", "other")
		c.sent(sent)
		c.sent(again)
		later := s.Time(t.Context()).Val().Add(time.Minute).UnixMicro()
		s.ZAdd(t.Context(), "{n}:sent", zAt(later, slot(sent)))
		s.HSet(t.Context(), "{n}:meta", "seen r", later)
		s.ZAdd(t.Context(), "{n}:categories", zAt(later, "a"))
		since, _, _ := strings.Cut(s.HGet(t.Context(), "{n}:inflight", slot(posted)).Val(), ":")
		record := fmt.Sprintf("%s:2:%d:second elsewhere", since, later)
		anew := fmt.Sprintf("%d:0:0: elsewhere", later)
		s.HSet(t.Context(), "{n}:inflight", slot(posted), record, slot(again), anew,
			slot(unsettled), anew)

		s.putsBack(t, c)
		if got := s.score(t, "{n}:sent", slot(sent)); got != later {
			t.Errorf("sent at %d, expected %d", got, later)
		}
		if got := s.score(t, "{n}:categories", "a"); got != later {
			t.Errorf("the last admission of the category was at %d, expected %d", got, later)
		}
		want := map[string]string{slot(posted): record, slot(again): anew, slot(unsettled): anew}
		if difference := cmp.Diff(want, s.HGetAll(t.Context(), "{n}:inflight").Val()); difference != "" {
			t.Errorf("in flight (-want +got):\n%s", difference)
		}
		if got := s.HGet(t.Context(), "{n}:meta", "seen r").Val(); got != fmt.Sprint(later) {
			t.Errorf("the mark is %s, expected %d", got, later)
		}
	})
}

// A record that the store still has is not rewritten, which would also postpone its expiry.
func TestPresentRecordIsNotPutBack(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		c.admits(event("e", "a"))
		kit.Check(t, s.PExpire(t.Context(), "{n}:inflight", time.Minute).Err())
		s.putsBack(t, c)
		if left := s.PTTL(t.Context(), "{n}:inflight").Val(); left > time.Minute {
			t.Errorf("the record expires in %s, expected a minute", left)
		}
	})
}

func TestWhatNoWindowHasIsNotInFlightAgain(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		c.want(ratelimit.Admitted, event("e", "a"))
		c.pass(s, 11*time.Minute)
		s.empty(t)
		s.putsBack(t, c)
		if record := s.HGetAll(t.Context(), "{n}:inflight").Val(); len(record) != 0 {
			t.Errorf("in flight: %v, expected nothing", record)
		}
	})
}

// A sent event is not restored as in flight, even after its dedupe window has ended.
func TestWhatWasSentIsNotInFlightAgain(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		c := s.remembering(t, "r", kit.Rules("9/10m", "9/10m", ""), time.Second)
		c.want(ratelimit.Admitted, event("e", "a"))
		c.sent(event("e", "a"))
		c.pass(s, time.Minute)
		s.empty(t)
		s.putsBack(t, c)
		if records := s.HGetAll(t.Context(), "{n}:inflight").Val(); len(records) != 0 {
			t.Errorf("in flight: %v, expected nothing", records)
		}
		if n := s.ZCard(t.Context(), "{n}:sent").Val(); n != 0 {
			t.Errorf("%d ids were sent, expected none: its id is forgotten", n)
		}
		if n := s.ZCard(t.Context(), "{n}:global").Val(); n != 1 {
			t.Errorf("%d slots, expected 1", n)
		}
	})
}

// restore runs restore.lua without admissions.
func (s *store) restore(t *testing.T, token string) []any {
	t.Helper()
	keys := []string{"{n}:meta", "{n}:inflight", "{n}:sent", "{n}:categories"}
	reply, err := redis.NewScript(lua.Restore).Run(t.Context(), s.Client, keys,
		token, "r", day.Microseconds(), day.Microseconds(), 500_000, 30_000_000, 0, 0).Slice()
	kit.Check(t, err)
	return reply
}

func TestOnlyTheKnownStoreIsPutBackInto(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		s.quarantine(t, "g1")
		before := s.contents(t)
		if got := s.restore(t, "g2 1"); got[0] != int64(0) {
			t.Errorf("%v, expected 0: it is another store", got)
		}
		s.unchanged(t, before)
	})
}

func TestTheOpeningIsPutOffForThirtySecondsAtMost(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		token, _ := s.quarantine(t, "g1")
		s.advance(t, 29_800*time.Millisecond)
		if s.embedded == nil { // aging skips the time in the token
			made := s.Time(t.Context()).Val().Add(-29_800 * time.Millisecond).UnixMicro()
			token = fmt.Sprint("g1 ", made)
			kit.Check(t, s.HSet(t.Context(), "{n}:meta", "token", token).Err())
		}
		if got := s.restore(t, token); got[0] != int64(1) {
			t.Fatalf("%v, expected 1", got)
		}
		if _, wait := s.quarantine(t, "g1"); wait > 200*time.Millisecond {
			t.Errorf("the store opens in %s, expected 200ms", wait)
		}
	})
}

// Admission needs an open store with the token that the caller expects. Without it, nothing is stored.
func TestAdmitNeedsTheKnownOpenStore(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		script := redis.NewScript(lua.Admit)
		keys := []string{
			"{n}:meta", "{n}:inflight", "{n}:sent", "{n}:categories",
			"{n}:global", "{n}:buckets:global", "{n}:category:a", "{n}:buckets:category:a",
		}
		asks := func(word, token string, dryRun int) {
			t.Helper()
			before := s.contents(t)
			reply, err := script.Run(t.Context(), s.Client, keys, "86400000000", "1800000000", token, "r", dryRun,
				1, 1, 0, 100, 1800000000, 0, 1, 0, 1800000000, 1, 1, 1800000000, 0, 1, "a", 2, 1, "a:e", "d", 1).Slice()
			kit.Check(t, err)
			if reply[0] != word {
				t.Errorf("token %q: %v, expected %s", token, reply, word)
			}
			if word == "closed" && (reply[2].(int64) <= 0 || reply[2].(int64) > time.Minute.Microseconds()) {
				t.Errorf("%v, expected a wait of a minute at most", reply)
			}
			if word != "decided" || dryRun == 1 {
				s.unchanged(t, before)
			}
		}
		wants := func(word, token string) {
			t.Helper()
			asks(word, token, 1)
			asks(word, token, 0)
		}
		opensAfter := func(d time.Duration) {
			t.Helper()
			at, err := s.Time(t.Context()).Result()
			kit.Check(t, err)
			opens := strconv.FormatInt(at.Add(d).UnixMicro(), 10)
			kit.Check(t, s.HSet(t.Context(), "{n}:meta", "token", "p 1", "opens", opens).Err())
		}
		wants("unknown store", "p 1") // an empty store has no token
		opensAfter(time.Minute)
		wants("unknown store", "p 2")
		wants("closed", "p 1")
		opensAfter(300 * time.Millisecond)
		if s.embedded != nil { // its clock does not advance
			wants("closed", "p 1")
		}
		opensAfter(-time.Millisecond)
		wants("unknown store", "p 2")
		wants("decided", "p 1")
		wants("decided", "") // an empty token accepts any store
	})
}
