package app

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/settings"
	"notifier/internal/status"
	"notifier/internal/status/config"
	"notifier/internal/steering"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// TestExplanationsComeTrue compares the status of a category with the decision about its next event, under limits
// of all forms, reserves, and temporary limits.
func TestExplanationsComeTrue(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for i := range 25 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			namespace := fmt.Sprintf("explain-%d", i)
			limits := randomRules(t, random)
			client := server.ClientFor(t, "{"+namespace+"}")
			own := config.Deciding{Rules: limits, Dedupe: time.Hour}
			store, err := OpenStore(settings.Store{Redis: client, Namespace: namespace, Limits: limits, Dedupe: time.Hour}, own)
			kit.Check(t, err)
			explain := func(category string) status.Explanation {
				e, err := store.Status.Explain(t.Context(), category)
				kit.Check(t, err)
				return e
			}
			for n := range 60 {
				if n == 30 {
					steerAtRandom(t, random, store)
				}
				category := []string{"a", "a.x", "a.y", "b", "payments", "payments.x"}[random.IntN(6)]
				e := explain(category)
				decided, err := store.Limiter.Admit(t.Context(), []ratelimit.Request{{ID: fmt.Sprint(n), Delivery: fmt.Sprint(n), Category: category, Cost: 1}})
				kit.Check(t, err)
				if got := differenceOf(decided[0], e); got != "" {
					t.Fatalf("event %d of %s: %+v\nbut the decision is %+v: %s\n%+v", n, category, e, decided[0], got, limits)
				}
			}
		})
	}
}

// differenceOf says how a decision differs from the status of its category. It returns "" if it does not.
func differenceOf(d ratelimit.Decision, e status.Explanation) string {
	reason := map[ratelimit.Verdict]string{ratelimit.Category: outcome.Category, ratelimit.Group: outcome.Group, ratelimit.Global: outcome.Global}[d.Verdict]
	switch {
	case e.Sends != (d.Verdict == ratelimit.Admitted) || e.Reason != reason:
		return "another outcome"
	case e.Sends:
		return ""
	case e.Limit != d.Tier.String():
		return "another limit"
	}
	// The decision is made later.
	if late := time.Duration(e.RetryAfterS*float64(time.Second)) - d.RetryAfter; late < -time.Second || late > time.Minute {
		return fmt.Sprintf("another time, by %s", late)
	}
	return ""
}

func randomRules(t *testing.T, random *rand.Rand) ratelimit.Rules {
	t.Helper()
	one := func(list ...string) string { return list[random.IntN(len(list))] }
	rules := kit.Rules(one("10/30h", "12/30h:1h", "20/20h+10/10h", "11/24h:fixed"), one("5/30h", "4/30h:2h", "5/24h:fixed", "9/10h+8/20h"), one("", "a.>=3/20h", "payments=6/30h,*.x=2/40h:1h"))
	// No 20h:1h: in one hour of each day its buckets would be over a microsecond before the day is, and no
	// status is so exact.
	rules.Group, _ = ratelimit.ParseGroupLimit(one("", "7/30h", "6/19h30m:1h"))
	rules.GroupOverrides, _ = ratelimit.ParseGroupOverrides(one("", "b=2/10h"))
	rules.Reserve, _ = ratelimit.ParseReserve(one("", "payments=3", "payments=2,a.x=2"))
	if rules.CheckReserve() != nil { // a category with a reserve is not counted in buckets
		rules.Reserve = nil
	}
	return rules
}

// steerAtRandom applies temporary limits, as a worker that follows them does.
func steerAtRandom(t *testing.T, random *rand.Rand, store Store) {
	t.Helper()
	var orders []steering.Order
	for _, limit := range [][2]string{{"global", "6/30h"}, {"group/a", "4/20h"}, {"category/b", "20/10h"}, {"group/payments", "3/1h"}} {
		if random.IntN(2) == 0 {
			continue
		}
		order, err := steering.NewLimit(limit[0], limit[1], "", "")
		kit.Check(t, err)
		order, _, err = store.Steering.Set(t.Context(), order, 100*time.Hour)
		kit.Check(t, err)
		orders = append(orders, order)
	}
	store.Limiter.SetTemporary(steering.Temporary(orders))
}
