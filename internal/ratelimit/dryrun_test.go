package ratelimit_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

func (c caller) dryRun(category string, cost int) ratelimit.Decision {
	c.t.Helper()
	decision, err := c.DryRun(c.t.Context(), category, cost)
	kit.Check(c.t, err)
	return decision
}

// TestDryRunDecidesLikeAdmitAndWritesNothing fills limits of every form. Before each event it makes a dry run and
// compares the two decisions. TestTheScriptsDecideLikeTheModel does the same in random histories.
func TestDryRunDecidesLikeAdmitAndWritesNothing(t *testing.T) {
	parts := func(category string, global string) ratelimit.Rules {
		rules := kit.Rules(global, category, "a.deep=9/1h")
		rules.Group = mustParse("7/1h")
		rules.Reserve = map[string]int{"payments": 2}
		return rules
	}
	for name, rules := range map[string]ratelimit.Rules{
		"logs":        parts("3/1h", "10/30m+9/1h"),
		"buckets":     kit.Rules("10/24h:15m", "3/1h:1m", ""),
		"fixed tiers": parts("3/24h:fixed", "10/24h:fixed"),
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				limiter := s.limiter(t, rules, day)
				compare := func(e ratelimit.Request) {
					t.Helper()
					before := s.contents(t)
					got := limiter.dryRun(e.Category, e.Cost)
					s.unchanged(t, before)
					want := limiter.one(e)
					// On a server some time passes between the two.
					late := got.RetryAfter - want.RetryAfter
					if want.RetryAfter = got.RetryAfter; late < 0 || late > time.Minute {
						t.Errorf("%s: the dry run differs by %s", e.ID, late)
					}
					if difference := cmp.Diff(want, got); difference != "" {
						t.Errorf("%s (-decision +dry run):\n%s", e.ID, difference)
					}
				}
				for _, category := range []string{"a", "a.x", "a.deep", "b", "payments", "c"} {
					for _, e := range events(4, category, category) {
						compare(e)
					}
				}
				compare(costing(event("big", "d"), 6))
				limiter.SetTemporary(ratelimit.Temporary{Categories: map[string]ratelimit.Limit{"a": mustParse("4/2h")}})
				compare(event("temporary", "a"))
			})
		})
	}
}

// TestDryRunKnowsNoEvent, not even one with an empty id: it is no duplicate.
func TestDryRunKnowsNoEvent(t *testing.T) {
	eachLimiter(t, "9/1h", "9/1h", func(t *testing.T, _ *store, limiter caller) {
		limiter.admits(event("", "flying"), event("", "sent"))
		kit.Check(t, limiter.Sent(t.Context(), event("", "sent")))
		for _, category := range []string{"flying", "sent"} {
			if got := limiter.dryRun(category, 1); got.Verdict != ratelimit.Admitted {
				t.Errorf("%s: %+v, expected an admission", category, got)
			}
		}
	})
}

// TestDryRunOfNoCategory shows the room of all categories that have no reserve.
func TestDryRunOfNoCategory(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := reserving("10/30m", "2/30m", map[string]int{"payments": 3})
		rules.Group = mustParse("3/30m")
		limiter := s.limiter(t, rules, day)
		for _, category := range []string{"a", "b", "c"} {
			limiter.admits(events(2, category, category)...)
		}
		if got := limiter.dryRun("", 1); got.Verdict != ratelimit.Admitted {
			t.Errorf("%+v, expected an admission", got)
		}
		limiter.admits(event("d", "d"))
		if got := limiter.dryRun("", 1); got.Verdict != ratelimit.Global || got.Used != 7 || got.Reserved != 3 || !got.AtLeast {
			t.Errorf("%+v, expected a refusal with 7 used and 3 reserved", got)
		}
	})
}

// TestDryRunNeedsACost: an event without slots would pass every limit.
func TestDryRunNeedsACost(t *testing.T) {
	eachLimiter(t, "9/1h", "9/1h", func(t *testing.T, _ *store, limiter caller) {
		if decision, err := limiter.DryRun(t.Context(), "a", 0); err == nil {
			t.Errorf("%+v, expected an error", decision)
		}
	})
}
