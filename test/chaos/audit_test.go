package chaos

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"notifier/internal/devstack"
	"notifier/internal/outcome"
	"notifier/test/kit"
)

// audit holds what was acknowledged to the publisher against everything that is left at the end: the messages
// in Slack, the dead letters, the logs of all worker processes, and the admissions in Redis. It demands, for
// each event:
//
//   - Each stream message has a line.
//   - It is in Slack, or dead, or its lines say by which limit or mute it was dropped. A line "sent" has its message in Slack.
//   - It stands in Slack once; or more often, and a line says "ambiguous".
//   - It is not undeliverable: Slack's outages and brown-outs are no event's fault.
//   - It was charged when it came to Slack, once while that counts, and not refunded; one that did not come to Slack was
//     refunded, unless Slack rejected it because of the message.
//
// Six repetitions are no fault. Between its line and its acknowledgement a crash, or a consumer that is
// deleted, lets an event be decided anew: it is dropped and later sent, or dead and later sent. An event that
// was sent is dropped as a duplicate when its message comes again. A message that two workers hold, settled
// by the one without being sent, may be decided anew for the other; if that one ends before it posts, nobody
// takes it up again, and its slot stays taken. And one whose lines are lost with a process that died after
// its post has lines of others only; so may one that a process left behind when it was asked to end: see
// leftBehind. Redis may forget a refund: see refundForgotten.
type audit struct {
	d         *deployment
	processes map[string]*process
	events    map[string]*event
	lines     map[string][]*line // settled ones by event id, in the order of time
	bySeq     map[uint64][]*line
	settled   []*line // all, in the order of time
	posts     map[string][]post
	letters   map[string][]deadLetter

	problems                    []string
	missing                     map[uint64]string // unaccounted events by stream sequence, as the report names them
	sent, dead                  int
	dropped                     map[string]int // final ones, by reason
	duplicates, lookedUp        int
	redelivered                 int
	slotsLost, refundsForgotten int
	judgedRefusals              int             // those at whose time nothing was missed
	lostSlots                   map[string]bool // by event id
	// by event id: when a refund was made, at the earliest, that Redis has forgotten
	forgotten                   map[string]int64
	unaccounted, wronglyCharged int
	overfull                    int
	unheard                     []*line // that a worker put back what it knows when the others had decided again
}

// post is a message in Slack and the process that posted it.
type post struct {
	process string
	at      time.Time
}

// reconcile waits until nothing is left to do, ends the workers, and makes and judges the audit.
func (d *deployment) reconcile() *audit {
	d.Helper()
	d.rest()
	d.shutDown()
	a := d.newAudit()
	a.judge()
	return a
}

// newAudit audits them. Workers have ended.
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

// blame is a problem with one event, with all that is known of it.
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

// lostEvent is a problem with an event that ends in no known way. The report names each.
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

// wrongCharge is a problem with the slots of an event.
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

// event finds the one final state of an event.
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

// undeliverable looks for an event that was blamed when Slack failed: Slack has nothing against any event
// here. A worker that died may have left a letter and no line.
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

// inSlack looks at an event that stands in Slack.
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
		explained = true // by the time it came again, its admission counted no more
	}
	if !explained {
		a.lostEvent(e, "in Slack, and no line says so")
	}
	for name, n := range said {
		if n > made[name] {
			a.lookedUp++ // posted by one that died, and found there by this one
		}
	}
	if len(posts) > 1 {
		a.duplicates++
		// Who died after its last post could not say that an earlier one of its own was ambiguous.
		only := a.processes[posts[0].process]
		ended := only != nil && (only.crashed() || a.leftBehind(e, only))
		diedSilent := len(made) == 1 && said[posts[0].process] == 0 && ended
		if !ambiguous && !diedSilent && !a.forgottenEach(e, posts, said) {
			a.blame(e, "%d times in Slack, and no line says ambiguous", len(posts))
		}
	}
}

// leftBehind reports whether a process that was asked to end left the event for redelivery after its last
// post, and no worker could know of that post any more: another worker that held the event had settled it
// before, or Redis had forgotten the post when the event was decided again.
func (a *audit) leftBehind(e *event, l *process) bool {
	var last time.Time // post of this process
	for _, p := range a.posts[e.id] {
		if p.process == l.name {
			last = p.at
		}
	}
	for _, line := range a.lines[e.id] {
		if line.Time.After(last) && !a.postsForgotten(last, line.Time) {
			return false
		}
	}
	return slices.ContainsFunc(a.d.faults.of(faultTerm), func(f fault) bool {
		return f.what == l.worker.name && f.when.to.After(last)
	})
}

// postsForgotten reports whether Redis may have lost the record of a post between two times: the store lost it
// with the worker that remembered it, or the release before decided the event again and began its record anew.
func (a *audit) postsForgotten(from, to time.Time) bool {
	if os.Getenv(releaseVariable) != "" && to.Sub(from).Microseconds() >= a.d.ledger.retention {
		return true
	}
	return a.lostSomething(from, to)
}

// forgottenEach reports whether all posts but those of the last process were of processes that died, or left
// the event behind, before they wrote a line, and Redis had forgotten each post before the next process posted.
// A process knows of its own posts, and its line would say so.
func (a *audit) forgottenEach(e *event, posts []post, said map[string]int) bool {
	for i, p := range posts[:len(posts)-1] {
		l, next := a.processes[p.process], posts[i+1]
		silent := said[p.process] == 0 && l != nil && (l.crashed() || a.leftBehind(e, l))
		if !silent || next.process != p.process && !a.postsForgotten(p.at, next.at) {
			return false
		}
	}
	return true
}

// settledMeanwhile reports whether an event was settled by one worker before another one that held it posted
// it, and ended after that: nobody takes it up again then.
func (a *audit) settledMeanwhile(e *event) bool {
	posts, lines := a.posts[e.id], a.lines[e.id]
	if len(posts) == 0 || len(lines) == 0 {
		return false
	}
	last := posts[len(posts)-1]
	l := a.processes[last.process]
	return l != nil && (l.crashed() || a.leftBehind(e, l)) && lines[len(lines)-1].Time.Before(last.at)
}

// decidedAnew reports whether an event that is dead came to Slack by a decision of its own: after its line, or
// because two workers held the message. What Slack has rejected is known not to be in the channel. Without a
// line, the worker that stored the letter died or ended after that: it may never have heard of the letter, and
// another worker may have posted the event meanwhile.
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
		// After the deletion of the consumer its successor delivers what is held as new.
		deliveredTwice := slices.ContainsFunc(lines, func(l *line) bool { return l.Redelivered }) ||
			slices.ContainsFunc(a.d.faults.of(faultConsumer), func(f fault) bool {
				return f.when.from.After(e.acks[0].at) && f.when.from.Before(l.Time)
			})
		twoHeldIt := deliveredTwice && posts[0].process != l.process.name
		return l.Time.Before(posts[0].at) || twoHeldIt
	})
}
