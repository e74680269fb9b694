package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"notifier/internal/devstack"
	"notifier/internal/outcome"
	"notifier/test/kit"
)

// audit compares the events that NATS acknowledged to the publisher with the traces they left: messages
// in Slack, dead letters, the logs of all worker processes, and the admissions in Redis. Each event must
// satisfy these rules:
//
//   - Each of its stream messages has a line.
//   - It is in Slack, or dead, or its lines name the limit or mute that dropped it. If a line says
//     "sent", the message is in Slack.
//   - It is in Slack at most once, unless a line says "ambiguous".
//   - It is never undeliverable, because no event causes Slack's outages and brown-outs.
//   - If it is in Slack, it was charged before its post, only once while the charge counts, and not
//     refunded.
//   - If it is not in Slack, it was refunded, unless Slack rejected its message.
//
// Six irregularities are expected:
//
//   - After a crash, or the deletion of the consumer, between its line and its acknowledgement, an event
//     is decided again, and may be sent after it was dropped or dead.
//   - An event that was sent is dropped as a duplicate when it is redelivered.
//   - If two workers hold an event and one settles it without sending it, it may be admitted again for
//     the other. If that worker ends before it posts, the event is not delivered again, and its slot
//     stays taken.
//   - If a process dies after a post and before its line, only other processes have lines about the
//     event.
//   - The same may happen when a process is terminated (see leftBehind).
//   - Redis may forget a refund or a refusal, and a worker may restore slots that the decision of
//     another one removed (see refundForgotten, refusedOnOldPrimary and restoredByAnother).
type audit struct {
	d         *deployment
	processes map[string]*process
	events    map[string]*event
	lines     map[string][]*line // outcomes by event id, the oldest first
	bySeq     map[uint64][]*line
	settled   []*line // all outcomes, the oldest first
	posts     map[string][]post
	letters   map[string][]deadLetter

	problems                    []string
	missing                     map[uint64]string // descriptions of unaccounted events, by stream sequence
	sent, dead                  int
	dropped                     map[string]int // events that ended as dropped, by reason
	duplicates, lookedUp        int
	redelivered                 int
	slotsLost, refundsForgotten int
	judgedRefusals              int             // refusals at a time when the ledger missed nothing
	lostSlots                   map[string]bool // by event id
	// the earliest time of a refund that Redis has forgotten, by event id
	forgotten                   map[string]int64
	unaccounted, wronglyCharged int
	overfull                    int
	unheard                     []*line // warnings of restores after the store had opened
}

// post is a message in Slack and the process that posted it.
type post struct {
	process string
	at      time.Time
}

// reconcile waits until the system is at rest, stops the workers, and audits the run.
func (d *deployment) reconcile() *audit {
	d.Helper()
	d.rest()
	d.shutDown()
	a := d.newAudit()
	a.judge()
	return a
}

// newAudit audits the run. The workers must have ended.
func (d *deployment) newAudit() *audit {
	d.Helper()
	kit.Check(d.T, d.ledger.look(d.Context()))
	d.ledger.end()
	a := &audit{
		d: d, processes: d.processes(), events: d.publisher.events, lines: map[string][]*line{}, bySeq: map[uint64][]*line{},
		missing: map[uint64]string{}, posts: map[string][]post{}, letters: d.deadLetters(), dropped: map[string]int{}, lostSlots: map[string]bool{}, forgotten: map[string]int64{},
	}
	a.problems = append(a.problems, d.faults.problems...)
	a.readLogs()
	a.readSlack(d.slack.Messages(), d.slack.Accepted())
	for _, id := range d.publisher.order {
		a.event(a.events[id])
	}
	a.drops()
	a.mutes()
	a.charges()
	a.windows()
	return a
}

func (a *audit) problem(format string, arguments ...any) {
	a.problems = append(a.problems, fmt.Sprintf(format, arguments...))
}

// blame adds a problem with one event, and everything known about the event.
func (a *audit) blame(e *event, format string, arguments ...any) {
	text := fmt.Sprintf(format, arguments...)
	for _, k := range e.acks {
		text += fmt.Sprintf("\n    %s published, stream sequence %d", clock(k.at), k.seq)
	}
	for _, p := range a.posts[e.id] {
		text += fmt.Sprintf("\n    %s %s posted it", clock(p.at), p.process)
	}
	from, to := e.acks[0].at, e.acks[0].at
	for _, l := range a.lines[e.id] {
		text += "\n    " + l.String()
		to = l.Time
	}
	for _, m := range a.d.ledger.byID()[e.id] {
		text += fmt.Sprintf("\n    charged at %s, refunded: %v", clock(time.UnixMicro(m.at)), m.refunded)
	}
	for _, letter := range a.letters[e.id] {
		text += fmt.Sprintf("\n    dead letter stored at %s: %s", clock(letter.stored), letter.reason)
	}
	a.problem("%s: %s\n    faults then:\n      %s", e.id, text, a.d.faults.around(from.Add(-time.Second), to.Add(time.Second)))
}

