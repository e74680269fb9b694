package ratelimit_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"notifier/internal/ratelimit"
)

// TestModelKeepsItsPromises plays random histories against the model alone. Two lists judge it, the real
// admissions and the messages that Slack has shown. They ignore buckets, forms and the model's own
// memory. No window of a limit that writes a log may hold more messages than its COUNT.
func TestModelKeepsItsPromises(t *testing.T) {
	for name, replicas := range map[string]int{"one set of rules": 1, "several": 3} {
		t.Run(name, func(t *testing.T) {
			admitted, refused, shown := 0, 0, 0
			rapid.Check(t, func(r *rapid.T) {
				w := newWitness(r, replicas)
				r.Repeat(map[string]func(*rapid.T){
					"ask": w.ask, "ask again": w.ask, "ask once more": w.ask, "ask on": w.ask,
					"wait": w.wait, "begin": w.begin, "begin again": w.begin, "answer": w.answer, "answer again": w.answer,
					"refund": w.refund, "": w.check,
				})
				admitted, refused, shown = admitted+len(w.all), refused+w.refused, shown+len(w.shown)
			})
			t.Logf("%d admitted, %d refused, %d messages", admitted, refused, shown)
			if shown == 0 {
				t.Error("no message was shown: this judges nothing")
			}
		})
	}
}

// witness is one random run with its real admissions and messages.
type witness struct {
	*rapid.T
	model    *model
	replicas []replica
	clock    int64 // the server's
	steps    bool  // it sometimes steps back
	costs    []int
	asked    []ratelimit.Request
	waits    []time.Duration
	all      []*given
	shown    []slackMessage
	posting  []*posting
	posts    int // begun
	refused  int
}

// slackMessage is a message that Slack has shown.
type slackMessage struct {
	of *given
	at int64
}

// posting is a post without a response yet.
type posting struct {
	of    *given
	by    replica
	begun int64
	name  string
}

// given is one real admission.
type given struct {
	*admission
	by       int // index of the worker
	scopes   []string
	refunded bool
	sent     int64
}

func newWitness(r *rapid.T, replicas int) *witness {
	w := &witness{T: r, model: newModel(func() int64 { return 0 }), clock: time.Date(2026, 11, 20, 4, 39, 1, 123457000, time.UTC).UnixMicro()}
	dedupes := []time.Duration{2 * time.Hour}
	if replicas == 1 {
		w.steps = rapid.Bool().Draw(r, "steps back")
		dedupes = append(dedupes, time.Millisecond, 6*time.Second)
	}
	for range replicas {
		w.replicas = append(w.replicas, newReplica(anyRules(r, windows), rapid.SampledFrom(dedupes).Draw(r, "dedupe")))
	}
	w.costs = costsFor(w.replicas)
	return w
}

func (w *witness) now() int64 { return w.model.now(w.clock) }

func (w *witness) single() bool { return len(w.replicas) == 1 }

// used counts the slots of a scope that were really taken and count in a tier at a time.
func (w *witness) used(scope string, tier ratelimit.Tier, at int64) int {
	used := 0
	for _, g := range w.all {
		if g.refunded || !slices.Contains(g.scopes, scope) {
			continue
		}
		from := w.countsFrom(g, scope)
		ahead := from > at // written before the clock was set back by more than a day
		if from >= start(tier, at) && (w.inBuckets(scope) || !g.released && !ahead) {
			used += g.request.Cost
		}
	}
	return used
}

// start returns the first microsecond of a tier's window at a time.
func start(tier ratelimit.Tier, at int64) int64 {
	window := tier.Window.Microseconds()
	if tier.Fixed {
		return at - at%window
	}
	return at - window + 1
}

// globalAlone counts the slots of a category that the global limit's buckets still hold, but the
// category's log no longer does, because their events were decided again.
func (w *witness) globalAlone(category string, tier ratelimit.Tier, at int64) (slots int) {
	if !w.inBuckets(globalScope) || w.inBuckets(categoryScope(category)) {
		return 0
	}
	for _, g := range w.all {
		if g.released && !g.refunded && g.request.Category == category && g.at >= start(tier, at) {
			slots += g.request.Cost
		}
	}
	return slots
}

