package simulate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"notifier/internal/devstack/embedded"
	"notifier/internal/devstack/simulate"
	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// model decides as the contract says, with no more than a list of what was sent.
type model struct {
	rules  ratelimit.Rules
	dedupe time.Duration
	sent   []simulate.Event
	taken  map[scope][]charge
}

// scope is what has a limit: a category, a group, or all events.
type scope struct{ level, name string }

// charge is what an event has taken of a scope.
type charge struct {
	at   int64 // the microsecond that it counts from; in buckets the last one of its bucket
	cost int
}

// scopesOf are the scopes of a category with their limits, the narrowest first: of those that free at the same time it is named.
func (m *model) scopesOf(category string) ([]scope, []ratelimit.Limit) {
	group, _, _ := strings.Cut(category, ".")
	scopes := []scope{{"category", category}, {"group", group}, {"global", ""}}
	limits := []ratelimit.Limit{m.rules.LimitFor(category), m.rules.GroupLimit(group), m.rules.Global}
	if len(limits[1]) == 0 {
		return []scope{scopes[0], scopes[2]}, []ratelimit.Limit{limits[0], limits[2]}
	}
	return scopes, limits
}

// width is the length of a limit's buckets in microseconds; 0: it keeps each event.
func width(limit ratelimit.Limit) int64 {
	var length int64
	for _, tier := range limit {
		switch {
		case tier.Precision > 0:
			return exactOr(limit, tier.Precision.Microseconds())
		case !tier.Fixed:
			return 0
		}
		a, b := length, tier.Window.Microseconds()
		for b > 0 {
			a, b = b, a%b
		}
		length = a
	}
	return length
}

// exactOr is a length, or 0 if a tier of the limit needs each event.
func exactOr(limit ratelimit.Limit, length int64) int64 {
	for _, tier := range limit {
		if !tier.Fixed && tier.Precision == 0 {
			return 0
		}
	}
	return length
}

// used is how many slots of the tier's window are taken at a time.
func (m *model) used(of scope, tier ratelimit.Tier, at int64) int {
	used, window := 0, tier.Window.Microseconds()
	for _, c := range m.taken[of] {
		if begins := at - window + 1; tier.Fixed && c.at >= at/window*window || !tier.Fixed && c.at >= begins {
			used += c.cost
		}
	}
	return used
}

// wait is how long it takes from a time until a cost fits the tier, of which so many slots are there. In buckets it is how long the
// oldest slot takes at least.
func (m *model) wait(of scope, limit ratelimit.Limit, tier ratelimit.Tier, now int64, cost, slots int) (wait int64, atLeast bool) {
	window := tier.Window.Microseconds()
	if m.used(of, tier, now)+cost <= slots {
		return 0, false
	}
	if tier.Fixed {
		return now/window*window + window - now, false
	}
	if width(limit) > 0 {
		for _, c := range m.taken[of] {
			if c.at > now-window {
				return c.at + window - now, true
			}
		}
		panic("a tier in which nothing is taken has no room")
	}
	for _, c := range m.taken[of] { // in the order of their times
		if leaves := c.at + window; leaves > now && m.used(of, tier, leaves)+cost <= slots {
			return leaves - now, false
		}
	}
	panic("it never fits")
}

// reserving reports whether slots are kept in a global tier.
func (m *model) reserving(tier ratelimit.Tier) bool {
	sum := 0
	for _, slots := range m.rules.Reserve {
		sum += slots
	}
	return tier.Count > sum
}

// held is how many slots of a global tier are kept for other categories.
func (m *model) held(category string, tier ratelimit.Tier, now int64) int {
	held := 0
	for other, slots := range m.rules.Reserve {
		if other != category && m.reserving(tier) {
			held += max(0, slots-m.reserved(other, tier, now))
		}
	}
	return held
}

// reservedForOthers is whether slots of a global tier are reserved for other categories, used or not.
func (m *model) reservedForOthers(category string, tier ratelimit.Tier) bool {
	for other := range m.rules.Reserve {
		if other != category && m.reserving(tier) {
			return true
		}
	}
	return false
}

// reserved is what a category has used of its reserve in a global tier.
func (m *model) reserved(category string, tier ratelimit.Tier, now int64) int {
	return m.used(scope{"category", category}, tier, now)
}

// fits reports whether a cost can ever be admitted.
func (m *model) fits(e simulate.Event) bool {
	_, limits := m.scopesOf(e.Category)
	for _, limit := range limits {
		for _, tier := range limit {
			if e.Cost > tier.Count || width(limit) == 0 && e.Cost > 1000 {
				return false
			}
		}
	}
	for _, tier := range m.rules.Global {
		kept := 0
		for other, slots := range m.rules.Reserve {
			if other != e.Category && m.reserving(tier) {
				kept += slots
			}
		}
		if e.Cost > tier.Count-kept {
			return false
		}
	}
	return true
}

