package simulate_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"notifier/internal/devstack/embedded"
	"notifier/internal/devstack/simulate"
	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

var windows = []time.Duration{time.Millisecond, 40 * time.Millisecond, 10 * time.Second, time.Hour}

// anyLimit draws a limit with exact tiers, tiers with a precision and fixed tiers. Half of the draws exclude
// exact tiers, because only a limit without them is kept in buckets.
func anyLimit(r *rapid.T, name string, most int) ratelimit.Limit {
	kinds := []string{"exact", "precision", "fixed"}[rapid.IntRange(0, 1).Draw(r, name+" kinds"):]
	var limit ratelimit.Limit
	var precision time.Duration
	for _, window := range rapid.SliceOfNDistinct(rapid.SampledFrom(windows), 1, 3, rapid.ID).Draw(r, name+" windows") {
		tier := ratelimit.Tier{Count: rapid.IntRange(1, most).Draw(r, name+" count"), Window: window}
		switch rapid.SampledFrom(kinds).Draw(r, name+" kind") {
		case "precision":
			if precision == 0 {
				parts := rapid.IntRange(1, 9).Draw(r, name+" parts")
				precision = max(time.Millisecond, window/time.Duration(parts)).Truncate(time.Microsecond)
			}
			tier.Precision = precision
		case "fixed":
			tier.Fixed = true
		}
		// Skip a tier that is invalid in combination with those before it.
		if _, err := ratelimit.ParseLimit(append(slices.Clone(limit), tier).String()); err == nil {
			limit = append(limit, tier)
		}
	}
	return limit
}

// anyRules draws rules, some with group limits and reservations.
func anyRules(r *rapid.T) ratelimit.Rules {
	rules := kit.Rules(anyLimit(r, "global", 8).String(), anyLimit(r, "category", 5).String(),
		"c="+anyLimit(r, "override", 5).String()+",a.*="+anyLimit(r, "pattern", 5).String())
	if rapid.Bool().Draw(r, "groups") {
		rules.Group = anyLimit(r, "group", 6)
	}
	if rapid.Bool().Draw(r, "group overrides") {
		rules.GroupOverrides = map[string]ratelimit.Limit{"a": anyLimit(r, "group override", 6)}
	}
	rules.Reserve = rapid.MapOfN(rapid.SampledFrom([]string{"a", "a.x", "c", "absent"}), rapid.IntRange(1, 3), 0, 3).Draw(r, "reserve")
	for category := range rules.Reserve {
		if rules.CheckReserved(category, rules.LimitFor(category)) != nil {
			delete(rules.Reserve, category)
		}
	}
	if rules.CheckReserve() != nil {
		rules.Reserve = nil
	}
	return rules
}

func anyHistory(r *rapid.T) string {
	after := time.Duration(0)
	return repeat(rapid.IntRange(1, 40).Draw(r, "events"), func(int) string {
		after += rapid.SampledFrom([]time.Duration{
			0, 0, time.Microsecond, 700 * time.Microsecond, time.Millisecond, 39 * time.Millisecond, 40 * time.Millisecond,
			4 * time.Second, 10 * time.Second, 20 * time.Minute, time.Hour, 2 * time.Hour,
		}).Draw(r, "pause")
		var fields []string
		if cost := rapid.SampledFrom([]int{0, 0, 0, 0, 0, 0, 1, 2, 3, 7}).Draw(r, "cost"); cost > 0 {
			fields = append(fields, fmt.Sprintf(`"cost":%d`, cost))
		}
		if id := rapid.IntRange(-10, 10).Draw(r, "id"); id > 0 {
			fields = append(fields, fmt.Sprintf(`"id":"event %d"`, id))
		}
		return at(after, rapid.SampledFrom([]string{"a", "a.x", "b", "c", "d e"}).Draw(r, "category"), fields...)
	})
}

// Run shortens the dedupe window as far as the history allows. For random histories, it decides like a
// limiter that keeps ids for the whole window.
func TestRunDecidesAsALimiterThatIsAsked(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		rules := anyRules(r)
		dedupe := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Minute, 3 * time.Hour}).Draw(r, "dedupe")
		history := anyHistory(r)
		want, got := asked(t, read(t, history).Events, rules, dedupe), outcomes(run(t, history, rules, dedupe))
		if diff := cmp.Diff(want, got); diff != "" {
			r.Fatalf("%+v\n%s(-limiter +simulated):\n%s", rules, history, diff)
		}
	})
}

// asked returns the outcomes of a separate limiter with the whole dedupe window. Like Run, it decides events
// of the same microsecond in one batch. In separate batches, the limiter's clock would place them a
// microsecond apart.
func asked(t *testing.T, events []simulate.Event, rules ratelimit.Rules, dedupe time.Duration) []string {
	store := embedded.NewStore()
	store.SetTime(began)
	kit.Check(t, store.Start())
	defer store.Close()
	client := redis.NewClient(&redis.Options{Addr: store.Addr()})
	defer client.Close()
	limiter, err := ratelimit.New(client, "n", rules, dedupe)
	kit.Check(t, err)
	outcomes := make([]string, len(events))
	for from, to := 0, 0; from < len(events); from = to {
		var requests []ratelimit.Request
		var places []int // index of each request's event
		for to = from; to < len(events) && events[to].Time.Equal(events[from].Time); to++ {
			e := events[to]
			if e.Cost > rules.MaxCost(e.Category) {
				outcomes[to] = "dead"
				continue
			}
			id := e.ID
			if id == "" {
				id = fmt.Sprint("only ", to)
			}
			requests = append(requests, ratelimit.Request{
				ID: id, Delivery: fmt.Sprint("message ", to), Category: e.Category, Cost: e.Cost,
			})
			places = append(places, to)
		}
		store.SetTime(events[from].Time)
		decisions, err := limiter.Admit(t.Context(), requests)
		kit.Check(t, err)
		for i, d := range decisions {
			switch d.Verdict {
			case ratelimit.Admitted:
				outcomes[places[i]] = "sent"
				kit.Check(t, limiter.Sent(t.Context(), requests[i]))
			case ratelimit.Duplicate:
				outcomes[places[i]] = "duplicate"
			default:
				outcomes[places[i]] = fmt.Sprint(d.Verdict.Reason(), " ", d.Tier, " for ", d.RetryAfter)
			}
		}
	}
	return outcomes
}

// outcomes formats verdicts for comparison. A refusal shows the reason, the tier and the wait.
func outcomes(verdicts []simulate.Verdict) []string {
	var outcomes []string
	for _, v := range verdicts {
		switch {
		case v.Outcome != "dropped":
			outcomes = append(outcomes, v.Outcome)
		case v.Reason == "duplicate":
			outcomes = append(outcomes, v.Reason)
		default:
			outcomes = append(outcomes, fmt.Sprint(v.Reason, " ", v.Tier, " for ", v.RetryAfter))
		}
	}
	return outcomes
}
