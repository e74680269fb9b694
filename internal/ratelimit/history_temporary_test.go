package ratelimit_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"notifier/internal/ratelimit"
)

// steered is what a history has in which people set temporary limits. Each replica takes them over by itself,
// at a time of its own: until then it decides by those that it had.
type steered struct {
	limits map[string]ratelimit.Limit // in force, by the names of their scopes
	counts steeredCounts
}

// steeredCounts show that a history is about something.
type steeredCounts struct {
	changes int // of what is in force
	refused int // decisions by a temporary limit
	differ  int // batches that were decided while another replica had other limits
}

func (c *steeredCounts) add(other steeredCounts) {
	c.changes, c.refused, c.differ = c.changes+other.changes, c.refused+other.refused, c.differ+other.differ
}

const steeredReplicas = 3

// playSteered plays such histories, and returns how many operations were compared.
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
	t.Logf("%d operations compared around %d changes of temporary limits, which refused %d events; %d batches while replicas had others",
		operations, counts.changes, counts.refused, counts.differ)
	if !t.Failed() && !testing.Short() && (counts.refused == 0 || counts.differ == 0) {
		t.Error("no temporary limit has refused anything, or all replicas had the same: this compares nothing")
	}
	return operations
}

// newSteeredHistory has replicas with the same settings, as a deployment has them, or each with its own.
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

// allHave gives a history so many replicas with the same settings.
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

// steer sets a temporary limit, replaces or ends one, or ends all. One replica learns of it at once, or none.
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

// anyScope is the name of a scope, as the model has them.
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

// follow lets one replica take over what is in force.
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

// noteSteered counts what a batch was about.
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
