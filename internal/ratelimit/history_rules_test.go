package ratelimit_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
)

// Histories in which keys must not expire use longWindows: no key expires between a reply and keep.
var (
	windows     = []time.Duration{time.Millisecond, 3 * time.Millisecond, 40 * time.Millisecond, 400 * time.Millisecond, 10 * time.Second, time.Hour}
	longWindows = []time.Duration{10 * time.Second, 25 * time.Second, 2 * time.Minute, time.Hour}
)

// form restricts the tiers of a limit.
type form int

const (
	exact   form = iota // rolling tiers without a precision: a log
	buckets             // tiers with a precision or a fixed window only
	mixed               // any tiers
)

func anyForm(r *rapid.T) form {
	return rapid.SampledFrom([]form{exact, buckets, mixed}).Draw(r, "form")
}

// anyPrecision draws a precision, which need not divide the window evenly.
func anyPrecision(window time.Duration) *rapid.Generator[time.Duration] {
	return rapid.Custom(func(r *rapid.T) time.Duration {
		parts := rapid.SampledFrom([]float64{1, 2, 3, 4.5, 7, 60, 1440}).Draw(r, "parts")
		precision := time.Duration(float64(window) / parts).Truncate(time.Microsecond)
		return max(precision, ratelimit.MinWindow, (window/ratelimit.MaxBuckets + time.Microsecond).Truncate(time.Microsecond))
	})
}

// anyTiers draws a limit of one to three tiers. It skips a tier that is invalid beside the earlier ones.
func anyTiers(windows []time.Duration, most int, of form) *rapid.Generator[ratelimit.Limit] {
	type kind struct {
		window time.Duration
		fixed  bool
	}
	var kinds []kind
	for _, window := range windows {
		if kinds = append(kinds, kind{window, false}); of != exact {
			kinds = append(kinds, kind{window, true})
		}
	}
	return rapid.Custom(func(r *rapid.T) ratelimit.Limit {
		chosen := rapid.SliceOfNDistinct(rapid.SampledFrom(kinds), 1, 3, rapid.ID).Draw(r, "windows")
		var limit ratelimit.Limit
		precision := time.Duration(0)
		for _, kind := range chosen {
			count := rapid.IntRange(1, most)
			if of == buckets {
				count = rapid.OneOf(count, rapid.IntRange(1, 12*most))
			}
			tier := ratelimit.Tier{Count: count.Draw(r, "count"), Window: kind.window, Fixed: kind.fixed}
			if !kind.fixed && (of == buckets || of == mixed && rapid.Bool().Draw(r, "precise")) {
				if precision == 0 {
					precision = anyPrecision(kind.window).Draw(r, "precision")
				}
				tier.Precision = precision
			}
			if _, err := ratelimit.ParseLimit(append(slices.Clone(limit), tier).String()); err == nil {
				limit = append(limit, tier)
			}
		}
		return limit
	})
}

// The categories of events, and patterns that match some of them.
var (
	categories = []string{"a", "a.x", "a.y", "b", "b.x", "c"}
	patterns   = []string{"b", "c", "a.x", "a.>", "a.*", "*", "*.x", ">"}
)

// anyRules draws rules that settings could express.
func anyRules(r *rapid.T, windows []time.Duration) ratelimit.Rules {
	limit := func(most int, what string) ratelimit.Limit { return anyTiers(windows, most, anyForm(r)).Draw(r, what) }
	rules := ratelimit.Rules{Global: limit(8, "global"), Category: limit(5, "category")}
	overrides := map[string]ratelimit.Limit{}
	for _, of := range rapid.SliceOfNDistinct(rapid.SampledFrom(patterns), 0, 3, rapid.ID).Draw(r, "overridden") {
		overrides[of] = limit(5, "override")
	}
	rules.Overrides = pattern.MustTable(overrides)
	if rapid.Bool().Draw(r, "groups") {
		rules.Group = limit(6, "group")
	}
	rules.GroupOverrides = map[string]ratelimit.Limit{}
	for _, of := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b"}), 0, 1, rapid.ID).Draw(r, "overridden groups") {
		rules.GroupOverrides[of] = limit(6, "group's override")
	}
	rules.Reserve = anyReserve(r, rules)
	return rules
}

