package ratelimit_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"notifier/internal/ratelimit"
)

// model implements the promises of the scripts as plainly as possible, without their techniques: every
// request scans whole lists. Times are microseconds. Several workers may use one model, each with its
// own rules.
type model struct {
	aged         func() int64 // offset of the model's times from the server's clock; see history.virtual
	clock        int64        // time of the latest admission or move of slots
	scopes       map[string]*scope
	admissions   []*admission
	inFlightEnds int64 // expiry of the records in flight
	sent         map[identity]int64
	sentEnds     int64              // expiry of the sent ids
	indexed      map[identity]int64 // last admission of each category and source
}

func newModel(aged func() int64) *model {
	return &model{aged: aged, scopes: map[string]*scope{}, sent: map[identity]int64{}, indexed: map[identity]int64{}}
}

type admission struct {
	request   ratelimit.Request
	at        int64
	scopes    []string // charged
	inFlight  bool     // it has a record
	forgotten bool     // settled by a store that was set back, but in flight in its worker's journal
	posts     int      // begun
	begun     int64    // start of the last post
	moved     int64    // time from which its slots count in logs
	post      string   // name of the last post. Empty before the first, or if it certainly failed.
	failed    string   // last post that certainly failed, by its worker's journal
	poster    int      // number of the worker that began the last post
	refunded  bool
	released  bool  // decided again: it has no slots in logs any more
	releaser  int   // number of the worker that decided it again
	by        int   // number of the worker that admitted it first
	known     []int // numbers of all workers to which it was admitted
}

// identity tells events apart. Two deliveries of one event have the same identity.
type identity struct{ category, source, id string }

func identityOf(r ratelimit.Request) identity { return identity{r.Category, r.Source, r.ID} }

func (a *admission) is(r ratelimit.Request) bool { return identityOf(a.request) == identityOf(r) }

// touched returns the time of the last change to an event in flight.
func (a *admission) touched() int64 { return max(a.at, a.begun, a.moved) }

func (m *model) scope(name string) *scope {
	if m.scopes[name] == nil {
		m.scopes[name] = &scope{}
	}
	return m.scopes[name]
}

// latest returns the time to which slots move.
func (m *model) latest(clock int64) int64 { return max(clock, m.mark(clock)) }

// now returns the time of a decision: the server's clock, but always later than the mark.
func (m *model) now(clock int64) int64 { return max(clock, m.mark(clock)+1) }

// mark returns the latest score, or 0 if that is more than a day ahead of the server's clock.
func (m *model) mark(clock int64) int64 {
	if m.clock > clock+day.Microseconds() {
		return 0
	}
	return m.clock
}

// batch decides several requests at one time. Its admissions are stored after the last decision.
type batch struct {
	*model
	by    replica
	clock int64
	now   int64
	added map[string]int // slots by scope
	taken []*admission
}

func (m *model) decideBatch(by replica, clock int64, requests []ratelimit.Request) []ratelimit.Decision {
	b := &batch{model: m, by: by, clock: clock, now: m.now(clock), added: map[string]int{}}
	decisions := make([]ratelimit.Decision, len(requests))
	for i, request := range requests {
		decisions[i] = b.decide(request)
	}
	for _, a := range b.taken {
		m.admit(by, a)
	}
	return decisions
}

func (b *batch) decide(request ratelimit.Request) ratelimit.Decision {
	known := func(a *admission) bool {
		counts := slices.Contains(b.taken, a) || b.hasSlots(b.by, a) && b.stillCounts(b.by, a, b.now)
		return a.is(request) && counts
	}
	for _, a := range append(slices.Clone(b.taken), b.admissions...) {
		switch {
		case !a.inFlight || !known(a):
		case a.request.Delivery == request.Delivery:
			if !slices.Contains(a.known, b.by.number) {
				a.known = append(slices.Clip(a.known), b.by.number)
			}
			return ratelimit.Decision{Verdict: ratelimit.Admitted}
		default:
			return ratelimit.Decision{Verdict: ratelimit.Duplicate}
		}
	}
	if at, found := b.sent[identityOf(request)]; found && at > b.now-b.by.dedupe {
		return ratelimit.Decision{Verdict: ratelimit.Duplicate}
	}
	old := b.anyDelivery(request)
	if old == nil {
		old = &admission{}
	}
	restore := b.takeOut(old) // its old slots in logs do not count against it
	if refusal := b.refusal(request); refusal != nil {
		refusal.Posts, refusal.LastPost = old.posts, old.post
		switch {
		case old.post != "": // it may be in Slack
			restore()
			old.released = false
		case old.posts == 0:
			old.inFlight = false
			b.forgetEnd()
		}
		return *refusal
	}
	before := *old
	a := &admission{
		request: request, at: b.now, inFlight: true, by: b.by.number, known: []int{b.by.number},
		posts: before.posts, begun: before.begun, moved: b.now, post: before.post, poster: b.by.number,
	}
	for _, level := range b.by.levels(request.Category) {
		a.scopes = append(a.scopes, level.name)
		b.added[level.name] += request.Cost
	}
	b.taken = append(b.taken, a)
	return ratelimit.Decision{Verdict: ratelimit.Admitted}
}