// countsFrom returns the time from which the slots of an admission count in a scope: their latest move
// in a log, the admission in buckets. With several workers it is always the admission.
func (w *witness) countsFrom(g *given, scope string) int64 {
	if w.single() && !w.inBuckets(scope) {
		return g.moved
	}
	return g.at
}

// inBuckets reports whether the run has a single worker, which writes buckets for the scope.
func (w *witness) inBuckets(scope string) bool {
	return w.single() && widthOf(w.replicas[0].standing(scope)) > 0
}

func (w *witness) ask(r *rapid.T) {
	request := anyRequest(w.costs).Draw(r, "request")
	if len(w.asked) > 0 && rapid.IntRange(0, 3).Draw(r, "repeat") == 0 {
		request = rapid.SampledFrom(w.asked).Draw(r, "of")
	}
	w.asked = append(w.asked, request)
	by := rapid.IntRange(0, len(w.replicas)-1).Draw(r, "worker")
	p := w.replicas[by]
	if w.single() {
		w.floorsHold(p, request)
	}
	defer func() { w.clock++ }() // at least this passes, so Slack's clock is not behind the decision's
	before := len(w.model.admissions)
	decision := w.model.decideBatch(p, w.clock, []ratelimit.Request{request})[0]
	switch {
	case len(w.model.admissions) > before:
		w.admitted(by, request)
	case decision.Verdict == ratelimit.Admitted || decision.Verdict == ratelimit.Duplicate:
	default:
		w.refused++
		if decision.RetryAfter > 0 {
			w.waits = append(w.waits, decision.RetryAfter)
		}
		if w.single() {
			w.refusedForAReason(p, request, decision)
		}
	}
}

// admitted checks an admission against all earlier ones.
func (w *witness) admitted(by int, request ratelimit.Request) {
	p, now := w.replicas[by], w.model.clock
	for _, g := range w.all { // a step back of the clock does not bring back forgotten events
		known := g.sent > now-p.dedupe || g.sent == 0 && w.model.stillCounts(p, g.admission, now)
		if w.single() && !w.steps && g.is(request) && !g.refunded && known {
			w.Fatalf("%+v is admitted again at %d: %+v", request, now, g)
		}
	}
	g := &given{admission: w.model.admissions[len(w.model.admissions)-1], by: by}
	for _, level := range p.levels(request.Category) {
		g.scopes = append(g.scopes, level.name)
	}
	w.all = append(w.all, g)
	for _, level := range p.levels(request.Category) {
		for _, tier := range level.limit {
			if tier.Window.Microseconds() > w.kept(level.name, request.Category) {
				continue
			}
			if used := w.used(level.name, tier, now); used > tier.Count {
				w.Fatalf("%d slots of %s are taken in %s at %d", used, tier, level.name, now)
			}
		}
	}
}

// kept returns how long all workers keep the entries of a scope. A longer window of one worker may miss
// entries that others have trimmed.
func (w *witness) kept(scope, category string) int64 {
	kept := int64(never)
	for _, p := range w.replicas {
		for _, level := range p.levels(category) {
			if level.name == scope {
				kept = min(kept, level.keep)
			}
		}
	}
	return kept
}

