package ratelimit_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"notifier/internal/ratelimit"
)

// ends are the times after which nothing is left of each set: its newest entry is as old as it is kept.
func (m *model) ends() map[string]int64 {
	ends := map[string]int64{}
	for name, s := range m.scopes {
		if len(s.charges) > 0 {
			ends[name] = s.newest() + s.kept
		}
	}
	if slices.ContainsFunc(m.admissions, func(a *admission) bool { return a.inFlight }) {
		last := max(m.clock, m.healed)
		for _, a := range m.admissions { // a post keeps the whole set, also when its own event has left it since
			last = max(last, a.touched())
		}
		ends[registerIDs] = last + m.retention
	}
	var recorded int64
	for _, at := range m.sent {
		recorded = max(recorded, at)
	}
	if recorded > 0 {
		ends[sentIDs] = recorded + m.sentKept
	}
	return ends
}

// end is when a set is gone that has to live until the time given: with the next whole millisecond of the server's clock.
func (m *model) end(at int64) int64 {
	aged := m.aged()
	return aged + ((at-aged)/1000+1)*1000
}

// expire empties a set that has come to its end.
func (m *model) expire(name string) {
	switch name {
	case sentIDs:
		clear(m.sent)
		m.sentKept = 0
	case registerIDs:
		for _, a := range m.admissions {
			a.inFlight, a.stale = false, false
		}
	default:
		s := m.scopes[name]
		s.charges, s.kept = nil, 0
	}
}

// trace is what is still known of the events with an id, by their identities.
func (m *model) trace(id string) map[identity]ratelimit.Trace {
	traces := map[identity]ratelimit.Trace{}
	for _, a := range m.admissions { // of one identity, the last one counts
		if a.request.ID != id || !a.inFlight && !m.keepsID(a) {
			continue
		}
		of := identityOf(a.request)
		trace := ratelimit.Trace{Category: of.category, Source: of.source, InFlight: a.inFlight, Admitted: microTime(a.at)}
		if a.inFlight && a.posts > 0 {
			trace.Posts, trace.LastPost = a.posts, microTime(a.begun)
		}
		traces[of] = trace
	}
	for of, at := range m.sent {
		if of.id == id {
			trace := traces[of]
			trace.Category, trace.Source, trace.Sent = of.category, of.source, microTime(at)
			traces[of] = trace
		}
	}
	return traces
}

// keepsID reports whether the global scope keeps the id of an admission, as one that is exact does.
func (m *model) keepsID(a *admission) bool {
	s := m.scope(globalScope)
	for _, c := range s.charges {
		if c.of == a && !s.buckets {
			return true
		}
	}
	return false
}

// String is what the model holds, for messages.
func (m *model) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "clock %d, buckets until %d, retention %d, aged %d\n", m.clock, m.bucketsUntil, m.retention, m.aged())
	for _, name := range slices.Sorted(maps.Keys(m.scopes)) {
		s := m.scopes[name]
		fmt.Fprintf(&text, "%s: buckets %t, kept %d, exact until %d\n", name, s.buckets, s.kept, s.exactUntil)
		for _, c := range s.charges {
			fmt.Fprintf(&text, "  %d x%d %+v\n", c.time, c.cost, c.of)
		}
	}
	return text.String()
}

func microTime(micros int64) time.Time { return time.UnixMicro(micros).UTC() }
