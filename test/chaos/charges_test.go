package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
)

// drops looks whether refusals are what they say. A reason outside the list, a limit that was not full, or a
// refusal while there was no Redis that could have refused: each is an event that was thrown away.
func (a *audit) drops() {
	s := a.scopes()
	for _, l := range a.settled {
		if l.Outcome != "dropped" || l.Reason == "duplicate" || l.muted() {
			continue
		}
		e := a.events[l.EventID]
		if e == nil {
			continue // said already
		}
		if !l.refusedByLimit() || l.Limit == "" || l.RetryAfter == nil {
			a.blame(e, "dropped for a reason that there is not: %s", l)
			continue
		}
		if a.delayed(l) {
			continue // nobody knows when it was decided
		}
		if outage, unavailable := a.redisUnavailable(l.Time); unavailable {
			a.blame(e, "dropped while Redis was unavailable, %s: %s", outage, l)
		}
		tier, err := ratelimit.ParseLimit(l.Limit)
		if err != nil {
			a.blame(e, "%v: %s", err, l)
			continue
		}
		unknown := a.refundNear(l.Time, tier[0].Window) || a.askedFor(l.Time, tier[0].Window) ||
			a.d.ledger.mayHaveMissed(l.Time.Add(-decisionAge), l.Time)
		if !unknown {
			a.judgedRefusals++
		}
		if most := mostHeld(s.of(l), l.Time, tier[0].Window); most+e.cost <= tier[0].Count && !unknown {
			a.blame(e, "dropped by %s, when no more than %d were taken: %s", l.Limit, most, l)
		}
	}
}

// decisionAge is the most time that passes between a decision and its line: an answer of Redis comes within
// half a second or is asked for again, and two cores are shared by everything here.
const decisionAge = 3 * time.Second

// mostHeld is the most slots that a window of the scope may have held in the time in which a line may have
// been decided.
func mostHeld(scope []*admission, line time.Time, window time.Duration) int {
	from, to := line.Add(-decisionAge).UnixMicro(), line.UnixMicro()
	most := mayHold(scope, from, window)
	for _, a := range scope {
		for _, score := range a.scores {
			if score > from && score <= to {
				most = max(most, mayHold(scope, score, window))
			}
		}
	}
	return most
}

// mayHold counts the slots that may have counted in the window that ends at t.
func mayHold(scope []*admission, t int64, window time.Duration) int {
	n := 0
	for _, a := range scope {
		if a.mayCount(t, window) && (!a.refunded || a.last+lookEvery.Microseconds() >= t) {
			n++
		}
	}
	return n
}

// delayed reports whether the process stood still shortly before it wrote the line.
func (a *audit) delayed(l *line) bool {
	return slices.ContainsFunc(l.process.stops, func(s span) bool { return s.overlaps(l.Time.Add(-decisionAge), l.Time.Add(decisionAge)) })
}

// redisUnavailable reports whether Redis had been unavailable for so long that a line cannot rest on an
// answer.
func (a *audit) redisUnavailable(at time.Time) (fault, bool) {
	for _, f := range a.d.faults.of(faultRedis) {
		if at.After(f.when.from.Add(time.Second)) && at.Before(f.when.to) {
			return f, true
		}
	}
	return fault{}, false
}

// refundNear reports whether Slack refused a channel, or a mute began, at a time that matters to the window:
// a slot that was given back before anybody looked counted, and cannot be seen.
func (a *audit) refundNear(at time.Time, window time.Duration) bool {
	from, to := at.Add(-window-decisionAge), at.Add(decisionAge)
	began := func(f fault) bool { return f.when.overlaps(from, to) }
	return slices.ContainsFunc(a.d.faults.of(faultRefuses, faultMute), began) ||
		slices.ContainsFunc(a.settled, func(l *line) bool {
			return l.rejected(badChannel) && l.Time.After(from) && l.Time.Before(to)
		})
}