// takeOut removes an event's slots from the logs of its scopes. Calling restore restores them.
func (b *batch) takeOut(a *admission) (restore func()) {
	removed := map[*scope][]*charge{}
	a.released, a.releaser = true, b.by.number
	for _, level := range b.by.levels(a.request.Category) {
		s := b.scope(level.name)
		for _, c := range s.log {
			if c.of == a {
				removed[s] = append(removed[s], c)
			}
		}
		s.log = slices.DeleteFunc(s.log, func(c *charge) bool { return c.of == a })
		if len(s.log) == 0 {
			s.logEnds = 0
		}
	}
	return func() {
		for _, level := range b.by.levels(a.request.Category) {
			if s := b.scope(level.name); len(removed[s]) > 0 {
				s.log = append(s.log, removed[s]...)
				s.logEnds = max(s.logEnds, b.now+level.keep)
			}
		}
	}
}

// hasSlots reports whether all scopes of an event hold its slots. Buckets do not name events, so any
// bucket may hold them.
func (m *model) hasSlots(by replica, a *admission) bool {
	for _, level := range by.levels(a.request.Category) {
		s := m.scope(level.name)
		if s.chargeOf(a) == nil && len(s.buckets) == 0 {
			return false
		}
	}
	return true
}

// stillCounts reports whether the slots of an event count in every tier of its scopes. In a log they
// count from their latest move, in buckets from the admission.
func (m *model) stillCounts(by replica, a *admission, now int64) bool {
	for _, level := range by.levels(a.request.Category) {
		from := a.at
		if c := m.scope(level.name).chargeOf(a); c != nil {
			from = c.time
		}
		for _, tier := range level.limit {
			if !m.counts(tier, from, now) {
				return false
			}
		}
	}
	return true
}

// move makes the event's slots in logs count from at.
func (m *model) move(by replica, a *admission, at int64) {
	a.moved = max(a.moved, at)
	m.clock = at
	for _, level := range by.everyLevel(a.request.Category) {
		s := m.scope(level.name)
		for _, c := range s.log {
			if c.of == a {
				c.time = max(c.time, at)
			}
		}
		if len(s.log) > 0 {
			s.logEnds = max(s.logEnds, at+level.keep)
		}
	}
}

// used counts the slots taken in a tier, including slots of this batch.
func (b *batch) used(name string, tier ratelimit.Tier) int {
	return b.model.used(b.scope(name), tier, b.now) + b.added[name]
}

// kept counts the unused slots that a tier of the global limit keeps for other categories.
func (b *batch) kept(tier ratelimit.Tier, category string) int {
	if !b.by.rules.Reserves(tier) {
		return 0
	}
	kept := 0
	for other, slots := range b.by.rules.Reserve {
		if other != category {
			kept += max(0, slots-b.used(categoryScope(other), tier))
		}
	}
	return kept
}

// reservedForOthers counts the slots of a global tier reserved for other categories, used or not.
func (b *batch) reservedForOthers(level level, tier ratelimit.Tier, category string) int {
	if level.verdict != ratelimit.Global || !b.by.rules.Reserves(tier) {
		return 0
	}
	reserved := 0
	for other, slots := range b.by.rules.Reserve {
		if other != category {
			reserved += slots
		}
	}
	return reserved
}

// refusal returns the decision of the tier that is last to have room, on a tie the first, or nil if all
// tiers have room. Its wait is a lower bound if any full tier gives only a lower bound.
func (b *batch) refusal(request ratelimit.Request) *ratelimit.Decision {
	var refusal *ratelimit.Decision
	latest, atLeast := int64(-1), false
	for _, level := range b.by.levels(request.Category) {
		for _, tier := range level.limit {
			kept := 0
			if level.verdict == ratelimit.Global {
				kept = b.kept(tier, request.Category)
			}
			used, room := b.used(level.name, tier), tier.Count-kept-request.Cost
			tooHigh := level.width == 0 && request.Cost > ratelimit.MaxExactCost
			if used <= room && !tooHigh {
				continue
			}
			decision := &ratelimit.Decision{Verdict: level.verdict, Tier: tier, Used: used, Reserved: kept}
			at := int64(never)
			reserved := b.reservedForOthers(level, tier, request.Category)
			if request.Cost > tier.Count-reserved || tooHigh {
				decision.Never = true
			} else {
				var orLater bool
				at, orLater = b.frees(level, tier, used-room)
				decision.RetryAfter = max(0, time.Duration(at-b.clock)*time.Microsecond)
				atLeast = atLeast || orLater || reserved > 0
			}
			if at > latest {
				refusal, latest = decision, at
			}
		}
	}
	if refusal != nil {
		refusal.AtLeast = atLeast
	}
	return refusal
}

