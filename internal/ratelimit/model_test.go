package ratelimit_test

import (
	"slices"
	"time"

	"notifier/internal/ratelimit"
)

// model is what the scripts promise, written as plainly as possible and without any of their means: a list of
// admissions that is scanned from its start for every question. Times are microseconds. Several replicas may ask,
// each with rules of its own.
type model struct {
	admissions []*admission
	sent       map[identity]int64
	indexed    map[identity]int64 // the last admission of each category, and of each source in it
	kept       map[string]int64   // the longest window asked for, of each scope that holds anything, and of what was sent
}

// The names of what is kept for a while, beside the categories' own.
const (
	globalScope = ""
	sentIDs     = " sent"
)

type admission struct {
	request  ratelimit.Request
	at       int64
	inFlight bool
	gone     map[string]bool // from which scopes: given back, or older than anybody has asked for
}

// identity is what makes two events one.
type identity struct{ category, source, id string }

func identityOf(r ratelimit.Request) identity { return identity{r.Category, r.Source, r.ID} }

func (a *admission) is(r ratelimit.Request) bool { return identityOf(a.request) == identityOf(r) }

// replica is one set of rules.
type replica struct {
	rules     ratelimit.Rules
	dedupe    int64
	retention int64 // the longest window of any rule
}

func newReplica(rules ratelimit.Rules, dedupe time.Duration) replica {
	p := replica{rules: rules}
	limits := []ratelimit.Limit{rules.Global, rules.Category}
	for _, limit := range rules.Overrides.All() {
		limits = append(limits, limit)
	}
	for _, limit := range limits {
		p.retention = max(p.retention, longest(limit))
	}
	p.dedupe = max(dedupe.Microseconds(), p.retention)
	return p
}

func longest(limit ratelimit.Limit) int64 {
	var window int64
	for _, tier := range limit {
		window = max(window, tier.Window.Microseconds())
	}
	return window
}

func newModel() *model {
	return &model{sent: map[identity]int64{}, indexed: map[identity]int64{}, kept: map[string]int64{}}
}

// holds is what a scope still has: the admissions that count in it.
func (m *model) holds(scope string) []*admission {
	var held []*admission
	for _, a := range m.admissions {
		if (scope == globalScope || a.request.Category == scope) && !a.gone[scope] {
			held = append(held, a)
		}
	}
	return held
}

// newest is the time of the newest admission in a scope, or 0.
func (m *model) newest(scope string) int64 {
	var newest int64
	for _, a := range m.holds(scope) {
		newest = max(newest, a.at)
	}
	return newest
}

// now is the clock that decides: the server's, but never before the newest admission.
func (m *model) now(clock int64) int64 { return max(clock, m.newest(globalScope)) }

// keep is how long a scope keeps its entries: for the longest window that anybody has asked for since it was empty.
func (m *model) keep(scope string, window int64) int64 {
	if len(m.holds(scope)) == 0 {
		return window
	}
	return max(window, m.kept[scope])
}

// forget takes out of a scope what is at most at the time given.
func (m *model) forget(scope string, at int64) {
	for _, a := range m.holds(scope) {
		if a.at <= at {
			a.gone[scope] = true
			a.inFlight = a.inFlight && scope != globalScope
		}
	}
}

// used is how many slots of the scope are taken in (until - window, until].
func (m *model) used(scope string, window, until int64) int {
	used := 0
	for _, a := range m.holds(scope) {
		if a.at > until-window && a.at <= until {
			used += a.request.Cost
		}
	}
	return used
}

// frees is the first time at which an event of this cost fits the tier if nothing else comes: now, or when one of the
// admissions leaves the window. It is none if the cost is above the count.
func (m *model) frees(scope string, tier ratelimit.Tier, cost int, now int64) (at int64, never bool) {
	window := tier.Window.Microseconds()
	times := []int64{now}
	for _, a := range m.holds(scope) {
		if leaves := a.at + window; leaves > now {
			times = append(times, leaves)
		}
	}
	slices.Sort(times)
	for _, at := range times {
		if m.used(scope, window, at)+cost <= tier.Count {
			return at, false
		}
	}
	return 0, true
}

