package ratelimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// A post moves its event's slots to the present, if they still count in every tier.

// moved returns the time from which slots count, a column of the latest reply, or 0 if no slot moved.
func (s *store) moved(column int) int64 { return s.latest().([]any)[column].(int64) }

// An event's slots count until the first of its windows ends, to the microsecond. Until then the event is
// admitted again free of charge and may be posted, and its slots move. Each case begins half an hour after
// the full hour.
func TestSlotsCountUntilTheFirstWindowEnds(t *testing.T) {
	e := event("e", "team.job")
	actions := map[string]func(limiter caller, s *store, posted bool) (counts bool){
		"admit": func(limiter caller, s *store, _ bool) bool {
			limiter.admits(e)
			earlier := s.latest().([]any)[5].([]any)
			return len(earlier) > 0
		},
		"begin": func(limiter caller, s *store, posted bool) bool {
			permit := limiter.begin(e, map[bool]string{true: "p1"}[posted], "p2")
			return permit.Status == ratelimit.Granted && s.moved(3) == s.now.UnixMicro()
		},
		"answered": func(limiter caller, s *store, _ bool) bool { // after a post
			limiter.answer(ratelimit.Answer{Request: e, Name: "p1"}, ratelimit.NoPause)
			return s.moved(2) == s.now.UnixMicro()
		},
		"sent": func(limiter caller, s *store, _ bool) bool {
			limiter.sent(e)
			return s.moved(2) == s.now.UnixMicro()
		},
	}
	for name, c := range map[string]struct {
		global, group, category string
		posted, ends            time.Duration // after the admission
		begins                  time.Duration // in addition to this half hour
	}{
		"its category's window":       {"9/2h", "9/1h", "9/40m", 0, 40 * time.Minute, 0},
		"its group's":                 {"9/2h", "9/40m", "9/1h", 0, 40 * time.Minute, 0},
		"the global one":              {"9/40m", "9/2h", "9/1h", 0, 40 * time.Minute, 0},
		"without a group":             {"9/2h", "", "9/40m", 0, 40 * time.Minute, 0},
		"the second tier":             {"9/2h", "9/1h", "9/1h+5/40m", 0, 40 * time.Minute, 0},
		"the last tier":               {"9/2h+5/40m", "9/1h", "9/1h", 0, 40 * time.Minute, 0},
		"after a post":                {"9/2h", "9/1h", "9/40m", 30 * time.Minute, 70 * time.Minute, 0},
		"a fixed tier of a log":       {"9/2h", "9/1h", "9/2h+5/1h:fixed", 0, 30 * time.Minute, 0},
		"and after a post":            {"9/2h", "9/1h", "9/2h+5/1h:fixed", 20 * time.Minute, 30 * time.Minute, 0},
		"buckets":                     {"9/2h", "9/1h", "9/40m:1m", 0, 40 * time.Minute, 0},
		"and a post moves nothing":    {"9/2h", "9/1h", "9/40m:1m", 30 * time.Minute, 40 * time.Minute, 0},
		"the global limit in buckets": {"9/40m:1m", "9/1h", "9/1h", 30 * time.Minute, 40 * time.Minute, 0},
		"a fixed window":              {"9/2h", "9/1h", "9/1h:fixed", 0, 30 * time.Minute, 0},
		"a log beside longer buckets": {"9/2h:1m", "", "9/40m", 30 * time.Minute, 70 * time.Minute, 0},
		"a fixed window's beginning":  {"9/2h", "9/1h", "9/2h+5/1h:fixed", 0, time.Hour, 30 * time.Minute},
		"a fixed window's end": {
			"9/2h", "9/1h", "9/2h+5/1h:fixed", 0, time.Microsecond, 30*time.Minute - time.Microsecond,
		},
		"a log beside shorter buckets": {"9/1h:1m", "", "9/40m", 30 * time.Minute, 60 * time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := kit.Rules(c.global, c.category, "")
			if c.group != "" {
				rules.Group = mustParse(c.group)
			}
			for action, counts := range actions {
				if action == "answered" && c.posted == 0 {
					continue
				}
				if action == "admit" && c.ends == time.Microsecond {
					continue // admit.lua decides a microsecond after the latest admission
				}
				for _, late := range []time.Duration{-time.Microsecond, 0} {
					s := newEmbedded(t, redistest.RunEmbedded(t))
					s.later(t, 30*time.Minute+c.begins)
					limiter := s.limiter(t, rules, day)
					limiter.admits(e)
					s.advance(t, c.posted)
					if c.posted > 0 {
						limiter.posts(1, e, "", "p1")
					}
					s.advance(t, c.ends-c.posted+late)
					if got := counts(limiter, s, c.posted > 0); got != (late < 0) {
						t.Errorf("%s, %s after the window's end: %t", action, late, got)
					}
				}
			}
		})
	}
}

