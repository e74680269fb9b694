package simulate_test

import (
	"fmt"
	"testing"
	"time"

	"notifier/internal/devstack/embedded"
	"notifier/internal/devstack/simulate"
	"notifier/test/kit"
)

// TestMemoryIsBoundedByTheWindows: a category that falls silent leaves no key behind its window.
func TestMemoryIsBoundedByTheWindows(t *testing.T) {
	t.Parallel()
	const n = 300
	aDayApart := repeat(n, func(i int) string {
		return at(time.Duration(i)*day, fmt.Sprint("category-", i), `"id":"x"`)
	})
	store := embedded.NewStore()
	defer store.Close()
	decided, fewest, most := 0, n, 0
	err := simulate.RunOn(
		t.Context(), store, read(t, aDayApart).Events, kit.Rules("100/30m", "10/30m", ""), time.Hour,
		func(simulate.Verdict) error {
			keys := len(store.Keys())
			decided, fewest, most = decided+1, min(fewest, keys), max(most, keys)
			return nil
		},
	)
	kit.Check(t, err)
	if decided != n || most > 20 {
		t.Errorf("%d to %d keys during %d events, expected at most 20 during %d", fewest, most, decided, n)
	}
	if fewest == 0 {
		t.Error("the store was empty after an event was sent: this test looks into another one")
	}
}

// TestNeededDedupe: the window spans repeated ids that are less than the given window apart, and no more than that.
func TestNeededDedupe(t *testing.T) {
	t.Parallel()
	x := func(after time.Duration) string { return at(after, "a", `"id":"x"`) }
	for name, test := range map[string]struct {
		text string
		want time.Duration
	}{
		"no id":                   {at(0, "a") + at(time.Hour, "a"), time.Second},
		"each id once":            {x(0) + at(time.Hour, "b", `"id":"x"`) + at(time.Hour, "a", `"id":"y"`), time.Second},
		"twice":                   {x(0) + x(time.Hour), time.Hour + time.Second},
		"twice, at the window":    {x(0) + x(2*time.Hour), time.Second},
		"twice, just below it":    {x(0) + x(2*time.Hour-time.Microsecond), 2 * time.Hour},
		"first to last within it": {x(0) + x(time.Minute) + x(time.Hour), time.Hour + time.Second},
		"the longest of several":  {x(0) + x(time.Hour) + x(150*time.Minute) + x(4*time.Hour), 90*time.Minute + time.Second},
		"another id in between":   {x(0) + at(time.Second, "a", `"id":"y"`) + x(time.Minute), time.Minute + time.Second},
	} {
		if got := simulate.NeededDedupe(read(t, test.text).Events, 2*time.Hour); got != test.want {
			t.Errorf("%s: %s, expected %s", name, got, test.want)
		}
	}
}
