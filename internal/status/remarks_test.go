package status

import (
	"strings"
	"testing"
	"time"

	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/status/stats"
	"notifier/internal/steering"
	"notifier/test/kit"
)

// remarked are the remarks on an order, joined.
func (k *known) remarked(t *testing.T, order steering.Order, err error) string {
	t.Helper()
	kit.Check(t, err)
	k.hour.Now = now
	source := k.source()
	source.Own = worker(t, "10/30m")
	remarks, err := source.Remarks(t.Context(), order)
	kit.Check(t, err)
	return strings.Join(remarks, "\n")
}

func TestRemarkOnAMute(t *testing.T) {
	t.Parallel()
	sent := []stats.Minute{{Counts: []stats.Count{count("deploys", outcome.Dropped, outcome.Muted, 1)}}}
	further := []stats.Minute{{Counts: []stats.Count{count(stats.OtherCategory, outcome.Sent, "", 1)}}}
	week := map[string]time.Time{"payments": now}
	for _, c := range []struct {
		target string
		known  *known
		want   string
	}{
		{"errors", &known{}, "No recent event matches errors."},
		{"erors", &known{categories: []string{"errors"}}, `No recent event matches erors (did you mean "errors"?).`},
		{"deploy", &known{hour: stats.Hour{Minutes: sent}}, `No recent event matches deploy (did you mean "deploys"?).`},
		{"team-b.*.x", &known{categories: []string{"team-a.y.x", "team-a"}}, `No recent event matches team-b.*.x (did you mean "team-a.*.x"?).`},
		{"errors.>", &known{categories: []string{"errors"}}, `No recent event matches errors.> (did you mean "errors"?).`},
		{"deploys", &known{hour: stats.Hour{Minutes: sent}}, ""},
		{"payments", &known{hour: stats.Hour{LastSent: week}}, ""},
		{"errors", &known{entries: mostEntries + 1}, ""},
		{"errors", &known{hour: stats.Hour{Minutes: further}}, ""},
	} {
		order, err := steering.NewMute(c.target, "alice", "")
		if got := c.known.remarked(t, order, err); got != c.want {
			t.Errorf("%s with %v: %q, expected %q", c.target, c.known, got, c.want)
		}
	}
}

func TestRemarkOnAGlobalLimit(t *testing.T) {
	t.Parallel()
	order, err := steering.NewLimit("global", "5/30m+1/5s", "alice", "")
	k := &known{usages: []ratelimit.Usage{
		{Tier: tier(5, 30*time.Minute), Used: 8, FreeIn: 10 * time.Minute, AtLeast: true},
		{Tier: tier(1, 5*time.Second), Used: 1, FreeIn: time.Second},
	}}
	want := "Nothing is sent until 2026-11-20T14:12:30Z or later (10m): 8 slots used of 5."
	if got := k.remarked(t, order, err); got != want {
		t.Errorf("%q, expected %q", got, want)
	}
	k.usages = []ratelimit.Usage{{Tier: tier(5, 30*time.Minute), Used: 4}}
	if got := k.remarked(t, order, err); got != "" {
		t.Errorf("%q, expected nothing: a slot is free", got)
	}
}

func TestRemarkOnAGroupsLimit(t *testing.T) {
	t.Parallel()
	order, err := steering.NewLimit("group/team-a", "5/30m", "alice", "")
	k := &known{}
	want := "Each of its categories still has its own limit, by default 10/30m.\n" +
		"The settings give it no limit, so what it sent before a temporary limit does not count."
	if got := k.remarked(t, order, err); got != want {
		t.Errorf("%q, expected %q", got, want)
	}
}

func TestRemarkOnALimitBelowWhatIsReserved(t *testing.T) {
	t.Parallel()
	of := running{settings: worker(t, "10/30m")}
	of.settings.Limits.Reserve = map[string]int{"payments": 5}
	for limit, want := range map[string]string{
		"5/30m": "LIMIT_RESERVE does not apply: 5 slots are reserved, and the limit has no more than that.",
		"6/30m": "",
	} {
		global, err := ratelimit.ParseLimit(limit)
		kit.Check(t, err)
		of.settings.Limits.Global = global
		if got := strings.Join(unreserved(of), ""); got != want {
			t.Errorf("%s: %q, expected %q", limit, got, want)
		}
	}
}

func TestAbove(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		own, wider string
		want       bool
	}{
		{"101/30m", "100/30m", true},
		{"100/30m", "100/30m", false},
		{"60/30m", "100/1h", false},
		{"90/30m+150/1h", "100/1h", true},
		{"200/30m+1/1m", "100/30m", false}, // 30 in half an hour
		{"100/24h:fixed", "100/24h", false},
		{"5/1h", "", false},
	} {
		var limits [2]ratelimit.Limit
		for i, text := range []string{c.own, c.wider} {
			if text != "" {
				limit, err := ratelimit.ParseLimit(text)
				kit.Check(t, err)
				limits[i] = limit
			}
		}
		if got := above(limits[0], limits[1]); got != c.want {
			t.Errorf("%s above %s: %v", c.own, c.wider, got)
		}
	}
}