func (m *model) decide(e simulate.Event) simulate.Verdict {
	v := simulate.Verdict{Event: e, Outcome: "sent"}
	scopes, limits := m.scopesOf(e.Category)
	if len(scopes) == 3 {
		v.Group = scopes[1].name
	}
	if !m.fits(e) {
		v.Outcome, v.Reason = "dead", "malformed"
		return v
	}
	for _, earlier := range m.sent {
		if e.ID != "" && earlier.ID == e.ID && earlier.Category == e.Category && earlier.Time().After(e.Time().Add(-m.dedupe)) {
			v.Outcome, v.Reason = "dropped", "duplicate"
			return v
		}
	}
	now := e.Time().UnixMicro()
	for i, of := range scopes {
		for _, tier := range limits[i] {
			held := 0
			if of.level == "global" {
				held = m.held(e.Category, tier, now)
			}
			micros, atLeast := m.wait(of, limits[i], tier, now, e.Cost, tier.Count-held)
			if micros <= 0 {
				continue
			}
			v.AtLeast = v.AtLeast || atLeast || of.level == "global" && m.reservedForOthers(e.Category, tier)
			if wait := time.Duration(micros) * time.Microsecond; wait > v.RetryAfter {
				v.Outcome, v.Reason, v.Tier, v.RetryAfter, v.Reserved = "dropped", of.level, tier, wait, held
			}
		}
	}
	if v.Outcome != "sent" {
		return v
	}
	m.sent = append(m.sent, e)
	for i, of := range scopes {
		at := now
		if length := width(limits[i]); length > 0 {
			at = now/length*length + length - 1
		}
		m.taken[of] = append(m.taken[of], charge{at, e.Cost})
	}
	return v
}

// decideAll decides a history. Of events of the same microsecond each shows what its category uses after all of them.
func (m *model) decideAll(events []simulate.Event) []simulate.Verdict {
	verdicts := make([]simulate.Verdict, len(events))
	for from, to := 0, 0; from < len(events); from = to {
		for to = from; to < len(events) && events[to].Time().Equal(events[from].Time()); to++ {
			verdicts[to] = m.decide(events[to])
		}
		for i := from; i < to; i++ {
			if _, reserved := m.rules.Reserve[events[i].Category]; reserved && verdicts[i].Outcome == "sent" {
				verdicts[i].ReserveUse = m.reserveUse(events[i])
			}
		}
	}
	return verdicts
}

// reserveUse is what a category uses of the longest global tier in which slots are kept.
func (m *model) reserveUse(e simulate.Event) int {
	var longest ratelimit.Tier
	for _, tier := range m.rules.Global {
		if m.reserving(tier) && tier.Window > longest.Window {
			longest = tier
		}
	}
	return m.reserved(e.Category, longest, e.Time().UnixMicro())
}

var windows = []time.Duration{time.Millisecond, 40 * time.Millisecond, 10 * time.Second, time.Hour}

// anyLimit is of tiers that are exact, in buckets or fixed. A limit in buckets alone is as likely as one with an exact tier.
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
		// Tiers that do not go with those before are left out.
		if _, err := ratelimit.ParseLimit(append(slices.Clone(limit), tier).String()); err == nil {
			limit = append(limit, tier)
		}
	}
	return limit
}

// anyRules are rules with groups and reserves, which may be none.
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

// TestDecisions plays random histories and compares every verdict whole: with the model, and with a limiter that is asked
// without Run, keeps ids for the whole dedupe window, and is informed of each event that is sent.
func TestDecisions(t *testing.T) {
	t.Parallel()
	compare := cmp.Options{cmpopts.IgnoreUnexported(simulate.Event{})}
	events := 0
	rapid.Check(t, func(r *rapid.T) {
		rules := anyRules(r)
		dedupe := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Minute, 3 * time.Hour}).Draw(r, "dedupe")
		history := anyHistory(r)
		got := run(t, history, rules, dedupe)
		m := model{rules: rules, dedupe: dedupe, taken: map[scope][]charge{}}
		want := m.decideAll(read(t, history).Events)
		if diff := cmp.Diff(want, got, compare); diff != "" {
			r.Fatalf("%+v\n%s(-model +simulated):\n%s", rules, history, diff)
		}
		if diff := cmp.Diff(asked(t, read(t, history).Events, rules, dedupe), outcomes(got)); diff != "" {
			r.Fatalf("%s(-limiter +simulated):\n%s", history, diff)
		}
		events += len(got)
	})
	t.Logf("%d events compared", events)
}

// asked are the outcomes that a limiter of its own gives, with its whole dedupe window. Events of one microsecond are one
// batch, as they are for Run: in batches of their own the limiter's clock would put them a microsecond apart.
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
		var places []int // of each request among the events
		for to = from; to < len(events) && events[to].Time().Equal(events[from].Time()); to++ {
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
		store.SetTime(events[from].Time())
		decisions, err := limiter.Admit(t.Context(), requests)
		kit.Check(t, err)
		for i, d := range decisions {
			switch d.Outcome {
			case ratelimit.Admitted:
				outcomes[places[i]] = "sent"
				kit.Check(t, limiter.Sent(t.Context(), requests[i]))
			case ratelimit.Duplicate:
				outcomes[places[i]] = "duplicate"
			default:
				outcomes[places[i]] = fmt.Sprint(d.Tier, " for ", d.RetryAfter)
			}
		}
	}
	return outcomes
}

// outcomes writes verdicts as asked does.
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
