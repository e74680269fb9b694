package app

import (
	"testing"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// An event's group is named only if the group has a limit.
func TestLimitedGroup(t *testing.T) {
	limits := kit.Rules("100/30m", "10/30m", "team-a.>=5/24h:fixed")
	if got := limitedGroup(limits, "team-a.job1"); got != "" {
		t.Errorf("without a group's limit the group is %q", got)
	}
	limits.GroupOverrides = map[string]ratelimit.Limit{"team-a": limits.Global, "_other": limits.Category}
	for category, want := range map[string]string{
		"team-a.job1": "team-a", "team-a": "team-a", "team-ab.job1": "", "_other.x": "_other", "": "", "a\xff..b": "",
	} {
		if got := limitedGroup(limits, category); got != want {
			t.Errorf("%q is in the group %q, expected %q", category, got, want)
		}
	}
}
