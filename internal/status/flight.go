package status

import (
	"context"
	"fmt"
	"slices"
	"time"

	"notifier/internal/event"
	"notifier/internal/ratelimit"
	"notifier/internal/term"
)

// Flight describes an event that is admitted and not settled: a line of "notifier why -json".
type Flight struct {
	EventID    string      `json:"event_id"`
	Category   string      `json:"category"`
	Source     string      `json:"source,omitempty"`
	State      string      `json:"state"` // always in_flight
	Admitted   time.Time   `json:"admitted"`
	Attempts   int         `json:"attempts"` // begun posts
	LastError  string      `json:"last_error,omitempty"`
	Next       time.Time   `json:"next,omitzero"` // earliest next post
	Conditions []Condition `json:"conditions"`    // of its channel, or that stop all channels
}

// Flights describes the events in flight among the traces of an id. If err is not nil, Redis could not be read
// completely, and last errors or conditions are missing.
func (s Source) Flights(ctx context.Context, id string, traces []ratelimit.Trace) (flights []Flight, err error) {
	traces = slices.DeleteFunc(slices.Clone(traces), func(t ratelimit.Trace) bool { return !t.InFlight })
	if len(traces) == 0 {
		return nil, nil
	}
	r := s.read(ctx)
	for _, trace := range traces {
		flights = append(flights, r.flight(id, trace))
	}
	return flights, r.view.readErr
}

// flight describes one event. Its channel is the one of its category, unless a worker reports another one.
func (r reading) flight(id string, t ratelimit.Trace) Flight {
	f := Flight{
		EventID: id, Category: t.Category, Source: event.ShownSource(t.Source), State: "in_flight",
		Admitted: t.Admitted, Attempts: t.Posts, Conditions: []Condition{},
	}
	channel := r.channelOf(t.Category)
	for _, replica := range r.view.replicas {
		for _, failing := range replica.Snapshot.Failing {
			if failing.EventID != id || failing.Category != t.Category {
				continue
			}
			channel, f.LastError, f.Next = failing.Channel, failing.Error, time.Time{}
			if failing.Next.After(r.view.now) { // else the attempt has begun since the heartbeat
				f.Next = failing.Next
			}
		}
	}
	everywhere := []string{"nats", "redis", "slack", "workers"}
	if r.view.outage("consumer").replicas > 0 { // one that withholds new events does not concern this one
		everywhere = append(everywhere, "consumer")
	}
	for _, found := range r.view.findings() {
		ofAll := slices.Contains(everywhere, found.kind) && found.state == Fail
		if ofAll || found.ofChannel() && found.channel() == short(channel) {
			f.Conditions = append(f.Conditions, found.condition())
		}
	}
	return f
}

// String describes the event in one line.
func (f Flight) String() string {
	text := fmt.Sprintf("In flight in %s: admitted %s, %s",
		f.Category, f.Admitted.UTC().Format(time.RFC3339), term.Count(f.Attempts, "attempt"))
	if f.Source != "" {
		text += ", source " + f.Source
	}
	if f.LastError != "" {
		text += ", last error " + f.LastError
	}
	if !f.Next.IsZero() {
		text += ", next attempt " + f.Next.UTC().Format(time.RFC3339)
	}
	for _, c := range f.Conditions {
		text += fmt.Sprintf("; %s: %s", c.Type, c.Message)
	}
	return text
}
