package ratelimit_test

import (
	"slices"
	"time"

	"notifier/internal/ratelimit"
)

// model is what the scripts promise, written as plainly as possible and without any of their means: lists that are scanned
// from their start for every question. Times are microseconds. Several replicas may ask, each with rules of its own.
type model struct {
	aged         func() int64 // how far ahead of the server's clock the times here are; see history.virtual
	clock        int64        // the latest admission that anybody was given
	scopes       map[string]*scope
	bucketsUntil int64 // somebody uses buckets until then
	bucketed     bool  // somebody may use buckets, as far as was known before the batch
	admissions   []*admission
	retention    int64 // how long ids in flight are known: the longest that anybody has asked for; see asked
	sent         map[identity]int64
	sentKept     int64
	healed       int64              // when the store was given back what it had forgotten
	indexed      map[identity]int64 // the last admission of each category, and of each source in it
}

// The names of what is kept for a while, in addition to the scopes'.
const (
	registerIDs = " register"
	sentIDs     = " sent"
)

func newModel(aged func() int64) *model {
	return &model{aged: aged, scopes: map[string]*scope{}, sent: map[identity]int64{}, indexed: map[identity]int64{}}
}

type admission struct {
	request  ratelimit.Request
	at       int64
	scopes   []string // that it was charged to
	inFlight bool
	stale    bool   // it was in flight for too long: nobody knows it any more, but its record may be there
	posts    int    // that have begun
	begun    int64  // the last of them
	post     string // its name
	refunded bool
}

// identity is what makes two events one.
type identity struct{ category, source, id string }

func identityOf(r ratelimit.Request) identity { return identity{r.Category, r.Source, r.ID} }

func (a *admission) is(r ratelimit.Request) bool { return identityOf(a.request) == identityOf(r) }

// touched is when something last happened to what is in flight.
func (a *admission) touched() int64 { return max(a.at, a.begun) }

// replica is one set of rules.
type replica struct {
	rules     ratelimit.Rules            // the settings'
	instead   map[string]ratelimit.Limit // that hold for a while, by the name of the scope; see during
	asked     time.Duration              // for the dedupe window
	dedupe    int64
	retention int64
}

func newReplica(rules ratelimit.Rules, dedupe time.Duration) replica {
	return replica{rules: rules, asked: dedupe}.during(nil)
}

// level is one of the budgets that an event is charged to.
type level struct {
	outcome ratelimit.Outcome
	name    string
	limit   ratelimit.Limit
	grains  []int64 // of the buckets that its charges are counted in; none: each is kept
	window  int64   // the longest in which its charges count
	keep    int64   // how long they matter to this replica
}

const globalScope = "global"

func groupScope(group string) string       { return "group " + group }
func categoryScope(category string) string { return "category " + category }

// levels are those of a category, in the order in which they are named where they have room at the same time.
func (p replica) levels(category string) []level {
	levels, global := []level{p.level(ratelimit.Category, categoryScope(category))}, p.level(ratelimit.Global, globalScope)
	if p.rules.Reserve[category] > 0 {
		levels[0].keep = max(levels[0].window, global.window)
	}
	if group := p.level(ratelimit.Group, groupScope(ratelimit.GroupOf(category))); len(group.limit) > 0 {
		levels = append(levels, group)
	}
	return append(levels, global)
}

func (m *model) scope(name string) *scope {
	if m.scopes[name] == nil {
		m.scopes[name] = &scope{}
	}
	return m.scopes[name]
}

// asked is how long anybody has asked to know ids in flight, as far as that is not too long ago to matter. It matters for as
// long as a set may be there that was to be kept so long.
func (m *model) asked(now int64) int64 {
	if m.end(m.clock+m.retention) > now {
		return m.retention
	}
	return 0
}

// now is the clock that decides: the server's, but never before the newest admission.
func (m *model) now(clock int64) int64 { return max(clock, m.clock) }

// held is what a tier of the global limit keeps for other categories: what is reserved for each and not in use by it. A
// bucket counts as use only while none of what is in it can have left the window.
func (m *model) held(p replica, tier ratelimit.Tier, category string, now int64) int {
	sum := 0
	for _, slots := range p.rules.Reserve {
		sum += slots
	}
	if tier.Count <= sum {
		return 0
	}
	held := 0
	for other, slots := range p.rules.Reserve {
		if other == category {
			continue
		}
		s, early := m.scope(categoryScope(other)), int64(0)
		if grains := p.level(ratelimit.Category, categoryScope(other)).grains; s.buckets && grains != nil {
			early = slices.Min(grains) - 1
		}
		use := 0
		for _, c := range s.charges {
			if m.counts(tier, c.time-early, now) {
				use += c.cost
			}
		}
		held += max(0, slots-use)
	}
	return held
}

// refusal is the decision by the tier that frees last, or nil: all have room.
func (m *model) refusal(p replica, clock int64, request ratelimit.Request) *ratelimit.Decision {
	var refusal *ratelimit.Decision
	var latest int64
	now := m.now(clock)
	for _, level := range p.levels(request.Category) {
		s := m.scope(level.name)
		for _, tier := range level.limit {
			held := 0
			if level.outcome == ratelimit.Global {
				held = m.held(p, tier, request.Category, now)
			}
			at, never := m.frees(s, tier, request.Cost, tier.Count-held, now)
			decision := &ratelimit.Decision{
				Outcome: level.outcome, Tier: tier, Used: m.used(s, tier, now), Reserved: held,
				RetryAfter: time.Duration(at-clock) * time.Microsecond,
			}
			if never {
				at, decision.RetryAfter, decision.Never = 1<<62, 0, held == 0 || request.Cost > tier.Count
			}
			// One that is as late as the one before takes its place only if it is the first to be so.
			if at > now && at > latest {
				refusal, latest = decision, at
			}
		}
	}
	return refusal
}