// Each script moves all slots of an event, in every log that has them.
func TestEverySlotMoves(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, grouped("9000/30m", "9000/30m", "9000/30m"), day)
		e := costing(event("e", "team.job"), ratelimit.MaxExactCost)
		limiter.admits(e)
		wantMoved := func(script string, at int64) {
			t.Helper()
			for _, key := range []string{"{n}:global", "{n}:group:team", "{n}:category:team.job"} {
				moved := fmt.Sprint(at)
				if n := s.ZCount(t.Context(), key, moved, moved).Val(); n != int64(e.Cost) || s.count(t, key) != e.Cost {
					t.Errorf("%s: %d of %d slots of %s count from %s", script, n, s.count(t, key), key, moved)
				}
			}
		}
		s.advance(t, time.Minute)
		limiter.posts(1, e, "", "p1")
		wantMoved("begin.lua", s.moved(3))
		s.advance(t, time.Minute)
		limiter.answer(ratelimit.Answer{Request: e, Name: "p1"}, ratelimit.NoPause)
		wantMoved("answered.lua", s.moved(2))
		s.advance(t, time.Minute)
		limiter.sent(e)
		wantMoved("sent.lua", s.moved(2))
	})
}

// An event in buckets may cost more slots than a command can list.
func TestCostlyEventInBucketsIsPosted(t *testing.T) {
	eachLimiter(t, "1000000/24h:15m", "1000000/24h:15m", func(t *testing.T, s *store, limiter caller) {
		e := costing(event("e", "a"), 400_000)
		limiter.admits(e)
		if n := s.count(t, "{n}:buckets:global"); n != 1 {
			t.Errorf("%d entries, expected one bucket", n)
		}
		limiter.posts(1, e, "", "p1")
		limiter.answer(ratelimit.Answer{Request: e, Name: "p1"}, ratelimit.NoPause)
		limiter.sent(e)
		limiter.duplicates(by("another message", e))
	})
}

// A slot taken while the clock was two days ahead does not move back into a window that was filled without
// it.
func TestSlotOfAFarClockDoesNotMoveBack(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	limiter := s.limiter(t, kit.Rules("1/30m", "1/30m", ""), day)
	ahead, e := event("ahead", "a"), event("e", "a")
	limiter.admits(ahead)
	s.advance(t, -48*time.Hour)
	limiter.admits(e)
	limiter.posts(1, ahead, "", "p1")
	if used := limiter.peek("a")[0].Used; used != 1 {
		t.Errorf("%d slots used, expected 1", used)
	}
}

func TestMovedClockExpires(t *testing.T) {
	eachLimiter(t, "9/30m", "9/30m", func(t *testing.T, s *store, limiter caller) {
		limiter.admits(event("e", "a"))
		s.Del(t.Context(), "{n}:meta")
		limiter.posts(1, event("e", "a"), "", "p1")
		if left := s.PTTL(t.Context(), "{n}:meta").Val(); left < 31*day || left > 33*day {
			t.Errorf("the clock expires in %s, expected 32 days", left)
		}
	})
}

