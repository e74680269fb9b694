package preflight

import (
	"testing"

	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
	"notifier/internal/settings"
	"notifier/test/kit"
)

// TestPaceFindings: what the limits let up to into a channel, held against what its pace posts.
func TestPaceFindings(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		global, category, overrides, pace string
		routes                            map[string]string
		level                             Level
		text                              string
	}{
		"the defaults":      {"100/30m", "10/30m", "", "10/10s", nil, OK, "SLACK_PACE 10/10s"},
		"too many":          {"1000/1m", "10/30m", "", "10/10s", nil, Warn, "the limits let up to 1000 events a minute into #all and SLACK_PACE 10/10s posts 60: while such a storm lasts, 940 more wait with each minute, in the workers and then in the stream, until half of"},
		"just right":        {"60/1m", "10/30m", "", "10/10s", nil, OK, "SLACK_PACE 10/10s"},
		"the lowest tier":   {"1000/1m+100/30m", "10/30m", "", "10/10s", nil, OK, "SLACK_PACE 10/10s"},
		"a channel it owns": {"1000/30m", "10/30m", "errors=600/5m", "5/10s", map[string]string{"errors": "#err"}, Warn, "into #err"},
		"a pattern":         {"1000/1m", "10/30m", "", "10/10s", map[string]string{"team-a.>": "#a"}, Warn, "the limits let up to 1000 events a minute into #a and"},
		"in a group":        {"60/1m", "60/1m", "", "5/10s", map[string]string{"team-a.>": "#a", "team-b.x": "#a", "c": "#a"}, Warn, "the limits let up to 50 events a minute into #a and"},
		"in any group":      {"60/1m", "60/1m", "", "5/10s", map[string]string{"*.x": "#a"}, Warn, "the limits let up to 60 events a minute into #a and"},
		"off":               {"1000/1m", "10/30m", "", "off", nil, Note, "SLACK_PACE is off"},
	} {
		limits := kit.Rules(test.global, test.category, test.overrides)
		var err error
		if name == "in a group" || name == "in any group" {
			limits.GroupOverrides, err = ratelimit.ParseGroupOverrides("team-a=20/1m,team-b=25/1m,c=5/1m")
			kit.Check(t, err)
		}
		limits.Pace, err = ratelimit.ParsePace(test.pace)
		kit.Check(t, err)
		s := settings.Settings{Store: settings.Store{Limits: limits}}
		s.Slack.Channel, s.Slack.Routes = "#all", pattern.MustTable(test.routes)
		var r report
		checkPace(s, &r)
		wantFinding(t, r.findings, test.level, test.text)
		warned := false
		for _, finding := range r.findings {
			warned = warned || finding.Level == Warn
		}
		if warned != (test.level == Warn) {
			t.Errorf("%s: %v", name, r.findings)
		}
	}
}