const never = 1 << 62

// frees returns when a number of slots will have left a tier, if nothing else is admitted, and whether
// that time is a lower bound.
func (b *batch) frees(level level, tier ratelimit.Tier, leave int) (at int64, atLeast bool) {
	window := tier.Window.Microseconds()
	s := b.scope(level.name)
	if tier.Fixed {
		resets, n := b.floor(b.now, window)+window, len(s.buckets)
		return resets, n > 0 && s.buckets[n-1].ends >= resets
	}
	var times []int64 // of slots in the log
	for _, c := range s.log {
		if b.counts(tier, c.time, b.now) && c.time <= b.now {
			for range c.cost {
				times = append(times, c.time)
			}
		}
	}
	slices.Sort(times)
	first := slices.IndexFunc(s.buckets, func(bucket *bucket) bool { return b.counts(tier, bucket.ends, b.now) })
	switch {
	case first >= 0 && len(times) > 0:
		return min(times[0], s.buckets[first].ends) + window, true
	case first >= 0:
		return s.buckets[first].ends + window, true
	case leave > len(times) && level.width > 0:
		ends := b.bucketEnd(level.width, b.now)
		if n := len(s.buckets); n > 0 && s.buckets[n-1].ends >= b.now {
			ends = min(ends, s.buckets[n-1].ends)
		}
		return ends + window, true
	case leave > len(times):
		return b.now + window, false
	}
	return times[leave-1] + window, false
}

func (m *model) admit(by replica, a *admission) {
	m.clock = a.at
	for _, other := range m.admissions {
		if other.is(a.request) {
			other.inFlight = false // its record is replaced
		}
	}
	m.admissions = append(m.admissions, a)
	m.indexed[identity{category: a.request.Category, source: a.request.Source}] = a.at
	m.inFlightEnds = max(m.inFlightEnds, a.at+by.remembers())
	for _, level := range by.levels(a.request.Category) {
		s := m.scope(level.name)
		if level.width == 0 {
			s.log = append(s.log, &charge{of: a, time: a.at, cost: a.request.Cost})
			s.logEnds = max(s.logEnds, a.at+level.keep)
			s.trimLog(a.at - level.keep)
		} else {
			ends := s.pour(a.at, a.request.Cost, m.bucketEnd(level.width, a.at))
			s.bucketsEnd = max(s.bucketsEnd, ends+level.keep)
			s.trimBuckets(a.at - level.keep)
		}
	}
}

// begin records a post that begins at a time by the server's clock, and moves the slots to countsFrom. A repeated
// call begins its post anew.
func (m *model) begin(by replica, request ratelimit.Request, at, countsFrom int64, post string) {
	a := m.inFlight(request)
	if a.post != post {
		a.posts++
	}
	a.begun, a.post, a.poster = at, post, by.number
	m.inFlightEnds = max(m.inFlightEnds, at+aPost.Microseconds()+by.remembers())
	m.move(by, a, countsFrom)
}

// answered records Slack's response to the last post of an event in flight, and moves its slots to
// countsFrom unless that is 0. After a certain failure the event is not in Slack.
func (m *model) answered(by replica, a *admission, failed bool, countsFrom int64) {
	if countsFrom > 0 {
		m.move(by, a, countsFrom)
	}
	if failed {
		a.post, a.failed = "", a.post
	}
}

// inFlight returns the admission in flight for this delivery, or nil.
func (m *model) inFlight(request ratelimit.Request) *admission {
	for _, a := range m.admissions {
		if a.inFlight && a.is(request) && a.request.Delivery == request.Delivery {
			return a
		}
	}
	return nil
}

// anyDelivery returns the admission in flight for any delivery of an event, or nil.
func (m *model) anyDelivery(request ratelimit.Request) *admission {
	for _, a := range m.admissions {
		if a.inFlight && a.is(request) {
			return a
		}
	}
	return nil
}

