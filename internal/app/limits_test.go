package app

import (
	"testing"
	"time"

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

// A cost is malformed only above both the limit of the settings and a temporary limit.
func TestCostUnderTemporaryLimit(t *testing.T) {
	rules := kit.Rules("100/30m", "5/1h", "")
	limiter, err := ratelimit.New(nil, "notifier", rules, time.Hour)
	kit.Check(t, err)
	a := app{store: Store{Limiter: limiter}}
	a.settings.Store.Limits = rules
	for _, test := range []struct {
		temporary string
		allowed   int
	}{{"", 5}, {"50/30m", 50}, {"2/30m", 5}} {
		temporary := ratelimit.Temporary{}
		if test.temporary != "" {
			limit, err := ratelimit.ParseLimit(test.temporary)
			kit.Check(t, err)
			temporary.Categories = map[string]ratelimit.Limit{"errors": limit}
		}
		limiter.SetTemporary(temporary)
		if err := a.checkCost("errors", test.allowed); err != nil {
			t.Errorf("temporary limit %q: cost %d: %v", test.temporary, test.allowed, err)
		}
		if err := a.checkCost("errors", test.allowed+1); err == nil {
			t.Errorf("temporary limit %q: cost %d is allowed", test.temporary, test.allowed+1)
		}
	}
}
