package status

import (
	"strings"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/status/stats"
	"notifier/internal/term"
	"notifier/test/kit"
)

// explained is the text about a category, and what it is from.
func (k *known) explained(t *testing.T, category, channel string) (string, Explanation) {
	t.Helper()
	source := k.source()
	source.Own = worker(t, "10/30m")
	source.Own.Channel = channel
	e, err := source.Explain(t.Context(), category)
	kit.Check(t, err)
	return e.Lines(term.Screen{}), e
}

// TestAChannelThatTakesNothing: there is room in all limits, and yet an event would not be sent now.
func TestAChannelThatTakesNothing(t *testing.T) {
	usages := []ratelimit.Usage{{Tier: tier(100, time.Minute)}, {Category: "a", Tier: tier(10, 30*time.Minute)}}
	with := func(channel string, beat stats.Heartbeat, pauses ...ratelimit.Pause) string {
		k := &known{hour: stats.Hour{Now: now}, usages: usages, pauses: pauses, replicas: []stats.Replica{{ID: "r", Heartbeat: beat}}}
		text, _ := k.explained(t, "a", channel)
		return text
	}
	refused := func(channel string) stats.Heartbeat {
		return stats.Heartbeat{Refused: map[string]string{channel: "is_archived"}}
	}
	unposted := func(why string) stats.Heartbeat {
		return stats.Heartbeat{Unposted: []stats.Unposted{{Channel: "#a", Events: 3, Oldest: now, Why: why}}}
	}
	const (
		sent  = "An event would be sent now.\n"
		waits = "An event would be admitted now, and sent when its channel takes it.\n"
		never = "An event would be admitted now, but not sent: its channel rejects every message.\n"
	)
	for name, test := range map[string]struct{ text, begin, has string }{
		"nothing":                 {with("#a", stats.Heartbeat{}), sent, "#a"},
		"paused":                  {with("#a", stats.Heartbeat{}, ratelimit.Pause{Channel: "#a", Left: time.Minute}), waits, "#a: Slack"},
		"the workspace is paused": {with("#a", stats.Heartbeat{}, ratelimit.Pause{Left: time.Minute}), waits, "Slack"},
		"another one is paused":   {with("#a", stats.Heartbeat{}, ratelimit.Pause{Channel: "#b", Left: time.Minute}), sent, ""},
		"behind its pace":         {with("#a", unposted("pace")), waits, "the pace of the channel"},
		"in flight":               {with("#a", unposted("")), sent, "3 events wait"},
		"refused":                 {with("#a", refused("#a")), never, "#a rejects every message (is_archived)"},
		"the webhook is refused":  {with("", refused("webhook")), never, "webhook rejects every message (is_archived)"},
	} {
		if !strings.HasPrefix(test.text, test.begin) || !strings.Contains(test.text, test.has) {
			t.Errorf("%s: expected %q and %q in\n%s", name, test.begin, test.has, test.text)
		}
	}
}

// TestExplainShowsWhatIsKeptInEachTier: the tier that refuses need not be the longest one.
func TestExplainShowsWhatIsKeptInEachTier(t *testing.T) {
	short, long := tier(10, time.Minute), tier(100, time.Hour)
	k := &known{hour: stats.Hour{Now: now}, usages: []ratelimit.Usage{{Tier: short, Used: 8}, {Tier: long, Used: 8}, {Category: "a", Tier: tier(10, time.Minute)}}}
	k.reserves = []ratelimit.Reserve{{Category: "payments", Tier: short, Slots: 2, Kept: 2}}
	text, e := k.explained(t, "a", "#a")
	if e.Limits[0].Tiers[0].Kept != 2 || e.Forecast.Kept != 2 || e.Forecast.Left != 2 || !strings.Contains(text, "10/1m, 8 of 10 used, the other 2 kept for others (LIMIT_GLOBAL)") {
		t.Errorf("%+v, %+v\n%s", e.Limits[0], e.Forecast, text)
	}
}
