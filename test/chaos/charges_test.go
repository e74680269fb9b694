package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
)

// drops checks that each refusal was justified. An unknown reason, a limit that was not full, or a
// refusal while Redis was unavailable means that an event was thrown away.
func (a *audit) drops() {
	s := a.scopes()
	for _, l := range a.settled {
		if l.Outcome != "dropped" || l.Reason == "duplicate" || l.muted() {
			continue
		}
		e := a.events[l.EventID]
		if e == nil {
			continue // readLogs has reported it
		}
		if !l.refusedByLimit() || l.Limit == "" || l.RetryAfter == nil {
			a.blame(e, "dropped for a reason that there is not: %s", l)
			continue
		}
		if a.delayed(l) {
			continue // the time of the decision is unknown
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

// decisionAge bounds the time between a decision and its line. A call to Redis is repeated after half a
// second without a reply, and everything here shares two cores.
const decisionAge = 3 * time.Second

// mostHeld returns the highest number of slots that a window of the scope may have held at any time at
// which the line may have been decided.
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

// mayHold returns the number of slots that may have counted in the window ending at t.
func mayHold(scope []*admission, t int64, window time.Duration) int {
	n := 0
	for _, a := range scope {
		if a.mayCount(t, window) && (!a.refunded || a.last+lookEvery.Microseconds() >= t) {
			n++
		}
	}
	return n
}

// delayed reports whether the process was stopped around the time of the line.
func (a *audit) delayed(l *line) bool {
	return slices.ContainsFunc(l.process.stops, func(s span) bool { return s.overlaps(l.Time.Add(-decisionAge), l.Time.Add(decisionAge)) })
}

// redisUnavailable reports whether Redis had been unavailable for more than a second, too long for a
// line to rest on an earlier reply.
func (a *audit) redisUnavailable(at time.Time) (fault, bool) {
	for _, f := range a.d.faults.of(faultRedis) {
		if at.After(f.when.from.Add(time.Second)) && at.Before(f.when.to) {
			return f, true
		}
	}
	return fault{}, false
}

// refundNear reports whether Slack refused a channel or a mute was in force at a time that matters to the
// window. A slot that was taken and refunded between two looks counted, but the ledger did not see it.
func (a *audit) refundNear(at time.Time, window time.Duration) bool {
	from, to := at.Add(-window-decisionAge), at.Add(decisionAge)
	began := func(f fault) bool { return f.when.overlaps(from, to) }
	return slices.ContainsFunc(a.d.faults.of(faultRefuses, faultMute), began) ||
		slices.ContainsFunc(a.settled, func(l *line) bool {
			return l.rejected(badChannel) && l.Time.After(from) && l.Time.Before(to)
		})
}

// askedFor reports whether there was a SENTINEL FAILOVER at a time that matters to the window. The old
// primary keeps charging until it is replaced. If a worker discards the reply, the new primary decides
// the event again, and the ledger cannot see the first admission.
func (a *audit) askedFor(at time.Time, window time.Duration) bool {
	return slices.ContainsFunc(a.d.faults.of(faultFailover), func(f fault) bool {
		return f.what == askedForFailover && f.when.overlaps(at.Add(-window-decisionAge), at.Add(decisionAge))
	})
}

// wentOnWithout reports whether a worker restored its admissions after the store had opened, at a time
// that matters to the window. A store is closed for a second and a half, and on a busy machine a process
// may wait longer than that to run.
func (a *audit) wentOnWithout(at time.Time, window time.Duration) bool {
	return slices.ContainsFunc(a.unheard, func(l *line) bool {
		return l.Time.After(at.Add(-window-decisionAge)) && l.Time.Before(at.Add(decisionAge))
	})
}

// scopes holds the admissions by scope, the oldest first.
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

// of returns the admissions in the scope that refused the event.
func (s scopes) of(l *line) []*admission {
	if l.Reason == outcome.Category {
		return s.byCategory[l.Category]
	}
	return s.global
}

// windows finds windows that held more slots than their limit. It ignores slots that came back after
// their refund, because another event may have taken them meanwhile: if two workers hold an event and
// one refunds it, the other may restore its slots, a limitation in docs/design.md. If the event was not
// posted, the report counts it under forgotten refunds.
func (a *audit) windows() {
	s := a.scopes()
	look := func(name, order string, scope []*admission, limit ratelimit.Limit) {
		scope = a.counted(scope)
		for i, tier := range limit {
			held, most, at := overfull(scope, tier.Window, a.mostAllowed(order, limit, i))
			if held > most && !a.wentOnWithout(time.UnixMicro(at), tier.Window) {
				a.overfull++
				until := time.UnixMicro(at)
				faults := a.d.faults.around(until.Add(-tier.Window), until.Add(tier.Window))
				a.problem("%s: %d slots in the %s until %s, expected at most %d%s\n    faults then:\n      %s",
					name, held, tier.Window, clock(until), most, listed(scope, at, tier.Window), faults)
			}
		}
	}
	rules := a.d.ledger.rules
	look("the global limit", "global", s.global, rules.Global)
	for category, scope := range s.byCategory {
		look("category "+category, "category/"+category, scope, rules.LimitFor(category))
	}
}

// counted returns copies of the slots that count, adjusted to the time in which they certainly counted.
//
// It omits a slot that came back after a look saw it gone. It also omits a slot that was lost with an
// old primary during a SENTINEL FAILOVER (see askedFor): the new primary never had it. If its event was
// posted without another slot, charge reports it.
//
// A slot counts only until its refund if Redis forgot the refund between two looks, and only until the
// last look that saw it if it is unclear. If Redis may have lost the slot before the first look, it
// counts only from that look, because it may have been lost with one primary and restored to another.
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

// lostSomething reports whether Redis may have lost data between two times.
func (a *audit) lostSomething(from, to time.Time) bool {
	return slices.ContainsFunc(a.d.faults.of(faultEmpty, faultFailover), func(f fault) bool {
		return f.when.overlaps(from, to)
	})
}

// listed describes the slots of an overfull window.
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

// charges compares the ledger with the messages in Slack.
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
		// A record older than every window is no longer in flight; later admissions remove it. An
		// ambiguous dead event keeps its slot, and its record until the slot is free, because its
		// message may be in the channel.
		e := a.events[id]
		if e == nil || record.Admitted.UnixMicro() <= r.lastLook-r.retention {
			continue
		}
		switch {
		case a.lostSlots[id], deadInDoubt(a.lines[id]), a.settledMeanwhile(e), a.mutedUnasked(a.lines[id], admissions[id]):
		case a.rejectedBeforeALoss(a.lines[id]):
		case a.sentOnOldPrimary(e), a.refusedOnOldPrimary(e):
		case a.lost(a.lines[id], admissions[id]):
		default:
			a.wrongCharge(e, "still in flight when nothing is left to do")
		}
	}
}

// sentOnOldPrimary reports whether an event was recorded as sent during a SENTINEL FAILOVER. The old
// primary accepts writes until it is replaced, and a sent record made there after the admission was
// restored may be lost. The slot counts as it should, but the id is known only while it does, not for
// the dedupe window. docs/design.md lists this limitation.
func (a *audit) sentOnOldPrimary(e *event) bool {
	return slices.ContainsFunc(a.lines[e.id], func(l *line) bool { return l.Outcome == outcome.Sent && a.askedFor(l.Time, 0) })
}

// refusedOnOldPrimary reports whether a limit refused an event while Redis lost data. The new primary may
// still have the record of an event that the old one decided again. It has no slots, and later admissions
// remove it.
func (a *audit) refusedOnOldPrimary(e *event) bool {
	return slices.ContainsFunc(a.lines[e.id], func(l *line) bool {
		return l.refusedByLimit() && a.lostSomething(l.Time.Add(-decisionAge), l.Time)
	})
}

// rejectedBeforeALoss reports whether Slack rejected the event's message and Redis may have lost data
// later. Such an event keeps its slots, so a worker restores them, and its in-flight record with them.
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

// chargedAgain judges a slot that was taken twice. While Slack refuses a channel or a mute is in force,
// the slot may have been refunded between two looks. If Slack rejects the message, the event ends as a dead
// letter and keeps its slot, and its next publication is decided anew.
func (a *audit) chargedAgain(c chargedAgain) {
	id := (&admission{slot: c.slot}).id()
	first, second := time.UnixMicro(c.first), time.UnixMicro(c.second)
	for _, f := range a.d.faults.of(faultRefuses, faultMute) {
		if f.when.overlaps(first, second.Add(time.Second)) {
			return
		}
	}
	if a.lostSomething(first, second.Add(time.Duration(a.d.ledger.retention)*time.Microsecond)) {
		return // restored by the worker that got the second admission: late, but charged once
	}
	ended := func(l *line) bool {
		return l.rejected(badMessage) && !l.Time.Before(first) && !l.Time.After(second)
	}
	if slices.ContainsFunc(a.lines[id], ended) {
		return
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
		// A look saw the slot after its refund, and a later one did not: a failover brought it back
		// between two looks, and the next loss removed it.
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

// unseenAt reports whether the ledger may have missed slots around a time. The slot of a post may then
// have come and gone: repeated losses keep the store closed, and the event is decided again when it
// opens.
func (a *audit) unseenAt(at time.Time) bool { return a.d.ledger.mayHaveMissed(at, at.Add(lookEvery)) }

// rejectedOnce reports whether the event's only line says that Slack rejected its message.
func (a *audit) rejectedOnce(lines []*line) bool {
	return len(lines) == 1 && lines[0].rejected(badMessage)
}

// justified reports whether an event that never came to Slack had a right to the slot that it kept:
// Slack rejected its message, a line is ambiguous, or the event was held until the slot no longer
// counted, and was dropped or dead only then.
func (a *audit) justified(lines []*line, m *admission) bool {
	expired := m.counts() + a.d.ledger.retention
	for _, l := range lines {
		if l.Ambiguous || l.rejected(badMessage) || ((l.refusedByLimit() || l.muted()) && l.Time.UnixMicro() >= expired) {
			return true
		}
	}
	died := slices.IndexFunc(lines, func(l *line) bool { return l.Outcome == "dead" && l.Time.UnixMicro() >= m.at })
	return died >= 0 && lines[died].Time.UnixMicro() >= expired // the first of several had to refund it
}

// refundForgotten returns the line of a refunded event if Redis may have forgotten the refund, and nil
// if not. The slot then stays taken until it leaves the window, and one message less is sent. A failover
// can forget a refund like an admission. If two workers held the event, the one that has not refunded it
// restores its slot.
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

// lost reports whether the last admission came after the event was settled or refunded, and a process
// ended while it counted (see audit). A mute is decided up to decisionAge before its line.
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

// mutedUnasked reports whether a worker dropped the event as muted and could not know of its admission:
// the process that held the event ended or handed it back, and the consumer was deleted, so the next
// consumer delivered it as new.
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

// restoredByAnother reports whether an event came in two stream messages, limits refused one, or both, and
// Redis may have lost data meanwhile. One worker may have restored slots that the decision of the other had
// removed, a limitation in docs/design.md.
func (a *audit) restoredByAnother(lines []*line, admissions []*admission) bool {
	if len(lines) < 2 || len(admissions) == 0 || lines[0].StreamSeq == lines[1].StreamSeq {
		return false
	}
	dropped := func(l *line) bool { return l.refusedByLimit() || l.Reason == outcome.Duplicate }
	last, retention := lines[len(lines)-1], time.Duration(a.d.ledger.retention)*time.Microsecond
	return !slices.ContainsFunc(lines, func(l *line) bool { return !dropped(l) }) &&
		slices.ContainsFunc(lines, (*line).refusedByLimit) &&
		a.lostSomething(time.UnixMicro(admissions[0].at), last.Time.Add(retention))
}

// handedBack reports whether a worker returned the stream message to NATS.
func (a *audit) handedBack(seq uint64) bool {
	return slices.ContainsFunc(a.d.said(seq), func(line string) bool {
		return strings.Contains(line, " $JS.ACK.") && strings.Contains(line, " -NAK")
	})
}
