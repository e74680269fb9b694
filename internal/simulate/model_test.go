//go:build !production

package simulate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"notifier/internal/embedded"
	"notifier/internal/ratelimit"
	"notifier/internal/simulate"
	"notifier/internal/testkit"
)

// model decides as the contract says, with no more than a list of what was sent.
type model struct {
	rules  ratelimit.Rules
	dedupe time.Duration
	sent   []simulate.Event
}

// used is how many slots of the window (until - window, until] are taken; category "": overall.
func (m *model) used(category string, window time.Duration, until time.Time) int {
	used := 0
	for _, e := range m.sent {
		if (category == "" || e.Category == category) && e.Time().After(until.Add(-window)) {
			used += e.Cost
		}
	}
	return used
}

// wait is how long it takes from the event's time until it fits the tier.
func (m *model) wait(e simulate.Event, category string, tier ratelimit.Tier) time.Duration {
	now := e.Time()
	if m.used(category, tier.Window, now)+e.Cost <= tier.Count {
		return 0
	}
	for _, earlier := range m.sent { // in the order of their times
		leaves := earlier.Time().Add(tier.Window)
		if leaves.After(now) && m.used(category, tier.Window, leaves)+e.Cost <= tier.Count {
			return leaves.Sub(now)
		}
	}
	panic("it never fits")
}

func (m *model) decide(e simulate.Event) simulate.Verdict {
	v := simulate.Verdict{Event: e, Outcome: "sent"}
	own := m.rules.LimitFor(e.Category)
	for _, tier := range append(append(ratelimit.Limit{}, own...), m.rules.Global...) {
		if e.Cost > tier.Count {
			v.Outcome, v.Reason = "dead", "malformed"
			return v
		}
	}
	for _, earlier := range m.sent {
		if e.ID != "" && earlier.ID == e.ID && earlier.Category == e.Category && earlier.Time().After(e.Time().Add(-m.dedupe)) {
			v.Outcome, v.Reason = "dropped", "duplicate"
			return v
		}
	}
	refuse := func(reason, category string, limit ratelimit.Limit) {
		for _, tier := range limit {
			if wait := m.wait(e, category, tier); wait > v.RetryAfter {
				v.Outcome, v.Reason, v.Tier, v.RetryAfter = "dropped", reason, tier, wait
			}
		}
	}
	refuse("category", e.Category, own) // first: of two that free at the same time it is named
	refuse("global", "", m.rules.Global)
	if v.Outcome == "sent" {
		m.sent = append(m.sent, e)
	}
	return v
}

var windows = []time.Duration{time.Millisecond, 40 * time.Millisecond, 10 * time.Second, time.Hour}

func anyLimit(r *rapid.T, name string, most int) ratelimit.Limit {
	var limit ratelimit.Limit
	for _, window := range rapid.SliceOfNDistinct(rapid.SampledFrom(windows), 1, 3, rapid.ID).Draw(r, name+" windows") {
		limit = append(limit, ratelimit.Tier{Count: rapid.IntRange(1, most).Draw(r, name+" count"), Window: window})
	}
	return limit
}

func anyHistory(r *rapid.T) string {
	after := time.Duration(0)
	return repeat(rapid.IntRange(1, 40).Draw(r, "events"), func(int) string {
		after += rapid.SampledFrom([]time.Duration{
			0, 0, time.Microsecond, 700 * time.Microsecond, time.Millisecond, 39 * time.Millisecond, 40 * time.Millisecond,
			4 * time.Second, 10 * time.Second, 20 * time.Minute, time.Hour, 2 * time.Hour,
		}).Draw(r, "pause")
		var fields []string
		if cost := rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3, 7}).Draw(r, "cost"); cost > 0 {
			fields = append(fields, fmt.Sprintf(`"cost":%d`, cost))
		}
		if id := rapid.IntRange(-10, 10).Draw(r, "id"); id > 0 {
			fields = append(fields, fmt.Sprintf(`"id":"event %d"`, id))
		}
		return at(after, rapid.SampledFrom([]string{"a", "b", "c", "d e"}).Draw(r, "category"), fields...)
	})
}

// TestDecisions plays random histories and compares every verdict whole: with the model, and with a limiter on a store
// whose keys expire, that is asked for one event after the other and informed of each that is sent.
func TestDecisions(t *testing.T) {
	t.Parallel()
	compare := cmp.Options{cmpopts.IgnoreUnexported(simulate.Event{})}
	events := 0
	rapid.Check(t, func(r *rapid.T) {
		override := anyLimit(r, "override", 5)
		rules := testkit.Rules(anyLimit(r, "global", 8).String(), anyLimit(r, "category", 5).String(), "c="+override.String())
		dedupe := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Minute, 3 * time.Hour}).Draw(r, "dedupe")
		history := anyHistory(r)
		got := run(t, history, rules, dedupe)
		longest := time.Duration(0)
		for _, limit := range []ratelimit.Limit{rules.Global, rules.Category, override} {
			for _, tier := range limit {
				longest = max(longest, tier.Window)
			}
		}
		m := model{rules: rules, dedupe: max(dedupe, longest)}
		var want []simulate.Verdict
		for _, e := range read(t, history).Events {
			want = append(want, m.decide(e))
		}
		if diff := cmp.Diff(want, got, compare); diff != "" {
			r.Fatalf("%s(-model +simulated):\n%s", history, diff)
		}
		if diff := cmp.Diff(oneByOne(t, read(t, history).Events, rules, dedupe), outcomes(got)); diff != "" {
			r.Fatalf("%s(-limiter +simulated):\n%s", history, diff)
		}
		events += len(got)
	})
	t.Logf("%d events compared", events)
}

// oneByOne asks a limiter of its own.
func oneByOne(t *testing.T, events []simulate.Event, rules ratelimit.Rules, dedupe time.Duration) []string {
	store := embedded.NewStore()
	store.SetTime(began)
	testkit.Check(t, store.Start())
	defer store.Close()
	client := redis.NewClient(&redis.Options{Addr: store.Addr()})
	defer client.Close()
	limiter, err := ratelimit.New(client, "n", rules, dedupe)
	testkit.Check(t, err)
	var outcomes []string
	for i, e := range events {
		if e.Cost > rules.MaxCost(e.Category) {
			outcomes = append(outcomes, "dead")
			continue
		}
		store.SetTime(e.Time())
		request := ratelimit.Request{ID: e.ID, Delivery: fmt.Sprint("message ", i), Category: e.Category, Cost: e.Cost}
		if request.ID == "" {
			request.ID = fmt.Sprint("only ", i)
		}
		decisions, err := limiter.Admit(t.Context(), []ratelimit.Request{request})
		testkit.Check(t, err)
		switch d := decisions[0]; d.Outcome {
		case ratelimit.Admitted:
			outcomes = append(outcomes, "sent")
			testkit.Check(t, limiter.Sent(t.Context(), request))
		case ratelimit.Duplicate:
			outcomes = append(outcomes, "duplicate")
		default:
			outcomes = append(outcomes, fmt.Sprint(d.Tier, " for ", d.RetryAfter))
		}
	}
	return outcomes
}

// outcomes writes verdicts as oneByOne does.
func outcomes(verdicts []simulate.Verdict) []string {
	var outcomes []string
	for _, v := range verdicts {
		switch {
		case v.Outcome != "dropped":
			outcomes = append(outcomes, v.Outcome)
		case v.Reason == "duplicate":
			outcomes = append(outcomes, v.Reason)
		default:
			outcomes = append(outcomes, fmt.Sprint(v.Tier, " for ", v.RetryAfter))
		}
	}
	return outcomes
}