// refusedForAReason checks that the event does not fit the tier, and that the wait ends when it fits: to
// the microsecond in logs and fixed windows, otherwise late by less than the width of a bucket. A wait
// that is a lower bound may end earlier.
func (w *witness) refusedForAReason(p replica, request ratelimit.Request, decision ratelimit.Decision) {
	levels, now := p.levels(request.Category), w.now()
	level := levels[slices.IndexFunc(levels, func(l level) bool { return l.verdict == decision.Verdict })]
	tier, room, reserved := decision.Tier, decision.Tier.Count-decision.Reserved, 0
	if decision.RetryAfter == 0 {
		for other, slots := range p.rules.Reserve { // used or not
			if level.verdict == ratelimit.Global && p.rules.Reserves(tier) && other != request.Category {
				reserved += slots
			}
		}
		if request.Cost <= tier.Count-reserved {
			w.Fatalf("%+v never fits: %+v", request, decision)
		}
		return
	}
	if old := w.model.anyDelivery(request); old != nil && !old.released { // its slots leave the logs first
		old.released = true
		defer func() { old.released = false }()
	}
	frees := now
	for used := w.used(level.name, tier, now); used+request.Cost > room; used = w.used(level.name, tier, frees) {
		frees = w.next(level.name, tier, frees)
	}
	late := w.clock + decision.RetryAfter.Microseconds() - frees
	most := int64(1)
	if !tier.Fixed {
		most = max(1, level.width)
	}
	if late < 0 && !decision.AtLeast || late >= most {
		w.Fatalf("%+v: %+v at %d, %d us after there is room at %d", request, decision, now, late, frees)
	}
}

// next returns when the next slot leaves a tier after at.
func (w *witness) next(scope string, tier ratelimit.Tier, at int64) int64 {
	window := tier.Window.Microseconds()
	if tier.Fixed {
		return at - at%window + window
	}
	next := int64(1 << 62)
	for _, g := range w.all {
		if leaves := w.countsFrom(g, scope) + window; slices.Contains(g.scopes, scope) && leaves > at {
			next = min(next, leaves)
		}
	}
	return next
}

// floorsHold checks that the global limit has room for the unused reserved slots of the request's
// category. A slot in a bucket counts longer than its event and is in use until it leaves. This also
// applies to slots of other categories with a reservation, and of events that were decided again.
func (w *witness) floorsHold(p replica, request ratelimit.Request) {
	reserve, now := p.rules.Reserve[request.Category], w.now()
	if reserve == 0 {
		return
	}
	for _, tier := range p.rules.Global {
		if !p.rules.Reserves(tier) {
			continue
		}
		late := tier // a slot in a bucket counts longer than its event
		if !tier.Fixed {
			late.Window += time.Duration(widthOf(p.rules.Global)) * time.Microsecond
		}
		use := w.used(categoryScope(request.Category), late, now)
		for other := range p.rules.Reserve { // slots that only the global limit still counts
			use += w.globalAlone(other, late, now)
			if other != request.Category {
				use += w.used(categoryScope(other), late, now) - w.used(categoryScope(other), tier, now)
			}
		}
		b := &batch{model: w.model, by: p, now: now, added: map[string]int{}}
		kept, used := b.kept(tier, request.Category), b.used(globalScope, tier)
		if use+request.Cost <= reserve && used+kept+request.Cost > tier.Count {
			w.Fatalf("%+v: %d of %d reserved slots are in use, and %s has no room: %d used, %d kept", request, use, reserve, tier, used, kept)
		}
	}
}

func (w *witness) wait(r *rapid.T) {
	steps := []*rapid.Generator[time.Duration]{
		rapid.Map(rapid.Int64Range(0, 5000), func(us int64) time.Duration { return time.Duration(us) * time.Microsecond }),
		rapid.SampledFrom(windows),
		rapid.Map(rapid.SampledFrom(windows), func(w time.Duration) time.Duration { return w / 3 }),
	}
	if n := len(w.waits); n > 0 {
		steps = append(steps, rapid.Map(rapid.IntRange(-1, 1), func(us int) time.Duration {
			return max(0, w.waits[n-1]+time.Duration(us)*time.Microsecond)
		}))
	}
	step := rapid.OneOf(steps...).Draw(r, "for")
	if w.steps && rapid.IntRange(0, 3).Draw(r, "back") == 0 {
		step = -step
	}
	w.clock += step.Microseconds()
	if !w.steps {
		for name, at := range w.model.ends() {
			if at <= w.clock {
				w.model.expire(name)
			}
		}
	}
}

// begin starts a post of an admitted event. If its slots no longer count, the event has to be decided
// again instead.
func (w *witness) begin(r *rapid.T) {
	g := w.anyInFlight(r)
	by := w.replicas[g.by]
	if g.post != "" || !w.model.stillCounts(by, g.admission, w.model.latest(w.clock)) {
		r.Skip("being posted, or to be decided again")
	}
	w.posts++
	p := &posting{of: g, by: by, begun: w.clock, name: fmt.Sprint("p", w.posts)}
	w.model.begin(by, g.request, w.clock, w.model.latest(w.clock), p.name)
	w.posting = append(w.posting, p)
}

