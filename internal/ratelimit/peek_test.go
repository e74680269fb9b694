package ratelimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// For every tier, Peek returns the used slots and the time until the next one is free. It only reads.
func TestPeekTellsWhatAdmitWouldDecide(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("3/30m", "2/30m+1/10s", "deploys=5/1h")
		ctx := t.Context()
		limiter := s.limiter(t, rules, time.Hour)
		limiter.admits(event("a", "errors"))
		before := s.contents(t)
		usages, err := limiter.Peek(ctx, "errors", "deploys", "never seen")
		kit.Check(t, err)
		if diff := cmp.Diff(before, s.contents(t)); diff != "" {
			t.Errorf("peek wrote (-before +after):\n%s", diff)
		}
		wait := usages[2].FreeIn
		if wait <= 0 || wait > 10*time.Second {
			t.Errorf("errors' 1/10s frees in %s, expected up to 10s", wait)
		}
		usages[2].FreeIn = 0
		want := []ratelimit.Usage{
			{Tier: rules.Global[0], Used: 1},
			{Category: "errors", Tier: rules.Category[0], Used: 1},
			{Category: "errors", Tier: rules.Category[1], Used: 1},
			{Category: "deploys", Tier: mustParse("5/1h")[0]},
			{Category: "never seen", Tier: rules.Category[0]},
			{Category: "never seen", Tier: rules.Category[1]},
		}
		if diff := cmp.Diff(want, usages); diff != "" {
			t.Errorf("usages (-want +got):\n%s", diff)
		}
		categories, entries, err := limiter.Recent(ctx, 10)
		if err != nil || !cmp.Equal(categories, []string{"errors"}) || entries != 1 {
			t.Errorf("categories %q of %d entries, %v; expected errors alone", categories, entries, err)
		}
	})
}

// shown is the expected result of Peek at a time after a whole hour.
type shown struct {
	after time.Duration
	used  int
	free  time.Duration
}

func TestPeekIsExactToTheMicrosecond(t *testing.T) {
	const early = time.Microsecond // before the end of a window or a bucket
	tests := map[string]struct {
		limit  string
		events []time.Duration // after a whole hour
		shown  []shown         // for the first tier
	}{
		"exact": {"2/10m", []time.Duration{10 * time.Second, time.Minute}, []shown{
			{time.Minute, 2, 9*time.Minute + 10*time.Second},
			{10*time.Minute + 10*time.Second - early, 2, early},
			{10*time.Minute + 10*time.Second, 1, 0},
		}},
		// The first event falls in the first microsecond of the window.
		"fixed, among exact ones": {"2/10m:fixed+9/1h", []time.Duration{0, 4 * time.Minute}, []shown{
			{4 * time.Minute, 2, 6 * time.Minute},
			{10*time.Minute - early, 2, early},
			{10 * time.Minute, 0, 0},
		}},
		"fixed, none at its beginning": {"2/10m:fixed+9/1h", []time.Duration{time.Minute, 4 * time.Minute}, []shown{
			{4 * time.Minute, 2, 6 * time.Minute},
		}},
		// The longer tier keeps the first bucket after it has left the window of the first tier.
		"in buckets": {"3/10m:1m+9/1h:1m", []time.Duration{10 * time.Second, 4 * time.Minute, 8 * time.Minute, 12 * time.Minute}, []shown{
			{12 * time.Minute, 3, 3*time.Minute - early},
			{15*time.Minute - early - early, 3, early},
			{15*time.Minute - early, 2, 0},
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newEmbedded(t, redistest.RunEmbedded(t))
			limiter := s.limiter(t, kit.Rules("100/30m", test.limit, ""), day)
			s.later(t, 0)
			hour := s.now
			for i, after := range test.events {
				s.advance(t, hour.Add(after).Sub(s.now))
				limiter.admits(event(fmt.Sprint("e", i), "a"))
			}
			for _, want := range test.shown {
				s.advance(t, hour.Add(want.after).Sub(s.now))
				usages := limiter.peek("a")
				if got := (shown{want.after, usages[1].Used, usages[1].FreeIn}); got != want {
					t.Errorf("%+v, expected %+v", got, want)
				}
			}
		})
	}
}