// lostEvent adds a problem with an event that has no known end. The report names each such event.
func (a *audit) lostEvent(e *event, format string, arguments ...any) {
	a.unaccounted++
	a.blame(e, format, arguments...)
	for _, k := range e.acks {
		if a.missing[k.seq] != "" {
			continue
		}
		settled, said := "no worker was heard to settle it (see test/natsloss)", a.d.said(k.seq)
		if slices.ContainsFunc(said, settles) {
			settled = "a worker settled it"
		}
		a.missing[k.seq] = fmt.Sprintf("%s, stream sequence %d, published %s: %s; %s\n      %s",
			e.id, k.seq, clock(k.at), fmt.Sprintf(format, arguments...), settled, strings.Join(said, "\n      "))
	}
}

// wrongCharge adds a problem with the slots of an event.
func (a *audit) wrongCharge(e *event, format string, arguments ...any) {
	a.wronglyCharged++
	a.blame(e, format, arguments...)
}

func (a *audit) readLogs() {
	for _, name := range slices.Sorted(maps.Keys(a.processes)) {
		p := a.processes[name]
		if text := p.Complaints(); text != "" {
			a.problem("%s wrote to standard error: %.2000s", name, text)
		}
		lines, err := p.Lines()
		if err != nil {
			a.problem("a log that cannot be read: %v", err)
		}
		a.settled = append(a.settled, p.outcomes()...)
		for _, l := range lines {
			if strings.HasSuffix(l.Message, "after it was open again: as many slots may have been given twice") {
				a.unheard = append(a.unheard, &line{l, p})
			}
		}
	}
	slices.SortStableFunc(a.settled, func(a, b *line) int { return a.Time.Compare(b.Time) })
	for _, l := range a.settled {
		a.lines[l.EventID] = append(a.lines[l.EventID], l)
		a.bySeq[l.StreamSeq] = append(a.bySeq[l.StreamSeq], l)
		if l.Redelivered {
			a.redelivered++
		}
		if a.events[l.EventID] == nil {
			a.problem("a line about %q, which was never acknowledged: %s", l.EventID, l)
		}
	}
}

func (a *audit) readSlack(messages []devstack.Message, accepted int) {
	if len(messages) != accepted {
		a.problem("the fake Slack remembers %d of %d messages: the run was too long", len(messages), accepted)
	}
	for _, m := range messages {
		a.posts[m.Text] = append(a.posts[m.Text], post{process: strings.TrimPrefix(m.Header.Get(kit.PosterHeader), tokenPrefix), at: m.Time})
		if a.events[m.Text] == nil {
			a.problem("in Slack, and never acknowledged: %q", m.Text)
		}
	}
}

// event counts an event under its final state, and checks that its lines, messages and letters agree.
func (a *audit) event(e *event) {
	lines := a.lines[e.id]
	for _, k := range e.acks {
		if len(a.bySeq[k.seq]) == 0 {
			a.lostEvent(e, "no line about the stream message %d", k.seq)
		}
	}
	is := func(outcome string) func(*line) bool { return func(l *line) bool { return l.Outcome == outcome } }
	ambiguous := slices.ContainsFunc(lines, func(l *line) bool { return l.Ambiguous })
	said := slices.ContainsFunc(lines, is("sent"))
	posts, letters := a.posts[e.id], a.letters[e.id]
	refused := slices.IndexFunc(lines, func(l *line) bool { return l.refusedByLimit() || l.muted() })
	deadAt := slices.IndexFunc(lines, is("dead"))
	skipped := slices.ContainsFunc(lines, (*line).hasNoLetter)
	switch {
	case len(posts) > 0:
		a.sent++
		a.inSlack(e, lines, ambiguous)
	case said:
		a.lostEvent(e, "said to be sent, and not in Slack")
	case len(letters) > 0 || skipped:
		a.dead++
	case refused >= 0:
		a.dropped[lines[refused].Reason]++
	default:
		a.lostEvent(e, "neither in Slack nor dead, and no limit refused it, nor a mute")
	}
	if deadAt >= 0 && len(letters) == 0 && !skipped {
		a.blame(e, "said to be dead, and not among the dead letters")
	}
	if len(posts) > 0 && len(letters) > 0 && !ambiguous && len(e.acks) == 1 && !a.decidedAnew(e, lines) {
		a.blame(e, "in Slack and dead, and no line says ambiguous")
	}
	a.undeliverable(e, lines, letters)
	if e.malformed && len(letters) == 0 && !skipped {
		a.blame(e, "malformed, and not among the dead letters")
	}
}

// undeliverable checks that Slack's failures were not blamed on the event. It reads letters as well as
// lines, because a worker that died may have left a letter without a line.
func (a *audit) undeliverable(e *event, lines []*line, letters []deadLetter) {
	for _, l := range lines {
		if l.Reason == outcome.Undeliverable {
			a.blame(e, "undeliverable, and Slack has nothing against it: %s", l)
			return
		}
	}
	undeliverable := func(l deadLetter) bool { return l.reason == outcome.Undeliverable }
	if slices.ContainsFunc(letters, undeliverable) {
		a.blame(e, "its letter says undeliverable, and Slack has nothing against it")
	}
}