// answer ends a post in one of three ways: it certainly fails; or Slack shows the message at once and
// the worker dies before it records that; or Slack shows the message at some time up to now, which the
// worker records.
func (w *witness) answer(r *rapid.T) {
	if len(w.posting) == 0 {
		r.Skip("no post has begun")
	}
	n := rapid.IntRange(0, len(w.posting)-1).Draw(r, "post")
	p := w.posting[n]
	w.posting = slices.Delete(w.posting, n, n+1)
	g, now := p.of, w.model.latest(w.clock)
	if !g.inFlight || g.post != p.name {
		r.Skip("not in flight any more")
	}
	counts := w.model.stillCounts(p.by, g.admission, now)
	countsFrom := int64(0)
	if counts {
		countsFrom = now
	}
	switch rapid.IntRange(0, 3).Draw(r, "answer") {
	case 0:
		w.model.answered(p.by, g.admission, true, countsFrom)
	case 1:
		w.show(g, p.begun)
	default:
		at := p.begun
		if counts && w.clock > p.begun {
			at = rapid.Int64Range(p.begun, w.clock).Draw(r, "shown")
		}
		w.show(g, at)
		g.sent = now
		w.model.markSent(p.by, g.request, now, countsFrom)
	}
}

// anyInFlight draws an admission in flight.
func (w *witness) anyInFlight(r *rapid.T) *given {
	if len(w.all) == 0 {
		r.Skip("nothing was admitted")
	}
	g := rapid.SampledFrom(w.all).Draw(r, "event")
	if w.model.inFlight(g.request) != g.admission {
		r.Skip("not in flight")
	}
	return g
}

// show adds a message and checks the windows of its scopes. It checks no buckets, because they count
// from the admission. It checks nothing if the clock steps back or rules differ, because windows can
// then hold more.
func (w *witness) show(g *given, at int64) {
	w.shown = append(w.shown, slackMessage{g, at})
	if !w.single() || w.steps {
		return
	}
	for _, level := range w.replicas[0].levels(g.request.Category) {
		for _, tier := range level.limit {
			if level.width > 0 {
				continue
			}
			for _, last := range w.shown { // the window that ends with this message
				if messages := w.messages(level.name, tier, last.at); messages > tier.Count {
					w.Fatalf("%d messages of %s in %s until %d: %+v", messages, level.name, tier, last.at, w.shown)
				}
			}
		}
	}
}

// messages counts the slots of a scope's messages in the tier's window that ends at until.
func (w *witness) messages(scope string, tier ratelimit.Tier, until int64) int {
	messages, from := 0, start(tier, until)
	for _, m := range w.shown {
		if slices.Contains(m.of.scopes, scope) && m.at >= from && m.at <= until {
			messages += m.of.request.Cost
		}
	}
	return messages
}

func (w *witness) refund(r *rapid.T) {
	if len(w.all) == 0 || !w.single() {
		r.Skip("nothing that is in one form for sure")
	}
	g := w.anyInFlight(r)
	if g.post != "" {
		r.Skip("it may be in Slack")
	}
	w.model.refund(g.admission)
	g.refunded = true
}

// check examines the model's slots after each step. With several workers, an event that was decided
// again may keep slots in its group: a worker without a group limit does not remove slots there.
func (w *witness) check(*rapid.T) {
	for name, s := range w.model.scopes {
		for _, c := range s.log {
			if c.time != c.of.moved || c.of.refunded || c.of.released && w.single() {
				w.Fatalf("%s counts at %d: %+v", name, c.time, c.of)
			}
		}
		for i, b := range s.buckets {
			if b.slots < 1 || b.began > b.ends || i > 0 && b.ends <= s.buckets[i-1].ends {
				w.Fatalf("%s has the bucket %+v", name, b)
			}
		}
	}
}
