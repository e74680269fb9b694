// Package simulate replays past events against limits that are being considered.
//
// The real limiter decides each event. It runs lua/admit.lua on the embedded store, whose clock is set to the
// event's time. So a verdict matches a worker's decision under two assumptions: that every event was decided
// at its time, and that every admitted event reached Slack at once. Only cmd/notifier-dev contains the
// package, as it alone contains the embedded store.
//
// That store sets up a new Lua state for each call and sorts a set each time it reads from it, so a decision
// takes half a millisecond, and more where a window holds thousands of messages. A store made for this would
// be several times as fast, and would have to be proved to decide as Redis does.
//
// The package knows the limiter, the store and the worker's log. It does not know NATS or Slack.
package simulate

import (
	"cmp"
	"context"
	"hash/maphash"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"notifier/internal/devstack/embedded"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
)

// namespace of the keys in the store, which has no other user.
const namespace = "simulate"

// Verdict is the simulated outcome of one event, in the words of the log.
type Verdict struct {
	Event
	// outcome.Sent, outcome.Dropped or, if its cost is above a limit's count, outcome.Dead
	Outcome string
	// empty if sent; dropped: one of outcome.LimitReasons, or outcome.Duplicate; dead: outcome.Malformed
	Reason     string
	Group      string         // the group of the category, if it has one
	Tier       ratelimit.Tier // dropped by a limit: the tier that refused
	RetryAfter time.Duration  // dropped by a limit: how long until an event of its cost would have fit
	AtLeast    bool           // ... or longer
	// dropped by the global limit: slots of the tier that were kept for other categories
	Reserved int
}

// Run decides the events in order and passes each verdict to observe. Events of the same microsecond are one
// batch. dedupe is as for ratelimit.New.
//
// Run stops at the first error of ctx, observe or the store.
func Run(
	ctx context.Context,
	events []Event,
	rules ratelimit.Rules,
	dedupe time.Duration,
	observe func(Verdict) error,
) error {
	store := embedded.NewStore()
	defer store.Close()
	client := connect(store)
	defer func() { _ = client.Close() }()
	limiter, err := ratelimit.New(client, namespace, rules, neededDedupe(events, dedupe))
	if err != nil {
		return err
	}
	r := run{limiter: limiter, rules: rules, observe: observe}
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

// connect returns a client with one connection to the store, through memory: no port is opened. A call takes
// as long as it takes, because nothing can be lost on the way.
func connect(store *miniredis.Miniredis) *redis.Client {
	return redis.NewClient(&redis.Options{
		Dialer:          func(context.Context, string, string) (net.Conn, error) { return store.Dial() },
		Protocol:        2,
		DisableIdentity: true,
		PoolSize:        1,
		MaxRetries:      -1,
		ReadTimeout:     -1,
		WriteTimeout:    -1,
	})
}

type run struct {
	limiter  *ratelimit.Limiter
	rules    ratelimit.Rules
	observe  func(Verdict) error
	requests []ratelimit.Request // of the current batch
}

// batch decides events of the same time.
func (r *run) batch(ctx context.Context, events []Event) error {
	r.requests = r.requests[:0]
	for _, e := range events {
		if e.Cost <= r.rules.MaxCost(e.Category) { // a worker rejects a higher cost without calling the limiter
			r.requests = append(r.requests, request(e))
		}
	}
	decisions, err := r.limiter.Admit(ctx, r.requests)
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
		if decision.Verdict == ratelimit.Admitted { // else it would be in flight for ever
			if err := r.limiter.Sent(ctx, request); err != nil {
				return err
			}
		}
		verdict := newVerdict(e, decision)
		verdict.Group = r.groupOf(e.Category)
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

// request returns the request for one event. Each line is a separate message. An event without an id gets one
// that no line can have, because it begins with a control character.
func request(e Event) ratelimit.Request {
	line := strconv.Itoa(e.Line)
	id := e.ID
	if id == "" {
		id = "\x00" + line
	}
	return ratelimit.Request{ID: id, Delivery: line, Category: e.Category, Cost: e.Cost}
}

func newVerdict(e Event, decision ratelimit.Decision) Verdict {
	v := Verdict{
		Event:      e,
		Outcome:    outcome.Dropped,
		Reason:     decision.Verdict.Reason(),
		Tier:       decision.Tier,
		RetryAfter: decision.RetryAfter,
		AtLeast:    decision.AtLeast,
		Reserved:   decision.Reserved,
	}
	if decision.Verdict == ratelimit.Admitted {
		v.Outcome = outcome.Sent
	}
	return v
}

// neededDedupe returns a dedupe window that decides these events, as dedupe does: it is longer than the time
// between any two events of the same id that are less than dedupe apart. Usually that is seconds, where
// dedupe is a day, and the store gets slower with each id that it keeps.
//
// Ids are known by their hashes. A collision makes the window longer, which changes no verdict.
func neededDedupe(events []Event, dedupe time.Duration) time.Duration {
	const margin = time.Second // the script's clock may be a little ahead of the events
	type sighting struct {
		id     uint64
		micros int64
	}
	var seen []sighting
	seed := maphash.MakeSeed()
	for _, e := range events {
		if e.ID != "" {
			seen = append(seen, sighting{maphash.Comparable(seed, [2]string{e.Category, e.ID}), e.micros})
		}
	}
	slices.SortFunc(seen, func(a, b sighting) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.micros, b.micros))
	})
	longest := int64(0)
	first := 0 // of this id, less than dedupe ago
	for i, now := range seen {
		for seen[first].id != now.id || first < i && now.micros-seen[first].micros >= dedupe.Microseconds() {
			first++
		}
		longest = max(longest, now.micros-seen[first].micros)
	}
	return min(dedupe, time.Duration(longest)*time.Microsecond+margin)
}
