package app

import (
	"testing"

	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// Each drop is reported with the limit that refused it, and a group is named only where it has one.
func TestWhichLimitRefuses(t *testing.T) {
	limit := func(text string) ratelimit.Limit {
		parsed, err := ratelimit.ParseLimit(text)
		kit.Check(t, err)
		return parsed
	}
	limits := kit.Rules("100/30m", "10/30m", "team-a.>=5/24h:fixed")
	if got := limitedGroup(limits, "team-a.job1"); got != "" {
		t.Errorf("without a group's limit the group is %q", got)
	}
	limits.GroupOverrides = map[string]ratelimit.Limit{"team-a": limit("50/24h:15m"), "_other": limit("7/1h")}
	for category, want := range map[string]struct{ group, groupLimit, own string }{
		"team-a.job1":  {"team-a", "50/24h:15m", "5/24h:fixed"},
		"team-a":       {"team-a", "50/24h:15m", "10/30m"},
		"team-ab.job1": {"", "", "10/30m"},
		"_other.x":     {"_other", "7/1h", "10/30m"},
		"":             {"", "", "10/30m"},
		"a\xff..b":     {"", "", "10/30m"},
	} {
		if got := limitedGroup(limits, category); got != want.group {
			t.Errorf("%q is in the group %q, expected %q", category, got, want.group)
		}
		for reason, text := range map[string]string{outcome.Global: "100/30m", outcome.Group: want.groupLimit, outcome.Category: want.own} {
			if got := limitFor(limits, reason, category).String(); got != text {
				t.Errorf("%q, %s: %q, expected %q", category, reason, got, text)
			}
		}
	}
}