// askedFor reports whether Sentinels were asked for a failover at a time that matters to the window. The old
// primary goes on until it is replaced: what it charges without an answer that still counts is decided again
// by the new one, and cannot be seen.
func (a *audit) askedFor(at time.Time, window time.Duration) bool {
	return slices.ContainsFunc(a.d.faults.of(faultFailover), func(f fault) bool {
		return f.what == askedForFailover && f.when.overlaps(at.Add(-window-decisionAge), at.Add(decisionAge))
	})
}

// wentOnWithout reports whether a worker put back what it knows only when the others had decided again, at a
// time that matters to the window: a store is closed for a second and a half, and a process that this machine
// does not let run for so long is late.
func (a *audit) wentOnWithout(at time.Time, window time.Duration) bool {
	return slices.ContainsFunc(a.unheard, func(l *line) bool {
		return l.Time.After(at.Add(-window-decisionAge)) && l.Time.Before(at.Add(decisionAge))
	})
}

// scopes are all admissions, and those of each category, in the order of time.
type scopes struct {
	global     []*admission
	byCategory map[string][]*admission
}

func (a *audit) scopes() scopes {
	s := scopes{global: slices.Clone(a.d.ledger.all), byCategory: map[string][]*admission{}}
	slices.SortFunc(s.global, func(a, b *admission) int { return int(a.at - b.at) })
	for _, m := range s.global {
		if e := a.events[m.id()]; e != nil {
			s.byCategory[e.category] = append(s.byCategory[e.category], m)
		}
	}
	return s
}

// of is the scope whose limit has refused an event.
func (s scopes) of(l *line) []*admission {
	if l.Reason == outcome.Category {
		return s.byCategory[l.Category]
	}
	return s.global
}

// windows looks for a window that held more than its limit. A slot that came back after its refund had been
// given to another event meanwhile. So it does not count, whether its event was posted after all or not: of
// two workers that hold an event, the one that has not refunded it puts it back, which docs/design.md names
// as a limit of healing. The report has how many were posted.
func (a *audit) windows() {
	s := a.scopes()
	look := func(name, order string, scope []*admission, limit ratelimit.Limit) {
		scope = a.counted(scope)
		for i, tier := range limit {
			held, most, at := overfull(scope, tier.Window, a.mostAllowed(order, limit, i))
			if held > most && !a.wentOnWithout(time.UnixMicro(at), tier.Window) {
				a.overfull++
				until := time.UnixMicro(at)
				a.problem("%s: %d slots in the %s until %s, expected at most %d%s\n    faults then:\n      %s", name, held, tier.Window,
					clock(until), most, listed(scope, at, tier.Window), a.d.faults.around(until.Add(-tier.Window), until.Add(tier.Window)))
			}
		}
	}
	rules := a.d.ledger.rules
	look("the global limit", "global", s.global, rules.Global)
	for category, scope := range s.byCategory {
		look("category "+category, "category/"+category, scope, rules.LimitFor(category))
	}
}

// counted are the slots that count. Left out are those that came back after a look saw them gone, and those that
// went with an old primary which charged them without an answer that still counts: the new one never had them.
// If such an event was posted because of it, charge says so. Of the others a copy says when they counted: those
// whose refund Redis has forgotten between two looks only until it, unclear ones only until the last look that
// saw them, and those that nobody saw before a loss only from the first look: they may have gone with one
// primary and come back with another.
func (a *audit) counted(scope []*admission) []*admission {
	var counted []*admission
	for _, m := range scope {
		during := *m
		if refund, forgotten := a.forgotten[m.id()]; forgotten {
			during.refunded, during.last = true, min(m.last, refund)
		}
		if m.unclear {
			during.refunded = true
		}
		if a.lostSomething(time.UnixMicro(m.at), time.UnixMicro(m.first)) {
			during.certain = m.first
		}
		if unanswered := during.refunded && a.askedFor(time.UnixMicro(during.last), 0); !m.back && !unanswered {
			counted = append(counted, &during)
		}
	}
	return counted
}