func (m *model) decide(p replica, clock int64, request ratelimit.Request) ratelimit.Decision {
	now := m.now(clock)
	retention := max(p.retention, m.asked(now))
	for _, a := range m.admissions {
		if a.inFlight && a.is(request) && a.touched() > now-retention {
			if a.request.Delivery == request.Delivery {
				return ratelimit.Decision{Outcome: ratelimit.Admitted}
			}
			return ratelimit.Decision{Outcome: ratelimit.Duplicate}
		}
	}
	if at, found := m.sent[identityOf(request)]; found && at > now-max(p.dedupe, retention) {
		return ratelimit.Decision{Outcome: ratelimit.Duplicate}
	}
	if refusal := m.refusal(p, clock, request); refusal != nil {
		return *refusal
	}
	m.admit(p, request, now)
	return ratelimit.Decision{Outcome: ratelimit.Admitted}
}

// mayKnow reports whether a replica asks for an id whose record is stale for those that have asked before, and not for this one, which
// knows ids for longer: then it depends on whether the record was tidied up in the meantime.
func (m *model) mayKnow(p replica, clock int64, batch []ratelimit.Request) bool {
	now := m.now(clock)
	return slices.ContainsFunc(m.admissions, func(a *admission) bool {
		return a.stale && a.touched() > now-max(p.retention, m.asked(now)) && slices.ContainsFunc(batch, a.is)
	})
}

func (m *model) admit(p replica, request ratelimit.Request, now int64) {
	m.clock, m.retention = now, max(p.retention, m.asked(now))
	for _, a := range m.admissions {
		switch {
		case a.is(request):
			a.inFlight, a.stale = false, false // its record is replaced
		case a.inFlight && a.touched() <= now-m.retention:
			a.inFlight, a.stale = false, true
		}
	}
	admitted := &admission{request: request, at: now, inFlight: true}
	m.admissions = append(m.admissions, admitted)
	m.indexed[identity{category: request.Category}] = now
	m.indexed[identity{category: request.Category, source: request.Source}] = now

	for _, level := range p.levels(request.Category) {
		m.charge(admitted, level)
	}
	m.want(p, admitted)
}

// want notes who needs a scope exact that an admission was charged to, while anybody uses buckets.
func (m *model) want(p replica, a *admission) {
	for _, level := range p.levels(a.request.Category) {
		if s := m.scope(level.name); level.grains == nil && m.bucketsUntil > a.at {
			s.exactUntil = max(s.exactUntil, a.at+level.window)
		}
	}
}

// charge charges an admission to one scope, which has the form by then that the limit asks for.
func (m *model) charge(a *admission, level level) {
	s, grains := m.scope(level.name), level.grains
	a.scopes = append(a.scopes, level.name)
	m.reform(level, a.at, a.at)
	needed := level.keep
	if level.outcome == ratelimit.Global && !s.buckets {
		needed = max(needed, m.retention) // it holds the ids in flight
	}
	s.kept = s.keep(needed)
	s.forget(a.at - s.kept)
	s.take(a, m.bucketEnd(grains, a.at), grains != nil || m.bucketed)
	if s.buckets || grains != nil || m.bucketed && s.kept > needed { // a replica with buckets needs it for longer
		m.bucketsUntil = max(m.bucketsUntil, a.at+2*s.kept)
	}
}

// begin records that a post has begun.
func (m *model) begin(request ratelimit.Request, at int64, post string) {
	a := m.inFlight(request)
	a.posts, a.begun, a.post = a.posts+1, at, post
}

// inFlight is what is in flight for this delivery, or nil.
func (m *model) inFlight(request ratelimit.Request) *admission {
	for _, a := range m.admissions {
		if a.inFlight && a.is(request) && a.request.Delivery == request.Delivery {
			return a
		}
	}
	return nil
}

func (m *model) markSent(p replica, request ratelimit.Request, at int64) {
	m.sentKept = max(p.dedupe, m.asked(at), m.sentKept)
	for other, since := range m.sent {
		if since <= at-m.sentKept { // forgotten for good, even if the clock steps back to where it would matter
			delete(m.sent, other)
		}
	}
	m.sent[identityOf(request)] = at
	for _, a := range m.admissions {
		if a.is(request) {
			a.inFlight, a.stale = false, false
		}
	}
}

// refundable is what can be given back: an event in flight for this delivery, or one that was for too long, without a post
// that the caller does not know. It is nil if there is none.
func (m *model) refundable(request ratelimit.Request, known string) *admission {
	for _, a := range m.admissions {
		if (a.inFlight || a.stale) && a.is(request) && a.request.Delivery == request.Delivery && (a.posts == 0 || a.post == known) {
			return a
		}
	}
	return nil
}

// refund gives back what an admission was charged. The clock stays where it was.
func (m *model) refund(a *admission) {
	a.inFlight, a.stale, a.refunded = false, false, true
	for _, name := range a.scopes {
		m.scopes[name].giveBack(a)
	}
}
