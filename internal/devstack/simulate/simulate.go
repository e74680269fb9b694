// Package simulate replays past events against limits that are being considered.
//
// The real limiter decides each event. It runs lua/admit.lua on the embedded store, and sets
// the store's clock to the event's time. So a verdict matches a worker's decision under two assumptions: that every event was decided
// at its time, and that every admitted event reached Slack at once. Only cmd/notifier-dev contains the
// package, as it alone contains the embedded store.
//
// The store sets up a new Lua state for each call, so a decision takes a quarter of a millisecond, and more
// where a window holds thousands of messages. A faster store would have to be proved to decide as Redis does.
package simulate

import (
	"context"
	"net"
	"strconv"
	"time"

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
	Outcome    string         // outcome.Sent, outcome.Dropped or, if its cost never fits, outcome.Dead
	Reason     string         // empty if sent; dropped: global, group, category or duplicate; dead: malformed
	Tier       ratelimit.Tier // dropped by a limit: the tier that refused
	RetryAfter time.Duration  // dropped by a limit: how long until an event of its cost would have fit
	AtLeast    bool           // RetryAfter is a lower bound
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
	client := redis.NewClient(&redis.Options{ // through memory: no port is opened, nothing is lost
		Dialer:          func(context.Context, string, string) (net.Conn, error) { return store.Dial() },
		Protocol:        2,
		DisableIdentity: true,
		PoolSize:        1,
		MaxRetries:      -1,
		ReadTimeout:     -1,
		WriteTimeout:    -1,
	})
	defer func() { _ = client.Close() }()
	limiter, err := ratelimit.New(client, namespace, rules, neededDedupe(events, dedupe))
	if err != nil {
		return err
	}
	for len(events) > 0 {
		n := 1
		for n < len(events) && events[n].Time.Equal(events[0].Time) {
			n++
		}
		store.SetTime(events[0].Time)
		verdicts, err := decide(ctx, limiter, events[:n], rules)
		if err != nil {
			return err
		}
		for _, v := range verdicts {
			if err := observe(v); err != nil {
				return err
			}
		}
		events = events[n:]
	}
	return ctx.Err()
}

// decide decides events of the same time. As a worker does, it rejects a cost that never fits by itself.
func decide(
	ctx context.Context, limiter *ratelimit.Limiter, events []Event, rules ratelimit.Rules,
) ([]Verdict, error) {
	verdicts := make([]Verdict, len(events))
	var requests []ratelimit.Request
	var places []int // of each request among the events
	for i, e := range events {
		verdicts[i] = Verdict{Event: e, Outcome: outcome.Dead, Reason: outcome.Malformed}
		if e.Cost <= rules.MaxCost(e.Category) {
			requests, places = append(requests, request(e)), append(places, i)
		}
	}
	decisions, err := limiter.Admit(ctx, requests)
	if err != nil {
		return nil, err
	}
	for i, d := range decisions {
		v := &verdicts[places[i]]
		v.Outcome, v.Reason = outcome.Dropped, d.Verdict.Reason()
		v.Tier, v.RetryAfter, v.AtLeast = d.Tier, d.RetryAfter, d.AtLeast
		if d.Verdict != ratelimit.Admitted {
			continue
		}
		v.Outcome = outcome.Sent
		if err := limiter.Sent(ctx, requests[i]); err != nil { // without it the event stays in flight for ever
			return nil, err
		}
	}
	return verdicts, nil
}

// request returns the request for one event. Each line is a separate message. An event without an id gets one
// that no line can have, because it begins with a control character.
func request(e Event) ratelimit.Request {
	line := strconv.Itoa(e.Line)
	id := e.ID
	if id == "" {
		id = "\x00" + line
	}
	return ratelimit.Request{ID: id, Source: e.Source, Delivery: line, Category: e.Category, Cost: e.Cost}
}

// neededDedupe shortens the dedupe window to the longest time between two events of one id. That changes no
// verdict, and usually it is seconds where dedupe is a day. The store gets slower with each id that it keeps.
func neededDedupe(events []Event, dedupe time.Duration) time.Duration {
	const margin = time.Second // the script's clock may be a little ahead of the events
	first := map[[3]string]time.Time{}
	var longest time.Duration
	for _, e := range events {
		if e.ID == "" {
			continue
		}
		key := [3]string{e.Category, e.ID, e.Source}
		if began, seen := first[key]; seen {
			longest = max(longest, e.Time.Sub(began))
		} else {
			first[key] = e.Time
		}
	}
	return min(dedupe, longest+margin)
}