// anyReserve draws reservations for categories with an exact limit. Their sum stays below the COUNT of the
// longest global tiers.
func anyReserve(r *rapid.T, rules ratelimit.Rules) map[string]int {
	global := rules.Global
	left := ratelimit.MaxCount
	for _, tier := range global {
		if tier.Window.Microseconds() == longest(global) {
			left = min(left, tier.Count-1)
		}
	}
	reserve := map[string]int{}
	for _, category := range rapid.SliceOfNDistinct(rapid.SampledFrom(categories), 0, 2, rapid.ID).Draw(r, "reserved") {
		if left > 0 && rules.LimitFor(category).Exact() {
			reserve[category] = rapid.IntRange(1, min(left, 6)).Draw(r, "slots")
			left -= reserve[category]
		}
	}
	return reserve
}

// request draws an event, at times one from an earlier batch.
func (h *history) request(r *rapid.T) ratelimit.Request {
	if len(h.asked) > 0 && rapid.IntRange(0, 3).Draw(r, "repeat") == 0 {
		return rapid.SampledFrom(h.asked).Draw(r, "of")
	}
	request := anyRequest(h.costs).Draw(r, "request")
	request.Source = rapid.SampledFrom([]string{"", "", "", "s", "a source"}).Draw(r, "source")
	// All deliveries of a stream message have the same category, source and cost.
	request.Delivery = fmt.Sprintf("%s/%s/%s/%d", request.Delivery, request.Category, request.Source, request.Cost)
	return request
}

// Costs of events: small ones for logs, which have a member for each slot, also big ones for buckets.
var (
	smallCosts = []int{1, 1, 1, 1, 2, 3, 6}
	bigCosts   = append([]int{9, 20, 51}, smallCosts...)
)

// costsFor returns bigCosts if any global limit uses buckets.
func costsFor(replicas []replica) []int {
	for _, p := range replicas {
		if widthOf(p.rules.Global) > 0 {
			return bigCosts
		}
	}
	return smallCosts
}

func anyRequest(costs []int) *rapid.Generator[ratelimit.Request] {
	return rapid.Custom(func(r *rapid.T) ratelimit.Request {
		return ratelimit.Request{
			ID:       fmt.Sprintf("e%d", rapid.IntRange(1, 12).Draw(r, "id")),
			Delivery: fmt.Sprintf("m%d", rapid.IntRange(1, 2).Draw(r, "message")),
			Category: rapid.SampledFrom(categories).Draw(r, "category"),
			Cost:     rapid.SampledFrom(costs).Draw(r, "cost"),
		}
	})
}

// steered is the state of a history with temporary limits. Each worker adopts a change at a different time,
// and decides by its earlier limits until then.
type steered struct {
	limits map[string]ratelimit.Limit // in force, by scope
	counts steeredCounts
}

// steeredCounts counts the operations that make a history worth comparing.
type steeredCounts struct {
	changes int // of the limits in force
	refused int // decisions by a temporary limit
	differ  int // batches decided while another worker had different limits
}

func (c *steeredCounts) add(other steeredCounts) {
	c.changes, c.refused, c.differ = c.changes+other.changes, c.refused+other.refused, c.differ+other.differ
}

const steeredReplicas = 3

// playSteered plays histories with temporary limits, and returns the number of compared operations.
func playSteered(t *testing.T, s *store, client redis.UniversalClient) int {
	operations, counts := 0, steeredCounts{}
	t.Run("temporary limits", func(t *testing.T) {
		rapid.Check(t, func(r *rapid.T) {
			h := newSteeredHistory(t, r, s, client)
			r.Repeat(map[string]func(*rapid.T){
				"admit": h.admit, "admit again": h.admit, "admit once more": h.admit, "dry run": h.dryRun,
				"wait": h.wait, "sent": h.sent, "refund": h.refund, "begin": h.begin,
				"steer": h.steer, "steer again": h.steer, "follow": h.follow, "follow too": h.follow,
			})
			operations += h.operations
			counts.add(h.steered.counts)
		})
	})
	t.Logf("%d operations compared around %d changes of temporary limits, which refused %d events; %d batches while workers had others",
		operations, counts.changes, counts.refused, counts.differ)
	if !t.Failed() && !testing.Short() && (counts.refused == 0 || counts.differ == 0) {
		t.Error("no temporary limit has refused anything, or all workers had the same: this compares nothing")
	}
	return operations
}

