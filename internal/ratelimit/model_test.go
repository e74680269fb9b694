package ratelimit_test

import (
	"slices"
	"time"

	"notifier/internal/ratelimit"
)

// model is what the scripts promise, written as plainly as possible and without any of their means: a list of
// admissions that is scanned from its start for every question. Times are microseconds.
type model struct {
	rules      ratelimit.Rules
	dedupe     int64
	retention  int64 // the longest window of any rule
	admissions []*admission
	sent       map[string]int64
}

type admission struct {
	request  ratelimit.Request
	at       int64
	inFlight bool
	refunded bool
}

func newModel(rules ratelimit.Rules, dedupe time.Duration) *model {
	m := &model{rules: rules, sent: map[string]int64{}}
	limits := []ratelimit.Limit{rules.Global, rules.Category}
	for _, limit := range rules.Overrides {
		limits = append(limits, limit)
	}
	for _, limit := range limits {
		for _, tier := range limit {
			m.retention = max(m.retention, tier.Window.Microseconds())
		}
	}
	m.dedupe = max(dedupe.Microseconds(), m.retention)
	return m
}

// now is the clock that decides: the server's, but never before the newest admission.
func (m *model) now(clock int64) int64 {
	for _, a := range m.admissions {
		if !a.refunded {
			clock = max(clock, a.at)
		}
	}
	return clock
}

// used is how many slots of the scope are taken in (until - window, until]. Category "" is the global scope.
func (m *model) used(category string, window, until int64) int {
	used := 0
	for _, a := range m.admissions {
		if !a.refunded && (category == "" || a.request.Category == category) && a.at > until-window && a.at <= until {
			used += a.request.Cost
		}
	}
	return used
}

// frees is the first time at which an event of this cost fits the tier if nothing else comes: now, or when one of the
// admissions leaves the window. It is none if the cost is above the count.
func (m *model) frees(category string, tier ratelimit.Tier, cost int, now int64) (at int64, never bool) {
	window := tier.Window.Microseconds()
	times := []int64{now}
	for _, a := range m.admissions {
		if leaves := a.at + window; leaves > now {
			times = append(times, leaves)
		}
	}
	slices.Sort(times)
	for _, at := range times {
		if m.used(category, window, at)+cost <= tier.Count {
			return at, false
		}
	}
	return 0, true
}

func (m *model) decide(clock int64, request ratelimit.Request) ratelimit.Decision {
	now := m.now(clock)
	for _, a := range m.admissions {
		if a.inFlight && a.request.ID == request.ID && a.at > now-m.retention {
			if a.request.Delivery == request.Delivery {
				return ratelimit.Decision{Outcome: ratelimit.Admitted}
			}
			return ratelimit.Decision{Outcome: ratelimit.Duplicate}
		}
	}
	if at, found := m.sent[request.ID]; found && at > now-m.dedupe {
		return ratelimit.Decision{Outcome: ratelimit.Duplicate}
	}

	// The tier that frees last refuses: looked at in this order, one that is as late as the best so far takes its
	// place only if it is the first of its scope to do so.
	var refusal *ratelimit.Decision
	var latest int64
	for _, scope := range []struct {
		outcome  ratelimit.Outcome
		category string
		limit    ratelimit.Limit
	}{
		{ratelimit.Category, request.Category, m.rules.For(request.Category)},
		{ratelimit.Global, "", m.rules.Global},
	} {
		for _, tier := range scope.limit {
			at, never := m.frees(scope.category, tier, request.Cost, now)
			decision := &ratelimit.Decision{
				Outcome: scope.outcome, Tier: tier, Used: m.used(scope.category, tier.Window.Microseconds(), now),
				RetryAfter: time.Duration(at-clock) * time.Microsecond,
			}
			if never {
				at, decision.RetryAfter = 1<<62, 0
			}
			if at > now && at > latest {
				refusal, latest = decision, at
			}
		}
	}
	if refusal != nil {
		return *refusal
	}
	for _, a := range m.admissions {
		if a.request.ID == request.ID {
			a.inFlight = false // its stale record is replaced
		}
	}
	m.admissions = append(m.admissions, &admission{request: request, at: now, inFlight: true})
	return ratelimit.Decision{Outcome: ratelimit.Admitted}
}

func (m *model) markSent(id string, at int64) {
	for other, since := range m.sent {
		if since <= at-m.dedupe { // forgotten for good, even if the clock steps back to where it would matter
			delete(m.sent, other)
		}
	}
	m.sent[id] = at
	for _, a := range m.admissions {
		if a.request.ID == id {
			a.inFlight = false
		}
	}
}

// refund says whether there is something to give back, and gives it back.
func (m *model) refund(request ratelimit.Request) bool {
	for _, a := range m.admissions {
		if a.inFlight && a.request.ID == request.ID && a.request.Delivery == request.Delivery {
			a.inFlight, a.refunded = false, true
			return true
		}
	}
	return false
}
