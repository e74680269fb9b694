package ratelimit_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/ratelimit"
	"notifier/internal/testkit"
)

// TestPeekTellsWhatAdmitWouldDecide: used slots and the time until the next one, for every tier, from reading alone.
func TestPeekTellsWhatAdmitWouldDecide(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := testkit.Rules("3/30m", "2/30m+1/10s", "deploys=5/1h")
		ctx := t.Context()
		limiter := s.limiter(t, rules, time.Hour)
		limiter.want(ratelimit.Admitted, event("a", "errors"))
		before := s.contents(t)
		usages, err := limiter.Peek(ctx, "errors", "deploys", "never seen")
		testkit.Check(t, err)
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

// Buckets that have left the window are not used, although they are stored until the next admission.
func TestPeekLeavesOutBucketsThatHaveLeft(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "5/10m:1m", ""), day)
		limiter.want(ratelimit.Admitted, costing(event("e", "a"), 3))
		s.advance(t, 6*time.Minute)
		limiter.want(ratelimit.Admitted, event("f", "a"))
		s.advance(t, 6*time.Minute)
		usages, err := limiter.Peek(t.Context(), "a")
		testkit.Check(t, err)
		if usages[1].Used != 1 || usages[1].FreeIn != 0 {
			t.Errorf("%+v, expected one slot used, and room", usages[1])
		}
	})
}