// lostSomething reports whether Redis may have lost admissions between two times.
func (a *audit) lostSomething(from, to time.Time) bool {
	return slices.ContainsFunc(a.d.faults.of(faultEmpty, faultFailover), func(f fault) bool { return f.when.overlaps(from, to) })
}

// listed are the slots of a window that is too full, as evidence.
func listed(scope []*admission, until int64, window time.Duration) (text string) {
	for _, m := range scope {
		if m.counts() > until-window.Microseconds() && m.counts() <= until {
			text += fmt.Sprintf("\n    %s at %s, counts from %s, seen from %s to %s, refunded: %v",
				m.slot, clock(time.UnixMicro(m.at)), clock(time.UnixMicro(m.counts())), clock(time.UnixMicro(m.first)),
				clock(time.UnixMicro(m.last)), m.refunded)
		}
	}
	return text
}

// charges holds the ledger of admissions against what came to Slack.
func (a *audit) charges() {
	r := a.d.ledger
	for _, text := range r.problems {
		a.wronglyCharged++
		a.problem("%s", text)
	}
	for _, c := range r.again {
		a.chargedAgain(c)
	}
	if limit := r.mostUnseen(); r.longest > limit {
		a.problem("nobody looked at the ledger for %s, expected less than %s: this audit is worth nothing", r.longest, limit)
	}
	admissions := r.byID()
	for id := range admissions {
		if a.events[id] == nil {
			a.wronglyCharged++
			a.problem("%q was charged, and never acknowledged", id)
		}
	}
	for _, id := range a.d.publisher.order {
		a.charge(a.events[id], admissions[id])
	}
	inFlight, err := r.inFlight(a.d.Context())
	if err != nil {
		a.problem("%v", err)
	}
	for id, record := range inFlight {
		// What is older than every window is not in flight any more; it goes with the next admission. What was
		// dead-lettered in doubt keeps its slot, and its record until the slot is free: it may stand in the
		// channel.
		e := a.events[id]
		if e == nil || record.Admitted.UnixMicro() <= r.lastLook-r.retention {
			continue
		}
		switch {
		case a.lostSlots[id], deadInDoubt(a.lines[id]), a.settledMeanwhile(e), a.mutedUnasked(a.lines[id], admissions[id]):
		case a.rejectedBeforeALoss(a.lines[id]):
		case a.sentOnOldPrimary(e):
		case a.lost(a.lines[id], admissions[id]):
		default:
			a.wrongCharge(e, "still in flight when nothing is left to do")
		}
	}
}

// sentOnOldPrimary reports whether an event was recorded as sent while Sentinels were asked for a failover.
// The record may be lost with the old primary, which goes on until it is replaced, after the admission was
// put back: its slot counts as it should, and its id is known for as long as that, instead of for the dedupe
// window. docs/design.md names it.
func (a *audit) sentOnOldPrimary(e *event) bool {
	return slices.ContainsFunc(a.lines[e.id], func(l *line) bool { return l.Outcome == outcome.Sent && a.askedFor(l.Time, 0) })
}

// rejectedBeforeALoss reports whether an event was rejected because of the message, and Redis lost something
// since: a worker puts its slots back, which it keeps, and the record of it with them.
func (a *audit) rejectedBeforeALoss(lines []*line) bool {
	losses := a.d.faults.of(faultEmpty, faultFailover, faultPrimary, faultRedis)
	return slices.ContainsFunc(lines, func(l *line) bool {
		later := func(f fault) bool { return f.when.to.After(l.Time) }
		return l.rejected(badMessage) && slices.ContainsFunc(losses, later)
	})
}

func deadInDoubt(lines []*line) bool {
	return slices.ContainsFunc(lines, func(l *line) bool { return l.Outcome == "dead" && l.Ambiguous })
}