// inSlack checks that the lines of an event explain its messages in Slack.
func (a *audit) inSlack(e *event, lines []*line, ambiguous bool) {
	posts := a.posts[e.id]
	made, said := map[string]int{}, map[string]int{}
	for _, p := range posts {
		made[p.process]++
	}
	explained := false
	for _, l := range lines {
		if l.Outcome == "sent" {
			said[l.process.name]++
		}
		explained = explained || l.Outcome == "sent" || l.Reason == "duplicate" || l.Ambiguous
	}
	for name, n := range made {
		if n <= said[name] || ambiguous {
			continue
		}
		if l := a.processes[name]; l == nil || !l.crashed() && !a.leftBehind(e, l) {
			a.blame(e, "%s posted it without a line, and did not die of it", name)
		}
		explained = true // at its redelivery, its admission may no longer have counted
	}
	if !explained {
		a.lostEvent(e, "in Slack, and no line says so")
	}
	for name, n := range said {
		if n > made[name] {
			a.lookedUp++ // another process posted it and died, and this one found it in the channel
		}
	}
	if len(posts) > 1 {
		a.duplicates++
		// A process that died after its last post could not log that an earlier one was ambiguous.
		only := a.processes[posts[0].process]
		ended := only != nil && (only.crashed() || a.leftBehind(e, only))
		diedSilent := len(made) == 1 && said[posts[0].process] == 0 && ended
		if !ambiguous && !diedSilent && !a.forgottenEach(e, posts, said) {
			a.blame(e, "%d times in Slack, and no line says ambiguous", len(posts))
		}
	}
}

// leftBehind reports whether a process that was terminated left the event for redelivery after its last
// post, and no other worker could know of that post: another worker that held the event had already
// settled it, or Redis had forgotten the post when the event was decided again.
func (a *audit) leftBehind(e *event, l *process) bool {
	var last time.Time // when this process last posted it
	for _, p := range a.posts[e.id] {
		if p.process == l.name {
			last = p.at
		}
	}
	for _, line := range a.lines[e.id] {
		if line.Time.After(last) && !a.lostSomething(last, line.Time) {
			return false
		}
	}
	return slices.ContainsFunc(a.d.faults.of(faultTerm), func(f fault) bool {
		return f.what == l.worker.name && f.when.to.After(last)
	})
}

// forgottenEach reports whether each post but the last came from a process that died or left the event
// behind without a line "sent", and was forgotten by Redis before another process posted. A process
// remembers its own posts, so its line would say ambiguous.
func (a *audit) forgottenEach(e *event, posts []post, said map[string]int) bool {
	for i, p := range posts[:len(posts)-1] {
		l, next := a.processes[p.process], posts[i+1]
		silent := said[p.process] == 0 && l != nil && (l.crashed() || a.leftBehind(e, l))
		if !silent || next.process != p.process && !a.lostSomething(p.at, next.at) {
			return false
		}
	}
	return true
}

// settledMeanwhile reports whether one worker settled the event before another worker that held it made
// its last post and ended. The event is not delivered again.
func (a *audit) settledMeanwhile(e *event) bool {
	posts, lines := a.posts[e.id], a.lines[e.id]
	if len(posts) == 0 || len(lines) == 0 {
		return false
	}
	last := posts[len(posts)-1]
	l := a.processes[last.process]
	return l != nil && (l.crashed() || a.leftBehind(e, l)) && lines[len(lines)-1].Time.Before(last.at)
}

// decidedAnew reports whether a dead event came to Slack by a separate decision: after its line, or
// because two workers held the stream message. The line need not say ambiguous, because a post that
// Slack rejected is certainly not in the channel. If there is no line, the worker that stored the letter
// must have died or ended later: it may never have learned that the letter was stored, and another
// worker may have posted the event meanwhile.
func (a *audit) decidedAnew(e *event, lines []*line) bool {
	posts, letters := a.posts[e.id], a.letters[e.id]
	if !slices.ContainsFunc(lines, func(l *line) bool { return l.Outcome == "dead" }) {
		return slices.ContainsFunc(a.d.faults.of(faultKill, faultTerm), func(f fault) bool {
			return f.what != everyWorker && f.when.to.After(letters[0].stored)
		})
	}
	return slices.ContainsFunc(lines, func(l *line) bool {
		if l.Outcome != "dead" {
			return false
		}
		// After the consumer was deleted, its successor delivers held stream messages as new.
		deliveredTwice := slices.ContainsFunc(lines, func(l *line) bool { return l.Redelivered }) ||
			slices.ContainsFunc(a.d.faults.of(faultConsumer), func(f fault) bool {
				return f.when.from.After(e.acks[0].at) && f.when.from.Before(l.Time)
			})
		twoHeldIt := deliveredTwice && posts[0].process != l.process.name
		return l.Time.Before(posts[0].at) || twoHeldIt
	})
}
