package ratelimit_test

import (
	"fmt"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// A slot counts from its event's post, for as long as it counts everywhere.

// moved returns the time in a column of the latest reply from which slots count, or 0.
func (s *store) moved(column int) int64 { return s.latest().([]any)[column].(int64) }

// TestSlotsCountUntilTheFirstWindowEnds, to the microsecond. Until then the event is admitted again free of
// charge, may be posted, and its slots move. Each case begins half an hour after the full hour.
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
	}{
		"its category's window":        {"9/2h", "9/1h", "9/40m", 0, 40 * time.Minute},
		"its group's":                  {"9/2h", "9/40m", "9/1h", 0, 40 * time.Minute},
		"the global one":               {"9/40m", "9/2h", "9/1h", 0, 40 * time.Minute},
		"without a group":              {"9/2h", "", "9/40m", 0, 40 * time.Minute},
		"the second tier":              {"9/2h", "9/1h", "9/1h+5/40m", 0, 40 * time.Minute},
		"the last tier":                {"9/2h+5/40m", "9/1h", "9/1h", 0, 40 * time.Minute},
		"after a post":                 {"9/2h", "9/1h", "9/40m", 30 * time.Minute, 70 * time.Minute},
		"a fixed tier of a log":        {"9/2h", "9/1h", "9/2h+5/1h:fixed", 0, 30 * time.Minute},
		"and after a post":             {"9/2h", "9/1h", "9/2h+5/1h:fixed", 20 * time.Minute, 30 * time.Minute},
		"buckets":                      {"9/2h", "9/1h", "9/40m:1m", 0, 40 * time.Minute},
		"and a post moves nothing":     {"9/2h", "9/1h", "9/40m:1m", 30 * time.Minute, 40 * time.Minute},
		"the global limit in buckets":  {"9/40m:1m", "9/1h", "9/1h", 30 * time.Minute, 40 * time.Minute},
		"a fixed window":               {"9/2h", "9/1h", "9/1h:fixed", 0, 30 * time.Minute},
		"a log beside longer buckets":  {"9/2h:1m", "", "9/40m", 30 * time.Minute, 70 * time.Minute},
		"a log beside shorter buckets": {"9/1h:1m", "", "9/40m", 30 * time.Minute, 60 * time.Minute},
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
				for _, late := range []time.Duration{-time.Microsecond, 0} {
					s := newEmbedded(t, redistest.RunEmbedded(t))
					s.later(t, 30*time.Minute)
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

// An event in buckets may cost more than a command can name.
func TestCostlyEventInBucketsIsPosted(t *testing.T) {
	eachLimiter(t, "1000000/24h:15m", "1000000/24h:15m", func(t *testing.T, s *store, limiter caller) {
		e := costing(event("e", "a"), 400_000)
		limiter.admits(e)
		limiter.posts(1, e, "", "p1")
		limiter.answer(ratelimit.Answer{Request: e, Name: "p1"}, ratelimit.NoPause)
		limiter.sent(e)
		limiter.duplicates(by("another message", e))
	})
}

// The clock was ahead by two days. A slot from then does not come back into a window that was filled without it.
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
