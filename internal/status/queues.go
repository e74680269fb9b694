package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/snapshot"
	"notifier/internal/term"
)

const channelPrefix = "channel/"

// slowAfter is the age from which a queue is reported although Slack takes posts.
const slowAfter = time.Minute

// queue is one Slack channel over all running workers.
type queue struct {
	queued  int
	oldest  time.Time
	paced   bool
	refused string            // Slack's code
	outage  outage            // of replicas that cannot post to it
	failing map[string]string // Slack's last code, by category of the events that it fails on

	rejected snapshot.Rejection // the latest, of all workers
	accepted time.Time
	pause    time.Duration
	posting  bool // a worker has events for the channel and no failure
}

func (v view) allChannels() (all []finding) {
	queues := v.queues()
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		if f := v.channel(*queues[name]); f.message != "" {
			f.kind, f.message = channelPrefix+name, cut(f.message, maxMessage)
			all = append(all, f)
		}
	}
	return all
}

// channel returns the condition of one channel. Its message is empty if the channel is fine. A channel counts
// as stopped unless some worker has events for it and no failure: a worker without events would not notice
// one.
func (v view) channel(q queue) finding {
	queued := term.Count(q.queued, "event") + " wait"
	if q.queued == 1 {
		queued += "s"
	}
	suffix := ""
	if q.queued > 0 {
		suffix = ", " + queued
	}
	f := finding{state: Fail, since: q.outage.since, stops: !q.posting}
	if q.pause > 0 {
		return finding{state: Warn, since: q.outage.since, message: pauseText(q.pause) + suffix, stops: true}
	}
	if q.posting {
		f.state = Warn
		suffix += ", another worker posts"
	}
	switch {
	case q.refused != "":
		f.since = q.rejected.First
		f.message = fmt.Sprintf("Slack refuses the channel (%s), its events become dead letters", q.refused)
	case q.outage.replicas > 0:
		f.message, f.fails = slackText(q.outage.reason)+suffix, true
		if strings.HasPrefix(q.outage.reason, ratelimit.AskedToWait) { // the pause is over, and no post has followed yet
			f.state, f.stops = Warn, f.stops && q.queued > 0
		}
	case q.queued > 0 && !q.oldest.IsZero() && v.now.Sub(q.oldest) > slowAfter:
		message := fmt.Sprintf("%s, the oldest for %s", queued, v.age(q.oldest))
		if text := failingText(q.failing); text != "" {
			message += ", " + text
		} else if q.paced {
			message += ", at the pace of the channel"
		}
		return finding{state: Warn, message: message}
	}
	return f
}

// failingText names the categories that Slack fails on while it takes others, and Slack's codes: "Slack fails
// on events of errors with internal_error". It returns "" if Slack fails on no event.
func failingText(failing map[string]string) string {
	if len(failing) == 0 {
		return ""
	}
	codes := slices.Compact(slices.Sorted(maps.Values(failing)))
	return fmt.Sprintf("Slack fails on events of %s with %s",
		listFirst(slices.Sorted(maps.Keys(failing)), maxName), listFirst(codes, maxReason))
}

// listFirst lists the first maxNamed texts, each cut to max bytes, and counts the others: "a, b and 3 more".
func listFirst(texts []string, max int) string {
	names := make([]string, 0, maxNamed+1)
	for _, text := range texts[:min(len(texts), maxNamed)] {
		names = append(names, cut(text, max))
	}
	if more := len(texts) - maxNamed; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return term.List(names)
}

func (v view) queues() map[string]*queue {
	queues := map[string]*queue{}
	of := func(name string) *queue {
		name = short(name)
		if queues[name] == nil {
			queues[name] = &queue{failing: map[string]string{}}
		}
		return queues[name]
	}
	for _, replica := range v.running() {
		failing := map[string]bool{}
		for _, wait := range replica.Snapshot.Waits {
			if wait.For == "slack" && wait.Channel != "" {
				failing[wait.Channel] = true
				of(wait.Channel).outage.add(wait)
			}
		}
		for _, event := range replica.Snapshot.Failing {
			if !event.Next.IsZero() { // else the channel has to recover, not the event
				of(event.Channel).failing[event.Category] = event.Error
			}
		}
		for _, c := range replica.Snapshot.Channels {
			q := of(c.Name)
			q.queued += max(0, c.Queued)
			q.oldest = earlier(q.oldest, c.Oldest)
			q.paced = q.paced || c.Why == "pace"
			q.refused = cmp.Or(q.refused, cut(c.Refused, maxName))
			if c.Rejected != nil && c.Rejected.Last.After(q.rejected.Last) {
				q.rejected = *c.Rejected
			}
			if c.Accepted.After(q.accepted) {
				q.accepted = c.Accepted
			}
			fails := failing[c.Name] || c.Refused != "" || c.Rejected != nil || c.Why == "slack"
			q.posting = q.posting || !fails && (c.Queued > 0 || c.Posting)
		}
	}
	for _, pause := range v.pauses {
		if pause.Channel != "" {
			of(pause.Channel).pause = pause.Left
		}
	}
	for _, q := range queues {
		q.settleRefusal()
	}
	return queues
}

// settleRefusal decides whether Slack refuses the channel, by its last reply to any worker: the others would
// report a repaired channel as refused until their own next post.
func (q *queue) settleRefusal() {
	switch {
	case q.rejected.Last.IsZero():
	case q.accepted.After(q.rejected.Last):
		q.refused = ""
	default:
		q.refused = cut(q.rejected.Code, maxName)
	}
}
