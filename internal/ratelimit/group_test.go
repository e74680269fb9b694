package ratelimit_test

import (
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// grouped are rules with a limit for each group.
func grouped(global, category, group string) ratelimit.Rules {
	rules := kit.Rules(global, category, "")
	rules.Group = mustParse(group)
	return rules
}

func TestCategoriesShareTheGroupsLimit(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, grouped("100/30m", "10/30m", "3/30m"), day)
		limiter.admits(event("e1", "team-a"), event("e2", "team-a.job1"), event("e3", "team-a.job2.nightly"))
		limiter.want(ratelimit.Group, event("e4", "team-a"), event("e5", "team-a.job3"))
		limiter.admits(event("e6", "team-b"), event("e7", "team-aa"))
		got := limiter.one(event("e8", "team-a.job1"))
		if got.Tier.String() != "3/30m" || got.Used != 3 || got.RetryAfter <= 29*time.Minute {
			t.Errorf("%+v, expected a refusal by 3/30m with 3 used", got)
		}
	})
}

// Whichever level refuses, none of the three is charged.
func TestChargedToAllLevelsOrNone(t *testing.T) {
	for name, rules := range map[string]ratelimit.Rules{
		"category": grouped("10/30m", "1/30m", "10/30m"),
		"group":    grouped("10/30m", "10/30m", "1/30m"),
		"global":   grouped("1/30m", "10/30m", "10/30m"),
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				limiter := s.limiter(t, rules, day)
				limiter.admits(event("e1", "a.x"))
				for _, key := range []string{"{n}:global", "{n}:group:a", "{n}:category:a.x"} {
					if n := s.count(t, key); n != 1 {
						t.Errorf("%s has %d slots taken, expected 1", key, n)
					}
				}
				before := s.contents(t)
				if got := limiter.one(event("e2", "a.x")); got.Verdict == ratelimit.Admitted {
					t.Errorf("admitted: %+v", got)
				}
				s.unchanged(t, before)
			})
		})
	}
}

func TestRefusalNamesTheLevelThatFreesLast(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rules ratelimit.Rules
		want  ratelimit.Verdict
	}{
		"the category's":                     {grouped("1/1m", "1/3m", "1/2m"), ratelimit.Category},
		"the group's":                        {grouped("1/1m", "1/2m", "1/3m"), ratelimit.Group},
		"the global one":                     {grouped("1/3m", "1/1m", "1/2m"), ratelimit.Global},
		"the category's of three alike":      {grouped("1/1m", "1/1m", "1/1m"), ratelimit.Category},
		"the group's before the global one":  {grouped("1/2m", "1/1m", "1/2m"), ratelimit.Group},
		"the category's before the group's":  {grouped("1/1m", "1/2m", "1/2m"), ratelimit.Category},
		"not the longest window's with room": {grouped("5/1h+1/1s", "1/1m", "1/2m"), ratelimit.Group},
		"the category's before the global's": {grouped("1/2m", "1/2m", "1/1m"), ratelimit.Category},
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				limiter := s.limiter(t, test.rules, day)
				limiter.admits(event("e1", "a.x"))
				limiter.want(test.want, event("e2", "a.x"))
			})
		})
	}
}

// Replicas that have no limit for groups do not charge them, but release what others have charged.
func TestRefundReleasesAnotherReplicasGroup(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		with := s.limiter(t, grouped("100/30m", "10/30m", "1/30m"), day)
		without := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		e := event("e", "a.x")
		with.admits(e)
		with.want(ratelimit.Group, event("f", "a.y"))
		without.refunds(e)
		with.admits(event("f", "a.y"))
	})
}

// Each category that a pattern matches has a limit of its own; the group counts them together.
func TestPatternLimitsEachCategoryByItself(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("100/30m", "1/30m", "a.>=2/30m,a.x=3/30m,*.z=4/30m")
		rules.GroupOverrides = map[string]ratelimit.Limit{"a": mustParse("6/30m")}
		limiter := s.limiter(t, rules, day)
		limiter.admits(events(2, "e", "a.b.c")...)
		limiter.want(ratelimit.Category, event("x", "a.b.c"))
		limiter.admits(events(1, "e", "a")...) // a.> does not match a
		limiter.want(ratelimit.Category, event("x", "a"))
		limiter.admits(events(3, "e", "a.x")...)
		limiter.want(ratelimit.Group, event("x", "a.y")) // its own limit has room
		limiter.admits(events(4, "e", "b.z")...)
		limiter.want(ratelimit.Category, event("x", "b.z"))
	})
}