// If two workers have posted an event, the later move of its slots wins, in whichever order they restore.
func TestLatestMoveIsPutBack(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("9/10m", "9/10m", "")
		a, b := s.remembering(t, "a", rules, day), s.remembering(t, "b", rules, day)
		e := event("e", "x")
		a.admits(e)
		b.admits(e)
		a.posts(1, e, "", "p1")
		s.advance(t, time.Minute)
		if s.embedded == nil {
			a.AgeJournal(time.Minute.Microseconds())
			b.AgeJournal(time.Minute.Microseconds())
		}
		b.posts(2, e, "p1", "p2")
		latest := s.moved(3)
		wantLatest := func(when string) {
			t.Helper()
			for _, key := range []string{"{n}:global", "{n}:category:x"} {
				slots := s.ZRangeWithScores(t.Context(), key, 0, -1).Val()
				if len(slots) != 1 || int64(slots[0].Score) != latest {
					t.Errorf("%s: %s holds %v, expected one slot that counts from %d", when, key, slots, latest)
				}
			}
		}
		s.putsBack(t, a)
		wantLatest("nothing lost")
		for _, order := range [][]caller{{a, b}, {b, a}} {
			s.empty(t)
			s.putsBack(t, order...)
			wantLatest("all lost")
		}
	})
}

// The admitting worker does not know of the post that moved the slots. By its journal, the slot in the global
// log is too old to restore.
func TestMoveByAnotherWorkerIsRestored(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	rules := kit.Rules("9/10m", "9/1h", "")
	admitting, posting := s.remembering(t, "a", rules, day), s.remembering(t, "b", rules, day)
	e := event("e", "x")
	admitting.admits(e)
	posting.admits(e)
	s.advance(t, 9*time.Minute)
	posting.posts(1, e, "", "p1")
	s.advance(t, 2*time.Minute)
	s.empty(t)
	s.putsBack(t, admitting, posting)
	inGlobal(t, s, 1)
	inCategory(t, s, "x", 1)

	// Both workers know that the event was sent. The first to record it has moved the slots.
	posting.sent(e)
	admitting.sent(e)
	s.advance(t, 9*time.Minute)
	s.empty(t)
	s.putsBack(t, admitting, posting)
	inGlobal(t, s, 1)
	inCategory(t, s, "x", 1)
}

// entries returns the entries of logs, by key.
func (s *store) entries(t *testing.T, keys ...string) map[string][]redis.Z {
	t.Helper()
	entries := map[string][]redis.Z{}
	for _, key := range keys {
		entries[key] = s.ZRangeWithScores(t.Context(), key, 0, -1).Val()
	}
	return entries
}

// The store still has the admission but has lost the post. The limits may use buckets by now.
func TestLostMoveIsPutBack(t *testing.T) {
	for _, limit := range []string{"9/10m", "9/10m:1m"} {
		t.Run(limit, func(t *testing.T) {
			withJournal(t, func(t *testing.T, s *store, c caller) { losesAMove(t, s, c, limit) })
		})
	}
}

func losesAMove(t *testing.T, s *store, c caller, limit string) {
	t.Helper()
	e := costing(event("e", "a"), 2)
	c.admits(e)
	c.pass(s, 5*time.Minute)
	before := s.entries(t, "{n}:global", "{n}:category:a")
	c.posts(1, e, "", "p1")
	moved := fmt.Sprint(s.moved(3))
	for key, entries := range before {
		kit.Check(t, s.ZAdd(t.Context(), key, entries...).Err())
		kit.Check(t, s.PExpire(t.Context(), key, 5*time.Minute).Err())
	}
	c.SetTemporary(temporaryLimits("global", limit, "category/a", limit))
	s.putsBack(t, c)
	for key := range before {
		if n := s.ZCount(t.Context(), key, moved, moved).Val(); n != 2 || s.count(t, key) != 2 {
			t.Errorf("%d of %d slots of %s count from the post, expected 2", n, s.count(t, key), key)
		}
		if left := s.PTTL(t.Context(), key).Val(); left < 9*time.Minute {
			t.Errorf("%s expires in %s, expected ten minutes", key, left)
		}
	}
}

// The clock steps back while the store is lost. Restored slots ahead of it count, because restoring advances
// the stored clock to the moved slots.
func TestPutBackSlotsAheadOfTheClockCount(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	c := s.remembering(t, "r", kit.Rules("1/10m", "1/10m", ""), day)
	e := event("e", "a")
	c.admits(e)
	s.advance(t, time.Minute)
	c.posts(1, e, "", "p1")
	s.empty(t)
	s.advance(t, -30*time.Second)
	s.putsBack(t, c)
	c.want(ratelimit.Category, event("f", "a"))
}