// newSteeredHistory starts a history in which all workers have the same settings, or each its own.
func newSteeredHistory(t *testing.T, r *rapid.T, s *store, client redis.UniversalClient) *history {
	h := newHistory(t, r, s, client, steeredReplicas)
	h.steered = &steered{limits: map[string]ratelimit.Limit{}}
	if rapid.Bool().Draw(r, "same settings") {
		h.allHave(r, client, anyRules(r, h.windows), h.replicas[0].asked, steeredReplicas)
	}
	for range rapid.IntRange(0, 4).Draw(r, "set before") {
		h.steer(r)
	}
	return h
}

// allHave replaces the workers of a history by others that share the given settings.
func (h *history) allHave(r *rapid.T, client redis.UniversalClient, chosen ratelimit.Rules, dedupe time.Duration, replicas int) {
	h.longest, h.replicas, h.limiters = chosen.LongestWindow(), nil, nil
	for i := range replicas {
		limiter, err := ratelimit.New(client, "n", chosen, dedupe)
		if err != nil {
			r.Fatal(err)
		}
		h.replicas, h.limiters = append(h.replicas, newReplica(chosen, dedupe)), append(h.limiters, caller{Limiter: limiter, t: h.t})
		h.replicas[i].number = i
	}
	h.costs = costsFor(h.replicas)
}

// steer sets, replaces or ends one temporary limit, or ends all of them. At most one worker follows at once.
func (h *history) steer(r *rapid.T) {
	if h.unclear {
		return
	}
	now := h.steered.limits
	switch rapid.IntRange(0, 4).Draw(r, "steer") {
	case 0:
		clear(now)
	case 1:
		if len(now) > 0 {
			delete(now, rapid.SampledFrom(slices.Sorted(maps.Keys(now))).Draw(r, "ends"))
		}
	default:
		now[anyScope().Draw(r, "scope")] = anyTiers(h.windows, 10, anyForm(r)).Draw(r, "instead")
	}
	for _, limit := range now {
		h.longest = max(h.longest, time.Duration(longest(limit))*time.Microsecond)
	}
	h.steered.counts.changes++
	h.operations++
	if rapid.Bool().Draw(r, "at once") {
		h.follow(r)
	}
}

// anyScope draws the name of a scope in the model.
func anyScope() *rapid.Generator[string] {
	return rapid.Custom(func(r *rapid.T) string {
		switch rapid.IntRange(0, 3).Draw(r, "level") {
		case 0:
			return globalScope
		case 1:
			return groupScope(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r, "group"))
		}
		return categoryScope(rapid.SampledFrom(categories).Draw(r, "category"))
	})
}

// follow lets one worker adopt the temporary limits in force.
func (h *history) follow(r *rapid.T) {
	if h.unclear {
		return
	}
	i := rapid.IntRange(0, len(h.replicas)-1).Draw(r, "follower")
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(h.steered.limits)) {
		pairs = append(pairs, strings.Replace(name, " ", "/", 1), h.steered.limits[name].String())
	}
	h.limiters[i].SetTemporary(temporaryLimits(pairs...))
	h.replicas[i] = h.replicas[i].during(maps.Clone(h.steered.limits))
	h.operations++
}

// noteSteered updates the counts after a batch.
func (h *history) noteSteered(asking replica, batch []ratelimit.Request, decisions []ratelimit.Decision) {
	if h.steered == nil {
		return
	}
	counts := &h.steered.counts
	if slices.ContainsFunc(h.replicas, func(p replica) bool { return !maps.EqualFunc(p.instead, asking.instead, slices.Equal) }) {
		counts.differ++
	}
	for i, decision := range decisions {
		for _, level := range asking.levels(batch[i].Category) {
			if _, found := asking.instead[level.name]; found && level.verdict == decision.Verdict {
				counts.refused++
			}
		}
	}
}
