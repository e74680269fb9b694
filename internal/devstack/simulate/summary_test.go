package simulate_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"notifier/internal/devstack/simulate"
	"notifier/test/kit"
)

func summarize(t *testing.T, text, category string) *simulate.Summary {
	t.Helper()
	var summary simulate.Summary
	for _, v := range run(t, text, kit.Rules("5/30m", category, ""), day) {
		summary.Add(v)
	}
	return &summary
}

func TestSummary(t *testing.T) {
	t.Parallel()
	text := repeat(4, func(int) string { return at(0, "b") }) + repeat(4, func(int) string { return at(0, "a") }) +
		at(0, "c", `"id":"x"`) + at(0, "c", `"id":"x"`) + at(0, "c", `"cost":9`) + at(0, "d") + at(0, "c")
	summary := summarize(t, text, "3/30m")
	ignore := cmpopts.IgnoreUnexported(simulate.Count{})
	want := []simulate.Count{
		{Category: "a", Events: 4, Sent: 2, Global: 2},
		{Category: "b", Events: 4, Sent: 3, Own: 1},
		{Category: "c", Events: 4, Global: 3, Dead: 1},
		{Category: "d", Events: 1, Global: 1},
	}
	if diff := cmp.Diff(want, summary.Categories(), ignore); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	all := simulate.Count{Events: 13, Sent: 5, Global: 6, Own: 1, Dead: 1}
	if diff := cmp.Diff(all, summary.All(), ignore); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	if got := summarize(t, at(0, "a", `"id":"x"`)+at(1, "a", `"id":"x"`), "3/30m").All(); got.Duplicate != 1 || got.Sent != 1 {
		t.Errorf("%+v, expected one sent and one duplicate", got)
	}
	if empty := new(simulate.Summary); len(empty.Categories()) != 0 || empty.All().Events != 0 {
		t.Errorf("%+v, expected nothing in an empty summary", empty)
	}
}

// The summary counts the events that other categories lost to reserves.
func TestSummaryOfReserves(t *testing.T) {
	t.Parallel()
	text := repeat(4, func(int) string { return at(0, "b") }) + at(0, "a.x") + at(0, "a.x") + at(0, "a.y")
	var summary simulate.Summary
	for _, v := range run(t, text, levels(kit.Rules("9/1h", "5/1h", ""), "", "", "b=4,c=4"), day) {
		summary.Add(v)
	}
	want := []simulate.Count{
		{Category: "b", Events: 4, Sent: 4}, {Category: "a.x", Events: 2, Sent: 1, Global: 1, KeptFrom: 1}, {Category: "a.y", Events: 1, Global: 1, KeptFrom: 1},
	}
	if diff := cmp.Diff(want, summary.Categories(), cmpopts.IgnoreUnexported(simulate.Count{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// One message a minute may be sent; an event is written as the minute and the second at which it comes.
func TestTheLongestSilence(t *testing.T) {
	t.Parallel()
	type events []time.Duration
	const m, s = time.Minute, time.Second
	for name, test := range map[string]struct {
		at   events
		want time.Duration
		ok   bool
	}{
		"all are sent, however far apart":         {events{0, m, 60 * m}, 0, false},
		"from a message to the next":              {events{0, 10 * s, 50 * s, 70 * s}, 70 * s, true},
		"an event some time before the next":      {events{0, 10 * s, 30 * m, 30*m + 10*s, 31 * m}, 30 * m, true},
		"to the last event":                       {events{0, 60 * m, 60*m + 20*s, 60*m + 40*s}, 40 * s, true},
		"the longest of several":                  {events{0, 1 * s, 2 * m, 2*m + 1*s, 10 * m, 10*m + 1*s, 12 * m}, 8 * m, true},
		"refused in the moment of the last event": {events{0, 0}, 0, true},
	} {
		text := ""
		for _, after := range test.at {
			text += at(after, "a")
		}
		if got, ok := summarize(t, text, "1/1m").Categories()[0].Silence(); got != test.want || ok != test.ok {
			t.Errorf("%s: %s, %t, expected %s, %t", name, got, ok, test.want, test.ok)
		}
	}
	never := at(0, "a", `"cost":2`) + at(7*m, "a", `"cost":2`)
	if got, ok := summarize(t, never, "1/1m").All().Silence(); got != 7*m || !ok {
		t.Errorf("from the first event to the last, where none is sent: %s, %t, expected 7m", got, ok)
	}
	duplicate := at(0, "a", `"id":"x"`) + at(m, "a", `"id":"x"`) + at(5*m, "a")
	if got, ok := summarize(t, duplicate, "1/1m").All().Silence(); got != 0 || ok {
		t.Errorf("a duplicate between two messages: %s, %t, expected no silence", got, ok)
	}
	between := at(0, "a") + at(10*s, "a") + at(20*s, "b") + at(70*s, "a")
	if got, ok := summarize(t, between, "1/1m").All().Silence(); got != 20*s || !ok {
		t.Errorf("all categories together: %s, %t, expected 20s, to the message of another one", got, ok)
	}
}
