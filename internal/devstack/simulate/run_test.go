package simulate_test

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"notifier/internal/devstack/simulate"
	"notifier/test/kit"
)

// A refusal names the tier that refused, at each level. A reservation holds slots back only from other
// categories.
func TestWhatRefusesIsNamed(t *testing.T) {
	t.Parallel()
	three := func(category string) string { return repeat(3, func(int) string { return at(0, category) }) }
	for name, test := range map[string]struct {
		text, global, category, overrides, group, groups, reserve string
		want                                                      []string
	}{
		"tiers of a category": {
			text: repeat(5, func(i int) string { return at(time.Duration(i)*3*time.Second, "a") }), category: "2/30m+1/5s",
			want: []string{"sent", "category 1/5s for 2s", "sent", "category 2/30m for 29m51s", "category 2/30m for 29m48s"},
		},
		"a cost": {
			text: at(0, "a", `"cost":3`) + at(0, "a", `"cost":2`) + at(0, "a") + at(0, "a", `"cost":5`), category: "4/30m",
			want: []string{"sent", "category 4/30m for 30m0s", "sent", "dead"},
		},
		"a group of its own": {
			text: three("a") + three("b.x"), groups: "b=1/2m",
			want: []string{"sent", "sent", "sent", "sent", "group 1/2m for 2m0s", "group 1/2m for 2m0s"},
		},
		"a reserve": {
			text: three("a") + three("b"), global: "4/1h", reserve: "b=2",
			want: []string{"sent", "sent", "global 4/1h for 1h0m0s", "sent", "sent", "global 4/1h for 1h0m0s"},
		},
		// At 04:39:01.123457, the minute ends in 58.876543 s and the hour in 20m58.876543s.
		"buckets":        {text: three("a"), global: "2/1h:1m", want: []string{"sent", "sent", "global 2/1h:1m for 1h0m58.876542s"}},
		"a fixed window": {text: three("a"), global: "2/1h:fixed", want: []string{"sent", "sent", "global 2/1h:fixed for 20m58.876543s"}},
	} {
		limits := kit.Rules(cmp.Or(test.global, "9/1h"), cmp.Or(test.category, "5000/1h"), test.overrides)
		got := outcomes(run(t, test.text, levels(limits, test.group, test.groups, test.reserve), day))
		if !slices.Equal(test.want, got) {
			t.Errorf("%s: %q, expected %q", name, got, test.want)
		}
	}
}

func TestAnIDIsSentOnceInTheDedupeWindow(t *testing.T) {
	t.Parallel()
	x := func(after time.Duration) string { return at(after, "a", `"id":"x"`) }
	text := x(0) + x(0) + x(time.Hour) + x(2*time.Hour-time.Microsecond) + x(2*time.Hour) + x(3*time.Hour) +
		at(3*time.Hour, "b", `"id":"x"`) + at(3*time.Hour, "b", `"id":"9"`) + at(3*time.Hour, "b") + at(3*time.Hour, "b", `"id":""`)
	// Line 7 has the id of an event in another category, so it is a different event.
	// Line 9 has no id, so it is not the event "9".
	want := []string{"sent", "duplicate", "duplicate", "duplicate", "sent", "duplicate", "sent", "sent", "sent", "sent"}
	if got := outcomes(run(t, text, kit.Rules("100/30m", "10/30m", ""), 2*time.Hour)); !slices.Equal(want, got) {
		t.Errorf("%q, expected %q", got, want)
	}
	// An id counts together with its source, also in a log.
	logged := `{"ts":"2026-11-20T04:39:01Z","msg":"notification sent","outcome":"sent","category":"a",` +
		`"event_id":"1","source":"/ci"}` + "\n"
	text = at(0, "a", `"id":"1"`, `"source":"/ci"`) + at(0, "a", `"id":"1"`, `"source":"/db"`) +
		at(time.Hour, "a", `"id":"1"`, `"source":"/ci"`) + at(time.Hour, "a", `"id":"1"`) +
		logged + strings.ReplaceAll(logged, "/ci", "/db") + logged
	want = []string{"sent", "sent", "duplicate", "sent", "sent", "sent", "duplicate"}
	if got := outcomes(run(t, text, kit.Rules("100/30m", "10/30m", ""), day)); !slices.Equal(want, got) {
		t.Errorf("%q, expected %q", got, want)
	}
	// A refused event was not sent, so its repetition is no duplicate.
	text = at(0, "a") + x(0) + x(time.Hour)
	want = []string{"sent", "category 1/30m for 30m0s", "sent"}
	if got := outcomes(run(t, text, kit.Rules("100/30m", "1/30m", ""), day)); !slices.Equal(want, got) {
		t.Errorf("%q, expected %q", got, want)
	}
}

func TestRunEndsWithItsObserver(t *testing.T) {
	t.Parallel()
	events := read(t, at(0, "a")+at(1, "a")).Events
	full, seen := errors.New("disk full"), 0
	observe := func(simulate.Verdict) error { seen++; return full }
	if err := simulate.Run(t.Context(), events, kit.Rules("100/30m", "10/30m", ""), day, observe); !errors.Is(err, full) || seen != 1 {
		t.Errorf("%v after %d verdicts, expected the observer's error", err, seen)
	}
}