// chargedAgain looks at a slot that was taken twice. While Slack refuses a channel, or events are muted, it
// may have been refunded between two looks.
func (a *audit) chargedAgain(c chargedAgain) {
	id := (&admission{slot: c.slot}).id()
	first, second := time.UnixMicro(c.first), time.UnixMicro(c.second)
	for _, f := range a.d.faults.of(faultRefuses, faultMute) {
		if f.when.overlaps(first, second.Add(time.Second)) {
			return
		}
	}
	for _, f := range a.d.faults.of(faultEmpty, faultFailover) {
		if f.when.overlaps(first, second.Add(time.Duration(a.d.ledger.retention)*time.Microsecond)) {
			return // put back by a worker that was given it again, at that time: later than it need be, but once
		}
	}
	if e := a.events[id]; e != nil {
		a.wrongCharge(e, "charged again: %q was taken at %s and, while that still counted, at %s", c.slot,
			clock(first), clock(second))
	}
}

func (a *audit) charge(e *event, admissions []*admission) {
	posts, lines := a.posts[e.id], a.lines[e.id]
	kept, unjustified := 0, 0
	for _, m := range admissions {
		if m.refunded {
			continue
		}
		kept++
		if !m.unclear && !a.justified(lines, m) {
			unjustified++
		}
	}
	refund := a.refundForgotten(lines)
	if n := len(admissions); refund != nil && n > 0 && kept == 0 && admissions[n-1].last > refund.Time.UnixMicro() {
		// The slot was seen after its refund, and gone later: a failover has brought it back between two looks,
		// until the next loss.
		a.forgotten[e.id] = refund.Time.Add(-decisionAge).UnixMicro()
	}
	switch {
	case e.malformed && len(admissions) > 0:
		a.wrongCharge(e, "charged, and malformed")
	case len(posts) > 0 && len(admissions) == 0:
		a.wrongCharge(e, "in Slack, and never charged")
	case len(posts) > 0 && kept == 0:
		a.wrongCharge(e, "in Slack, and refunded")
	case len(posts) > 0 && admissions[0].at > posts[0].at.UnixMicro() && !a.unseenAt(posts[0].at):
		a.wrongCharge(e, "charged after it was posted")
	case len(admissions) == 1 && kept == 0 && a.rejectedOnce(lines) && !a.askedFor(lines[0].Time, time.Minute):
		a.wrongCharge(e, "rejected because of the message, and refunded")
	case len(posts) > 0 || unjustified == 0:
	case refund != nil:
		a.refundsForgotten++
		a.lostSlots[e.id] = true
		a.forgotten[e.id] = refund.Time.Add(-decisionAge).UnixMicro()
	case a.lost(lines, admissions), a.mutedUnasked(lines, admissions), a.restoredByAnother(lines, admissions):
		a.slotsLost++
		a.lostSlots[e.id] = true
	default:
		a.wrongCharge(e, "charged, and not in Slack")
	}
}

// unseenAt reports whether nobody looked at the ledger shortly before and after a time. The slot of a post may
// then have come and gone: one loss after the other keeps a store closed, and when it opens, the event is decided
// again.
func (a *audit) unseenAt(at time.Time) bool { return a.d.ledger.mayHaveMissed(at, at.Add(lookEvery)) }

// rejectedOnce reports whether all that happened to an event is that Slack rejected it because of the
// message.
func (a *audit) rejectedOnce(lines []*line) bool {
	return len(lines) == 1 && lines[0].rejected(badMessage)
}

// justified reports whether an event that never came to Slack had a right to a slot that it kept: it was
// rejected because of the message, it may have been there as far as anybody knew, or it was held until the
// slot counted no more, and was refused or dead-lettered only then.
func (a *audit) justified(lines []*line, m *admission) bool {
	expired := m.counts() + a.d.ledger.retention
	for _, l := range lines {
		if l.Ambiguous || l.rejected(badMessage) || ((l.refusedByLimit() || l.muted()) && l.Time.UnixMicro() >= expired) {
			return true
		}
	}
	died := slices.IndexFunc(lines, func(l *line) bool { return l.Outcome == "dead" && l.Time.UnixMicro() >= m.at })
	return died >= 0 && lines[died].Time.UnixMicro() >= expired // of several the first one had to give it back
}