// The store has lost the second decision and still has the slots of the first one. Restoring removes them.
func TestReleasedSlotsAreTakenOutAgain(t *testing.T) {
	for name, refused := range map[string]bool{"admitted": false, "refused": true} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				c := s.remembering(t, "r", kit.Rules("9/2h", "9/2h+2/10m", ""), day)
				e := costing(event("e", "a"), 2)
				c.admits(e)
				c.admits(event("later", "b")) // so that "seen r" is later than the released slots
				c.pass(s, 11*time.Minute)
				before := s.entries(t, "{n}:global", "{n}:category:a")
				seen := s.HGet(t.Context(), "{n}:meta", "seen r").Val()
				slots := 2
				if refused {
					c.admits(event("f", "a"))
					c.want(ratelimit.Category, e)
					slots = 1
				} else {
					c.admits(e)
				}
				s.empty(t)
				for key, entries := range before {
					kit.Check(t, s.ZAdd(t.Context(), key, entries...).Err())
				}
				kit.Check(t, s.HSet(t.Context(), "{n}:meta", "seen r", seen).Err())
				s.putsBack(t, c)
				inGlobal(t, s, slots+1)
				inCategory(t, s, "a", slots)
			})
		})
	}
}

// Slack may respond as late as the end of the lease, and the slots count for a window from then. The record
// lives as long.
func TestRecordOutlivesItsSlots(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	limiter := s.limiter(t, kit.Rules("9/30m", "9/30m", ""), time.Minute)
	e := event("e", "a")
	limiter.admits(e)
	limiter.posts(1, e, "", "p1")
	s.advance(t, 10*time.Second)
	limiter.answer(ratelimit.Answer{Request: e, Name: "p1"}, ratelimit.NoPause)
	s.advance(t, 30*time.Minute-time.Second)
	limiter.admits(e)
	if used := limiter.peek()[0].Used; used != 1 {
		t.Errorf("%d slots used, expected that of the post", used)
	}
	limiter.wantUnknown(e, "", "p2")
}

// One batch has an event in two stream messages. The first has a higher cost, is refused and releases the old
// slots.
func TestReleasedEventIsAdmittedInTheSameBatch(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		c := s.remembering(t, "r", kit.Rules("9/2h", "2/10m", ""), day)
		e := costing(event("e", "a"), 3)
		small := costing(event("e", "a"), 1)
		small.Delivery = "another"
		c.admits(small)
		c.pass(s, 11*time.Minute)
		if d := c.admit(e, small); d[0].Verdict != ratelimit.Category || d[1].Verdict != ratelimit.Admitted {
			t.Fatalf("%+v, expected a refusal and an admission", d)
		}
		s.empty(t)
		s.putsBack(t, c)
		inGlobal(t, s, 1)
		inCategory(t, s, "a", 1)
	})
}

// A slot can move to the time of its worker's latest admission: both are the latest score.
func TestLostMoveHasTheTimeOfAnAdmission(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	c := s.remembering(t, "r", kit.Rules("9/2h", "9/2h", ""), day)
	e := event("e", "a")
	c.admits(e)
	c.admits(event("f", "a")) // its score is a microsecond later
	before := s.entries(t, "{n}:global")
	c.sent(e)
	after := fmt.Sprint(s.entries(t, "{n}:global"))
	kit.Check(t, s.Del(t.Context(), "{n}:global").Err())
	kit.Check(t, s.ZAdd(t.Context(), "{n}:global", before["{n}:global"]...).Err())
	s.putsBack(t, c)
	if got := fmt.Sprint(s.entries(t, "{n}:global")); got != after || after == fmt.Sprint(before) {
		t.Errorf("after the loss %s, expected %s", got, after)
	}
}

// Two workers hold an event in two stream messages of different costs. Moving the slots by the cost of the
// other message would give the slots of one admission two scores.
func TestOtherDeliveryMovesNoSlots(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("9/30m", "9/30m", ""), day)
		e := costing(event("e", "a"), 2)
		other := costing(event("e", "a"), 1)
		other.Delivery = "another"
		limiter.admits(e)
		s.advance(t, time.Minute)
		before := fmt.Sprint(s.entries(t, "{n}:global"))
		limiter.sent(other)
		if got := fmt.Sprint(s.entries(t, "{n}:global")); got != before {
			t.Errorf("%s, expected %s", got, before)
		}
	})
}
