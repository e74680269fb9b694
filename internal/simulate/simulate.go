//go:build !production

// Package simulate replays past events against limits that are being considered.
//
// It decides nothing by itself. Each event is decided by the real limiter, which runs lua/admit.lua on a store in the process,
// whose clock is set to the event's time. So a verdict is what a worker would have decided, under two assumptions: that
// every event was decided at its time, and that every admitted event reached Slack at once. Production builds
// (-tags production) do not contain the package, because they contain no store.
//
// The package knows the limiter, that store and the worker's log. It does not know NATS or Slack.
//
// Reading order: input.go and line.go (the input), simulate.go (the decisions), verdict.go, summary.go and table.go (what
// is shown of them).
package simulate

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"time"

	"notifier/internal/luastore"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
)

// namespace of the keys in the store, which has no other user.
const namespace = "simulate"

// Verdict is what the outcome of one event would have been, in the words of the log.
type Verdict struct {
	Event
	Outcome    string         // outcome.Sent, outcome.Dropped or, if its cost is above a limit's count, outcome.Dead
	Reason     string         // empty if sent; dropped: one of outcome.LimitReasons, or outcome.Duplicate; dead: outcome.Malformed
	Group      string         // the group whose limit the category shares; empty: none
	Tier       ratelimit.Tier // dropped by a limit: the tier that refused
	RetryAfter time.Duration  // dropped by a limit: how long until an event of its cost would have fit; a lower bound where Reserved
	Reserved   int            // dropped by the global limit: slots of the tier that were kept for other categories
	ReserveUse int            // sent, of a category with a reserve: slots that the category then used in the longest global tier
}

// Run decides the events in order and passes each verdict to observe. Events of the same microsecond are one batch.
// dedupe is as for ratelimit.New.
//
// The store holds what the script keeps: the slots that still count, and the ids of repeated events for the dedupe window.
//
// The error is that of ctx, observe or the store; the events after it are not decided.
func Run(ctx context.Context, events []Event, rules ratelimit.Rules, dedupe time.Duration, observe func(Verdict) error) error {
	store := luastore.New()
	defer store.Close()
	client := store.Client()
	defer func() { _ = client.Close() }()
	limiter, err := ratelimit.New(client, namespace, rules, dedupe)
	if err != nil {
		return err
	}
	r := run{limiter: limiter, rules: rules, repeated: repeatedIDs(events), observe: observe}
	for len(events) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := 1
		for n < len(events) && events[n].micros == events[0].micros {
			n++
		}
		store.SetTime(events[0].Time())
		if err := r.batch(ctx, events[:n]); err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}

type run struct {
	limiter  *ratelimit.Limiter
	rules    ratelimit.Rules
	repeated idSet
	observe  func(Verdict) error
	requests []ratelimit.Request // of the current batch
}

// batch decides events of the same time.
func (r *run) batch(ctx context.Context, events []Event) error {
	r.requests = r.requests[:0]
	for _, e := range events {
		if e.Cost <= r.rules.MaxCost(e.Category) { // otherwise a worker does not ask the limiter either
			r.requests = append(r.requests, request(e))
		}
	}
	decisions, err := r.limiter.Admit(ctx, r.requests)
	if err != nil {
		return err
	}
	uses, err := r.reserveUses(ctx, decisions)
	if err != nil {
		return err
	}
	asked := 0
	for _, e := range events {
		if e.Cost > r.rules.MaxCost(e.Category) {
			v := Verdict{Event: e, Outcome: outcome.Dead, Reason: outcome.Malformed, Group: r.groupOf(e.Category)}
			if err := r.observe(v); err != nil {
				return err
			}
			continue
		}
		decision, request := decisions[asked], r.requests[asked]
		asked++
		// Only an event whose id is repeated can be a duplicate. Recording the others too would change no verdict, and would
		// take a call for each.
		if decision.Outcome == ratelimit.Admitted && e.ID != "" && r.repeated.has(e) {
			if err := r.limiter.Sent(ctx, request); err != nil {
				return err
			}
		}
		verdict, err := newVerdict(e, decision)
		if err != nil {
			return err
		}
		verdict.Group = r.groupOf(e.Category)
		if verdict.Outcome == outcome.Sent {
			verdict.ReserveUse = uses[e.Category]
		}
		if err := r.observe(verdict); err != nil {
			return err
		}
	}
	return nil
}

// groupOf is the group of a category, if it has a limit.
func (r *run) groupOf(category string) string {
	if group := ratelimit.GroupOf(category); len(r.rules.GroupLimit(group)) > 0 {
		return group
	}
	return ""
}

// reserveUses asks how many slots each category with a reserve now uses, if the batch has changed that.
func (r *run) reserveUses(ctx context.Context, decisions []ratelimit.Decision) (map[string]int, error) {
	changed := false
	for i, decision := range decisions {
		_, reserved := r.rules.Reserve[r.requests[i].Category]
		changed = changed || reserved && decision.Outcome == ratelimit.Admitted
	}
	if !changed {
		return nil, nil
	}
	reserves, err := r.limiter.Reserves(ctx)
	uses := make(map[string]int, len(reserves))
	for _, reserve := range reserves {
		uses[reserve.Category] = reserve.Used
	}
	return uses, err
}

// request returns the request for one event. Each line is a separate message. An event without an id gets one that no line
// can have, because it begins with a control character.
func request(e Event) ratelimit.Request {
	line := strconv.Itoa(e.Line)
	id := e.ID
	if id == "" {
		id = "\x00" + line
	}
	return ratelimit.Request{ID: id, Delivery: line, Category: e.Category, Cost: e.Cost}
}

func newVerdict(e Event, decision ratelimit.Decision) (Verdict, error) {
	v := Verdict{Event: e, Outcome: outcome.Dropped, Tier: decision.Tier, RetryAfter: decision.RetryAfter, Reserved: decision.Reserved}
	switch decision.Outcome {
	case ratelimit.Admitted:
		v.Outcome = outcome.Sent
	case ratelimit.Duplicate:
		v.Reason = outcome.Duplicate
	case ratelimit.Global:
		v.Reason = outcome.Global
	case ratelimit.Group:
		v.Reason = outcome.Group
	case ratelimit.Category:
		v.Reason = outcome.Category
	default:
		return v, fmt.Errorf("line %d: unknown outcome %d of the limiter", e.Line, decision.Outcome)
	}
	return v, nil
}

// idSet is a set of ids within their categories, by their hashes. Two with the same hash count as one.
type idSet struct {
	seed   maphash.Seed
	hashes map[uint64]bool
}

func (s idSet) hash(e Event) uint64 {
	return maphash.Comparable(s.seed, [2]string{e.Category, e.ID})
}

func (s idSet) has(e Event) bool { return s.hashes[s.hash(e)] }

// repeatedIDs returns the ids that more than one event of a category has. A hash collision can add an id that only one
// event has, which is harmless.
func repeatedIDs(events []Event) idSet {
	set := idSet{seed: maphash.MakeSeed(), hashes: map[uint64]bool{}}
	all := make([]uint64, 0, len(events))
	for _, e := range events {
		if e.ID != "" {
			all = append(all, set.hash(e))
		}
	}
	slices.Sort(all)
	for i := 1; i < len(all); i++ {
		if all[i] == all[i-1] {
			set.hashes[all[i]] = true
		}
	}
	return set
}
