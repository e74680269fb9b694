package simulate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/devstack/simulate"
	"notifier/test/kit"
)

// tally counts verdicts by outcome and reason.
func tally(verdicts []simulate.Verdict) map[string]int {
	counts := map[string]int{}
	for _, v := range verdicts {
		counts[strings.TrimSuffix(v.Outcome+" "+v.Reason, " ")]++
	}
	return counts
}

// A storm is held to both limits, and each refusal says which of them it was and when there is room.
func TestAStormOfManyCategoriesIsHeldToBothLimits(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]time.Duration{"in one microsecond": 0, "in some milliseconds": 7 * time.Microsecond} {
		storm := repeat(35, func(i int) string { return at(time.Duration(i)*pause, fmt.Sprintf("service-%d", i/5)) })
		verdicts := run(t, storm, kit.Rules("15/30m", "3/30m", ""), day)
		want := map[string]int{"sent": 15, "dropped category": 10, "dropped global": 10}
		if diff := cmp.Diff(want, tally(verdicts)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got := outcomes(verdicts)[3]; got != fmt.Sprint("3/30m for ", 30*time.Minute-3*pause) {
			t.Errorf("%s: the fourth of a category: %s", name, got)
		}
	}
}

// A window rolls: the next is sent when the oldest leaves it, to the microsecond.
func TestAWindowRolls(t *testing.T) {
	t.Parallel()
	minute := func(i int) string { return at(time.Duration(i)*time.Minute, "errors") }
	text := repeat(10, minute) + at(30*time.Minute-time.Microsecond, "errors") + at(30*time.Minute, "errors") + at(30*time.Minute, "errors")
	got := outcomes(run(t, text, kit.Rules("100/30m", "10/30m", ""), day))[10:]
	want := []string{"10/30m for 1µs", "sent", "10/30m for 1m0s"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTiersCostsAndOverrides(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text, category, overrides string
		want                      []string
	}{
		"tiers": {
			text:     repeat(5, func(i int) string { return at(time.Duration(i)*3*time.Second, "a") }),
			category: "2/30m+1/5s",
			want:     []string{"sent", "1/5s for 2s", "sent", "2/30m for 29m51s", "2/30m for 29m48s"},
		},
		"cost": {
			text:     at(0, "a", `"cost":3`) + at(0, "a", `"cost":2`) + at(0, "a") + at(0, "a") + at(0, "a", `"cost":5`),
			category: "4/30m",
			want:     []string{"sent", "4/30m for 30m0s", "sent", "4/30m for 30m0s", "dead"},
		},
		"overrides": {
			text:     repeat(3, func(int) string { return at(0, "a") + at(0, "b") }),
			category: "1/30m", overrides: "b=2/1h",
			want: []string{"sent", "sent", "1/30m for 30m0s", "sent", "1/30m for 30m0s", "2/1h for 1h0m0s"},
		},
	} {
		if diff := cmp.Diff(test.want, outcomes(run(t, test.text, kit.Rules("100/30m", test.category, test.overrides), day))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Each level refuses in its own words, and what is kept for a category is refused to the others alone.
func TestLevelsReservesBucketsAndFixedWindows(t *testing.T) {
	t.Parallel()
	three := func(category string) string { return repeat(3, func(int) string { return at(0, category) }) }
	for name, test := range map[string]struct {
		text, global, group, groups, reserve string
		want                                 []string
	}{
		"a group": {
			text: at(0, "a.x") + at(0, "a.y") + at(0, "a") + at(0, "b"), global: "9/1h", group: "2/1m",
			want: []string{"sent", "sent", "2/1m for 1m0s", "sent"},
		},
		"a group of its own": {
			text: three("a") + three("b.x"), global: "9/1h", groups: "b=1/2m",
			want: []string{"sent", "sent", "sent", "sent", "1/2m for 2m0s", "1/2m for 2m0s"},
		},
		"a reserve": {
			text: three("a") + three("b"), global: "4/1h", reserve: "b=2",
			want: []string{"sent", "sent", "4/1h for 1h0m0s", "sent", "sent", "4/1h for 1h0m0s"},
		},
		"a cost above what is not kept": {
			text: at(0, "a", `"cost":3`) + at(0, "b", `"cost":4`), global: "4/1h", reserve: "b=2",
			want: []string{"dead", "sent"},
		},
		"a cost above what is kept one by one": {
			text: at(0, "a", `"cost":1000`) + at(0, "a", `"cost":1001`), global: "5000/1h", group: "5000/1h:1m",
			want: []string{"sent", "dead"},
		},
		// The minute of 04:39:01.123457 ends in 58.876543 s, the hour in 20 min 58.876543 s.
		"buckets":        {text: three("a"), global: "2/1h:1m", want: []string{"sent", "sent", "2/1h:1m for 1h0m58.876542s"}},
		"a fixed window": {text: three("a"), global: "2/1h:fixed", want: []string{"sent", "sent", "2/1h:fixed for 20m58.876543s"}},
	} {
		rules := levels(kit.Rules(test.global, "5000/1h", ""), test.group, test.groups, test.reserve)
		if diff := cmp.Diff(test.want, outcomes(run(t, test.text, rules, day))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAnIDIsSentOnceInTheDedupeWindow(t *testing.T) {
	t.Parallel()
	x := func(after time.Duration) string { return at(after, "a", `"id":"x"`) }
	text := x(0) + x(0) + x(time.Hour) + x(2*time.Hour-time.Microsecond) + x(2*time.Hour) + x(3*time.Hour) +
		at(3*time.Hour, "b", `"id":"x"`) + at(3*time.Hour, "b", `"id":"9"`) + at(3*time.Hour, "b") + at(3*time.Hour, "b", `"id":""`)
	// The ninth line has no id: it is not the event "9".
	// The seventh has the id of another category's event, which is not its own.
	want := []string{"sent", "duplicate", "duplicate", "duplicate", "sent", "duplicate", "sent", "sent", "sent", "sent"}
	if diff := cmp.Diff(want, outcomes(run(t, text, kit.Rules("100/30m", "10/30m", ""), 2*time.Hour))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// One that was refused was not sent: it is no duplicate.
	text = at(0, "a") + x(0) + x(time.Hour)
	if diff := cmp.Diff([]string{"sent", "1/30m for 30m0s", "sent"}, outcomes(run(t, text, kit.Rules("100/30m", "1/30m", ""), day))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// More events of one microsecond than the script takes in one call.
func TestManyEventsAtOnce(t *testing.T) {
	t.Parallel()
	verdicts := run(t, repeat(2500, func(int) string { return at(0, "a") }), kit.Rules("2000/1h", "2000/1h", ""), day)
	if diff := cmp.Diff(map[string]int{"sent": 2000, "dropped category": 500}, tally(verdicts)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for i, v := range verdicts {
		if v.Line != i+1 {
			t.Fatalf("verdict %d is of line %d", i+1, v.Line)
		}
	}
}

func TestRunEndsWithItsContextAndItsObserver(t *testing.T) {
	t.Parallel()
	events := read(t, repeat(10, func(i int) string { return at(time.Duration(i)*time.Second, "a") })).Events
	for _, n := range []int{0, 3} {
		ctx, cancel := context.WithCancel(t.Context())
		seen := 0
		if n == 0 {
			cancel()
		}
		err := simulate.Run(ctx, events, kit.Rules("100/30m", "10/30m", ""), day, func(simulate.Verdict) error {
			if seen++; seen == n {
				cancel()
			}
			return nil
		})
		cancel()
		if !errors.Is(err, context.Canceled) || seen != n {
			t.Errorf("canceled after %d: %d verdicts and %v", n, seen, err)
		}
	}
	full := errors.New("disk full")
	if err := simulate.Run(t.Context(), events, kit.Rules("100/30m", "10/30m", ""), day, func(simulate.Verdict) error { return full }); !errors.Is(err, full) {
		t.Errorf("%v, expected the observer's error", err)
	}
}