// refundForgotten is the line of an event that was refunded, where Redis may have forgotten that; nil: none.
// The slot stays taken until it leaves the window, and a message less is sent. A failover forgets a refund as
// it forgets an admission. And of two workers that held the event, the one that has not refunded it puts it
// back.
func (a *audit) refundForgotten(lines []*line) *line {
	kinds := []string{faultEmpty, faultFailover}
	if slices.ContainsFunc(lines, func(l *line) bool { return l.Redelivered }) {
		kinds = append(kinds, faultRedis)
	}
	for _, l := range lines {
		if (l.Outcome == "dead" || l.muted()) && slices.ContainsFunc(a.d.faults.of(kinds...), func(f fault) bool {
			return f.when.to.After(l.Time) && f.when.to.Before(l.Time.Add(time.Duration(a.d.ledger.retention)*time.Microsecond))
		}) {
			return l
		}
	}
	return nil
}

// lost reports whether the last admission came after the event was settled or refunded, and a process ended
// soon after: see audit. That an event is muted is decided some time before its line.
func (a *audit) lost(lines []*line, admissions []*admission) bool {
	if len(admissions) == 0 {
		return false
	}
	last := admissions[len(admissions)-1]
	at := time.UnixMicro(last.at)
	over := slices.ContainsFunc(lines, func(l *line) bool { return l.Time.Before(at) || l.muted() && l.Time.Add(-decisionAge).Before(at) }) ||
		slices.ContainsFunc(admissions, func(m *admission) bool { return m.refunded })
	return over && !last.refunded && slices.ContainsFunc(a.d.faults.of(faultKill, faultTerm), func(f fault) bool {
		return f.when.overlaps(at, at.Add(time.Duration(a.d.ledger.retention)*time.Microsecond))
	})
}

// mutedUnasked reports whether an event was dropped as muted by a worker that could not know of its
// admission: the process that held it ended or handed it back, and the consumer was deleted, so that the next
// one delivered it as if for the first time.
func (a *audit) mutedUnasked(lines []*line, admissions []*admission) bool {
	between := func(admitted, dropped time.Time, kinds ...string) bool {
		return slices.ContainsFunc(a.d.faults.of(kinds...), func(f fault) bool {
			return f.when.overlaps(admitted.Add(-decisionAge), dropped)
		})
	}
	return slices.ContainsFunc(lines, func(l *line) bool {
		return l.muted() && !l.Redelivered && slices.ContainsFunc(admissions, func(m *admission) bool {
			admitted := time.UnixMicro(m.at)
			return admitted.Before(l.Time) && between(admitted, l.Time, faultConsumer) &&
				(between(admitted, l.Time, faultKill, faultTerm) || a.handedBack(l.StreamSeq))
		})
	})
}

// restoredByAnother reports whether an event came in two stream messages, its limit refused both, and Redis lost
// something meanwhile: a worker may have restored slots that the other one's decision had taken out, which
// docs/design.md names.
func (a *audit) restoredByAnother(lines []*line, admissions []*admission) bool {
	if len(lines) < 2 || len(admissions) == 0 {
		return false
	}
	both := lines[0].StreamSeq != lines[1].StreamSeq
	for _, l := range lines {
		both = both && l.refusedByLimit()
	}
	return both && a.lostSomething(time.UnixMicro(admissions[0].at), lines[len(lines)-1].Time)
}

// handedBack reports whether a worker gave a stream message back to the server.
func (a *audit) handedBack(seq uint64) bool {
	return slices.ContainsFunc(a.d.said(seq), func(line string) bool {
		return strings.Contains(line, " $JS.ACK.") && strings.Contains(line, " -NAK")
	})
}