func (m *model) decide(p replica, clock int64, request ratelimit.Request) ratelimit.Decision {
	now, retention := m.now(clock), m.keep(globalScope, p.retention)
	for _, a := range m.admissions {
		if a.inFlight && a.is(request) && a.at > now-retention {
			if a.request.Delivery == request.Delivery {
				return ratelimit.Decision{Outcome: ratelimit.Admitted}
			}
			return ratelimit.Decision{Outcome: ratelimit.Duplicate}
		}
	}
	if at, found := m.sent[identityOf(request)]; found && at > now-max(p.dedupe, retention) {
		return ratelimit.Decision{Outcome: ratelimit.Duplicate}
	}

	// The tier that frees last refuses: looked at in this order, one that is as late as the best so far takes its
	// place only if it is the first of its scope to do so.
	var refusal *ratelimit.Decision
	var latest int64
	for _, scope := range []struct {
		outcome ratelimit.Outcome
		name    string
		limit   ratelimit.Limit
	}{
		{ratelimit.Category, request.Category, p.rules.LimitFor(request.Category)},
		{ratelimit.Global, globalScope, p.rules.Global},
	} {
		for _, tier := range scope.limit {
			at, never := m.frees(scope.name, tier, request.Cost, now)
			decision := &ratelimit.Decision{
				Outcome: scope.outcome, Tier: tier, Used: m.used(scope.name, tier.Window.Microseconds(), now),
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
	for scope, window := range map[string]int64{globalScope: p.retention, request.Category: longest(p.rules.LimitFor(request.Category))} {
		m.kept[scope] = m.keep(scope, window)
		m.forget(scope, now-m.kept[scope])
	}
	for _, a := range m.admissions {
		if a.is(request) {
			a.inFlight = false // its stale record is replaced
		}
	}
	m.indexed[identity{category: request.Category}] = now
	m.indexed[identity{category: request.Category, source: request.Source}] = now
	m.admissions = append(m.admissions, &admission{request: request, at: now, inFlight: true, gone: map[string]bool{}})
	return ratelimit.Decision{Outcome: ratelimit.Admitted}
}

func (m *model) markSent(p replica, request ratelimit.Request, at int64) {
	keep := max(p.dedupe, m.keep(globalScope, 0))
	if len(m.sent) > 0 {
		keep = max(keep, m.kept[sentIDs])
	}
	m.kept[sentIDs] = keep
	for other, since := range m.sent {
		if since <= at-keep { // forgotten for good, even if the clock steps back to where it would matter
			delete(m.sent, other)
		}
	}
	m.sent[identityOf(request)] = at
	for _, a := range m.admissions {
		if a.is(request) {
			a.inFlight = false
		}
	}
}

// refund says whether there is something to give back, and gives it back.
func (m *model) refund(request ratelimit.Request) bool {
	for _, a := range m.admissions {
		if a.inFlight && a.is(request) && a.request.Delivery == request.Delivery {
			a.inFlight, a.gone = false, map[string]bool{globalScope: true, request.Category: true}
			return true
		}
	}
	return false
}

// ends are the times after which nothing is left of each set: its newest entry is as old as it is kept.
func (m *model) ends() map[string]int64 {
	ends := map[string]int64{}
	for scope, kept := range m.kept {
		newest := m.newest(scope)
		if scope == sentIDs {
			newest = 0
			for _, at := range m.sent {
				newest = max(newest, at)
			}
		}
		if newest > 0 {
			ends[scope] = newest + kept
		}
	}
	return ends
}

// expire empties a set that has come to its end.
func (m *model) expire(scope string) {
	if scope == sentIDs {
		clear(m.sent)
		return
	}
	m.forget(scope, m.newest(scope))
}

// trace is what is still known of the events with an id, by their identities.
func (m *model) trace(id string) map[identity]ratelimit.Trace {
	traces := map[identity]ratelimit.Trace{}
	for _, a := range m.admissions { // of one identity, the last one counts
		if held := !a.gone[globalScope]; a.request.ID == id && (held || a.inFlight) {
			of := identityOf(a.request)
			traces[of] = ratelimit.Trace{Category: of.category, Source: of.source, InFlight: a.inFlight, Admitted: microTime(a.at)}
		}
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

func microTime(micros int64) time.Time { return time.UnixMicro(micros).UTC() }