// markSent records an event as sent, and moves its slots to countsFrom unless that is 0.
func (m *model) markSent(by replica, request ratelimit.Request, at, countsFrom int64) {
	if a := m.inFlight(request); a != nil && countsFrom > 0 {
		m.move(by, a, countsFrom)
	}
	m.sent[identityOf(request)] = at
	m.sentEnds = max(m.sentEnds, at+by.dedupe)
	maps.DeleteFunc(m.sent, func(_ identity, sent int64) bool { return sent <= at-by.dedupe })
	for _, a := range m.admissions {
		if a.is(request) {
			a.inFlight, a.forgotten = false, false
		}
	}
	m.forgetEnd()
}

// refundable returns the admission in flight for this delivery, or nil. If its last post may be in
// Slack, the caller has to know that post.
func (m *model) refundable(request ratelimit.Request, known string) *admission {
	if a := m.inFlight(request); a != nil && (a.post == "" || a.post == known) {
		return a
	}
	return nil
}

// refund returns the slots of an admission. The clock mark stays.
func (m *model) refund(a *admission) {
	a.inFlight, a.refunded = false, true
	for _, name := range a.scopes {
		m.scope(name).giveBack(a)
	}
	m.forgetEnd()
}

func (m *model) anyInFlight() bool {
	return slices.ContainsFunc(m.admissions, func(a *admission) bool { return a.inFlight })
}

// forgetEnd drops the expiry after the last record, because Redis removes an empty key.
func (m *model) forgetEnd() {
	if !m.anyInFlight() {
		m.inFlightEnds = 0
	}
}

// trace returns the known state of all events with an id.
func (m *model) trace(id string) map[identity]ratelimit.Trace {
	traces := map[identity]ratelimit.Trace{}
	for _, a := range m.admissions {
		if a.request.ID != id || !a.inFlight {
			continue
		}
		of := identityOf(a.request)
		trace := ratelimit.Trace{Category: of.category, Source: of.source, InFlight: true, Admitted: microTime(a.at)}
		if a.posts > 0 {
			trace.Posts, trace.LastPost, trace.Failed = a.posts, microTime(a.begun), a.post == ""
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

// ends returns when each key expires, to the microsecond; see end.
func (m *model) ends() map[string]int64 {
	ends := map[string]int64{}
	for name, s := range m.scopes {
		if len(s.log) > 0 {
			ends[name+logKey] = s.logEnds
		}
		if len(s.buckets) > 0 {
			ends[name+bucketsKey] = s.bucketsEnd
		}
	}
	if m.anyInFlight() {
		ends[inFlightKey] = m.inFlightEnds
	}
	if len(m.sent) > 0 {
		ends[sentKey] = m.sentEnds
	}
	return ends
}

// Names of keys in ends.
const (
	logKey      = " as a log"
	bucketsKey  = " in buckets"
	inFlightKey = "in flight"
	sentKey     = "sent"
)

// end returns when a key that must live until at expires: at the server's next whole millisecond.
func (m *model) end(at int64) int64 {
	aged := m.aged()
	return aged + ((at-aged)/1000+1)*1000
}

// expire removes the data of an expired key.
func (m *model) expire(key string) {
	switch {
	case key == sentKey:
		clear(m.sent)
		m.sentEnds = 0
	case key == inFlightKey:
		for _, a := range m.admissions {
			a.inFlight = false
		}
		m.inFlightEnds = 0
	case strings.HasSuffix(key, logKey):
		m.scopes[strings.TrimSuffix(key, logKey)].trimLog(never)
	default:
		m.scopes[strings.TrimSuffix(key, bucketsKey)].trimBuckets(never)
	}
}

// copy returns a deep copy.
func (m *model) copy() *model {
	other := *m
	other.sent, other.indexed = maps.Clone(m.sent), maps.Clone(m.indexed)
	copies := map[*admission]*admission{}
	other.admissions = slices.Clone(m.admissions)
	for i, a := range m.admissions {
		same := *a
		other.admissions[i], copies[a] = &same, &same
	}
	other.scopes = map[string]*scope{}
	for name, s := range m.scopes {
		other.scopes[name] = s.copy(copies)
	}
	return &other
}

// String lists the clock, slots and buckets for failure messages.
func (m *model) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "clock %d, aged %d\n", m.clock, m.aged())
	for _, name := range slices.Sorted(maps.Keys(m.scopes)) {
		s := m.scopes[name]
		fmt.Fprintf(&text, "%s: log until %d, buckets until %d\n", name, s.logEnds, s.bucketsEnd)
		for _, c := range s.log {
			fmt.Fprintf(&text, "  %d x%d %+v\n", c.time, c.cost, c.of)
		}
		for _, b := range s.buckets {
			fmt.Fprintf(&text, "  to %d from %d: %d\n", b.ends, b.began, b.slots)
		}
	}
	return text.String()
}

func microTime(micros int64) time.Time { return time.UnixMicro(micros).UTC() }
