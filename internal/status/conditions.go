package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/snapshot"
	"notifier/internal/status/report"
	"notifier/internal/term"
)

// view is the input of the conditions and of the sentence.
type view struct {
	now      time.Time
	replicas []report.Replica // with the reader's own snapshot, if the reader is a worker
	counts   []report.Count   // of the last hour
	pauses   []ratelimit.Pause
	channels []string // all that events can go to. Empty if unknown

	blind    bool  // replicas, counts and pauses could not be read
	unread   error // the first failed read. Nil if all succeeded
	refuses  error // Redis refuses all writes
	unusable error // the reason why the limits shown are not the replicas'
}

// finding is a condition with its consequence.
type finding struct {
	kind    string
	state   Level
	since   time.Time
	message string // a clause that also completes "Not sending: "

	stops bool // no event reaches the channel or, in other conditions, any channel
	fails bool // posts to the channel fail, for a reason that may concern other channels, too
}

// findings returns the conditions that are not ok, one of each type: the worst first, and among equals those
// that stop everything.
func (v view) findings() []finding {
	all := slices.Concat(
		v.redis(), v.nats(), v.slack(), v.workers(), v.allChannels(), v.streams(), v.dead(), v.settings(), v.clock(),
	)
	var merged []finding
	places := map[string]int{}
	for _, f := range all {
		at, known := places[f.kind]
		if !known {
			places[f.kind] = len(merged)
			merged = append(merged, f)
			continue
		}
		merged[at] = merged[at].and(f)
	}
	slices.SortStableFunc(merged, func(a, b finding) int { return cmp.Compare(b.rank(), a.rank()) })
	return merged
}

func (f finding) rank() int {
	rank := 2 * f.state.rank()
	if f.stops && !f.ofChannel() {
		rank++
	}
	return rank
}

func (f finding) ofChannel() bool { return strings.HasPrefix(f.kind, channelPrefix) }

// and adds a finding of the same type.
func (f finding) and(other finding) finding {
	f.message = cut(f.message+"; "+other.message, maxMessage)
	if other.state.rank() > f.state.rank() {
		f.state = other.state
	}
	f.stops = f.stops || other.stops
	return f
}

func (v view) redis() []finding {
	o := v.outage("redis")
	f := finding{kind: "redis", state: Fail, since: o.since, stops: true}
	switch {
	case v.refuses != nil:
		f.since = earlier(o.since, v.lastHeartbeat())
		f.message = redisText(v.refuses.Error(), "")
	case v.blind:
		f.message = redisText(v.unread.Error(), "")
	case v.unread != nil && o.replicas == 0:
		f.stops = false
		f.message = cut("the limits cannot be read: "+cause(v.unread.Error()), maxMessage)
	default:
		all := v.outageFinding("redis", "redis", "")
		for i := range all {
			all[i].message = redisText(o.reason, v.where(o.replicas))
		}
		return all
	}
	return []finding{f}
}

// lastHeartbeat returns the time of the latest heartbeat from Redis, or the zero time. Redis took writes then.
func (v view) lastHeartbeat() (last time.Time) {
	for _, replica := range v.replicas {
		isOwn := !replica.Seen.Before(v.now) // never came from Redis
		if !isOwn && replica.Seen.After(last) {
			last = replica.Seen
		}
	}
	return last
}

func (v view) nats() []finding {
	if f := v.outageFinding("nats", "nats", "NATS is unavailable"); f != nil {
		return f
	}
	return v.outageFinding("consumer", "nats", "the stream or its consumer is missing")
}

func (v view) slack() []finding {
	for _, pause := range v.pauses {
		if pause.Channel == "" {
			f := finding{kind: "slack", state: Warn, since: v.outage("slack").since, stops: true}
			f.message = pauseText(pause.Left)
			return []finding{f}
		}
	}
	return slices.Concat(
		v.outageFinding("credentials", "slack", "Slack refuses the token or webhook"),
		v.outageFinding("slack", "slack", "Slack takes no posts"),
	)
}

// workers reports missing, silent and idle replicas. While Redis stores no heartbeats silence means nothing.
func (v view) workers() []finding {
	running := v.running()
	f := finding{kind: "workers", state: Fail, stops: true}
	switch {
	case v.blind || v.refuses != nil:
	case len(v.replicas) == 0:
		f.message = "no worker is running"
		return []finding{f}
	case len(running) == 0:
		last := slices.MaxFunc(v.replicas, func(a, b report.Replica) int { return a.Seen.Compare(b.Seen) })
		f.since = last.Seen
		f.message = "no worker has reported for " + v.age(last.Seen)
		return []finding{f}
	}
	return slices.Concat(
		v.outageFinding("log", "workers", "the log cannot be written"), v.unready(), v.silent(),
	)
}

// unready reports replicas that are not ready for another reason than an outage.
func (v view) unready() []finding {
	running, n, reason := v.running(), 0, "reason unknown"
	for _, r := range running {
		if !isUnready(r) {
			continue
		}
		n++
		if len(r.Snapshot.NotReady) > 0 {
			reason = strings.TrimPrefix(r.Snapshot.NotReady[0], "worker: ")
		}
	}
	switch n {
	case 0:
		return nil
	case len(running):
		message := cut("no worker is ready: "+reason, maxMessage)
		return []finding{{kind: "workers", state: Fail, message: message, stops: v.stopped()}}
	}
	message := cut(fmt.Sprintf("not ready%s: %s", v.where(n), reason), maxMessage)
	return []finding{{kind: "workers", state: Warn, message: message}}
}

func (v view) silent() []finding {
	n := len(v.replicas) - len(v.running())
	if n == 0 || v.refuses != nil {
		return nil
	}
	first := slices.MinFunc(v.replicas, func(a, b report.Replica) int { return a.Seen.Compare(b.Seen) })
	message := fmt.Sprintf("%d of %s silent, %s for %s", n, term.Count(len(v.replicas), "replica"),
		short(first.Snapshot.ID), v.age(first.Seen))
	return []finding{{kind: "workers", state: Warn, since: first.Seen, message: message}}
}

const channelPrefix = "channel/"

// slowAfter is the age from which a queue is reported although Slack takes posts.
const slowAfter = time.Minute

// queue is one Slack channel over all running replicas.
type queue struct {
	queued  int
	oldest  time.Time
	paced   bool
	refused string // Slack's code
	wait    outage

	rejected snapshot.Rejection // the latest, of all replicas
	accepted time.Time
	pause    time.Duration
	works    bool // a replica has events for the channel and no failure
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

// channel returns the condition of one channel. Its message is empty if the channel is fine. The channel is
// stopped unless a replica has events for it and no failure: idle replicas would not notice.
func (v view) channel(q queue) finding {
	events := term.Count(q.queued, "event") + " wait"
	if q.queued == 1 {
		events += "s"
	}
	waits := ""
	if q.queued > 0 {
		waits = ", " + events
	}
	f := finding{state: Fail, since: q.wait.since, stops: !q.works}
	if q.pause > 0 {
		return finding{state: Warn, since: q.wait.since, message: pauseText(q.pause) + waits, stops: true}
	}
	if q.works {
		f.state = Warn
		waits += ", another replica posts"
	}
	switch {
	case q.refused != "":
		f.since = q.rejected.First
		f.message = fmt.Sprintf("Slack refuses the channel (%s), its events become dead letters", q.refused)
	case q.wait.replicas > 0:
		f.message, f.fails = slackText(q.wait.reason)+waits, true
		if strings.HasPrefix(q.wait.reason, askedToWait) { // the pause is over, and no post has followed yet
			f.state, f.stops = Warn, f.stops && q.queued > 0
		}
	case q.queued > 0 && !q.oldest.IsZero() && v.now.Sub(q.oldest) > slowAfter:
		message := fmt.Sprintf("%s, the oldest for %s", events, v.age(q.oldest))
		if q.paced {
			message += ", at the pace of the channel"
		}
		return finding{state: Warn, message: message}
	}
	return f
}

func (v view) queues() map[string]*queue {
	queues := map[string]*queue{}
	of := func(name string) *queue {
		name = short(name)
		if queues[name] == nil {
			queues[name] = &queue{}
		}
		return queues[name]
	}
	for _, replica := range v.running() {
		failing := map[string]bool{}
		for _, wait := range replica.Snapshot.Waits {
			if wait.For == "slack" && wait.Channel != "" {
				failing[wait.Channel] = true
				of(wait.Channel).wait.add(wait)
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
			q.works = q.works || !fails && (c.Queued > 0 || c.Posting)
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

// settleRefusal decides whether Slack refuses the channel, by its last reply to any replica: the others would
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

// smallEvent is the size, in bytes, from which a stream with less room counts as full.
const smallEvent = 1024

// startTime bounds the time in which a starting replica creates the streams and looks at them again.
const startTime = 10 * time.Second

// streams reports streams that refuse publishers when they are full, and events that no worker will get.
func (v view) streams() []finding {
	latest := map[string]snapshot.Stream{}
	for _, replica := range v.running() {
		starts := v.now.Sub(replica.Snapshot.Started) < startTime
		for _, stream := range replica.Snapshot.Streams {
			if starts && stream.Unknown != "" { // the replica is about to create the stream
				continue
			}
			known, there := latest[stream.Name]
			knowsMore := known.Unknown != "" && stream.Unknown == ""
			newer := (known.Unknown == "") == (stream.Unknown == "") && stream.Seen.After(known.Seen)
			if !there || knowsMore || newer {
				latest[stream.Name] = stream
			}
		}
	}
	var all []finding
	for _, name := range slices.Sorted(maps.Keys(latest)) {
		all = append(all, streamFindings("stream/"+short(name), latest[name])...)
	}
	return all
}

func streamFindings(kind string, s snapshot.Stream) (all []finding) {
	if s.Unknown != "" {
		return []finding{{kind: kind, state: Warn, message: cut("unknown: "+s.Unknown, maxMessage)}}
	}
	used, bound := s.Used()
	if !s.DiscardsOld && used >= snapshot.NearlyFull {
		f := finding{kind: kind, state: Warn, message: fmt.Sprintf("%d%% of %s used", int(100*used), maxOf(s, bound))}
		if used >= 1 || bound == "bytes" && uint64(s.MaxBytes)-s.Bytes < smallEvent {
			f.state, f.message = Fail, fmt.Sprintf("full (%s), refuses publishers", maxOf(s, bound))
		}
		all = append(all, f)
	}
	if s.Stuck != nil && *s.Stuck > 0 {
		message := term.Count(*s.Stuck, "event") + " never delivered again (max_deliver)"
		all = append(all, finding{kind: kind, state: Warn, message: message})
	}
	return all
}

func maxOf(s snapshot.Stream, bound string) string {
	if bound == "bytes" {
		return term.Size(uint64(max(0, s.MaxBytes)))
	}
	return term.Count(s.MaxMessages, "message")
}

// dead reports dead events of the last hour, and letters that cannot be stored.
func (v view) dead() []finding {
	all := v.outageFinding("dead_letter", "dead", "dead letters cannot be stored")
	byReason, total := map[string]int64{}, int64(0)
	for _, count := range v.counts {
		if count.Outcome == outcome.Dead {
			byReason[count.Reason] += count.N
			total += count.N
		}
	}
	if total == 0 {
		return all
	}
	reasons := mostFirst(byReason, func(reason string, n int64) string { return fmt.Sprintf("%d %s", n, reason) })
	message := fmt.Sprintf("%s in the last hour: %s", term.Count(total, "dead event"), reasons)
	return append(all, finding{kind: "dead", state: Warn, message: cut(message, maxMessage)})
}

// settings reports different settings, and settings that this release cannot read.
func (v view) settings() (all []finding) {
	replicas := map[string]int{}
	for _, replica := range v.running() {
		if hash := replica.Snapshot.Settings.Hash; hash != "" {
			replicas[short(hash)]++
		}
	}
	if len(replicas) > 1 {
		parts := mostFirst(replicas, func(hash string, n int) string {
			return fmt.Sprintf("%s (%s)", hash, term.Count(n, "replica"))
		})
		all = append(all, finding{kind: "settings", state: Warn, message: cut("replicas differ: "+parts, maxMessage)})
	}
	if v.unusable != nil {
		message := cut(strings.ReplaceAll(v.unusable.Error(), "\n", "; "), maxMessage)
		all = append(all, finding{kind: "settings", state: Warn, message: message})
	}
	return all
}

// mostFirst joins the texts of a tally, the highest count first.
func mostFirst[N int | int64](tally map[string]N, text func(name string, n N) string) string {
	names := slices.SortedFunc(maps.Keys(tally), func(a, b string) int {
		return cmp.Or(cmp.Compare(tally[b], tally[a]), cmp.Compare(a, b))
	})
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = text(name, tally[name])
	}
	return strings.Join(parts, ", ")
}

func (v view) clock() []finding {
	o := v.outage("redis_clock")
	if o.replicas == 0 {
		return nil
	}
	return []finding{{kind: "clock", state: Warn, since: o.since, message: o.reason}}
}

// stopping are the outages that keep a replica from sending anything. Those in shared are the same for all
// replicas, but a replica with nothing to post does not notice them.
var (
	stopping = []string{"nats", "consumer", "redis", "slack", "credentials", "log"}
	shared   = []string{"slack", "credentials"}
)

// outage combines the waits of running replicas for one dependency.
type outage struct {
	replicas int
	since    time.Time // earliest. Zero if unknown
	reason   string    // of one of them
}

func (o *outage) add(w snapshot.Wait) {
	o.replicas++
	o.since = earlier(o.since, w.Since)
	o.reason = cut(cause(w.Reason), maxReason)
}

func (v view) outage(dependency string) (o outage) {
	for _, replica := range v.running() {
		waits := waitsOf(replica.Snapshot)
		at := slices.IndexFunc(waits, func(w snapshot.Wait) bool { return w.For == dependency && w.Channel == "" })
		if at >= 0 {
			o.add(waits[at])
		}
	}
	return o
}

// outageFinding describes an outage: a failure if no replica sends anything, else a warning.
func (v view) outageFinding(dependency, kind, text string) []finding {
	o := v.outage(dependency)
	if o.replicas == 0 {
		return nil
	}
	f := finding{kind: kind, state: Warn, since: o.since}
	if slices.Contains(stopping, dependency) {
		f.stops = v.stopped() || slices.Contains(shared, dependency) && v.nothingSentSince(o.since)
	}
	if f.stops || !slices.Contains(stopping, dependency) {
		f.state = Fail
	}
	f.message = cut(text+v.where(o.replicas)+": "+o.reason, maxMessage)
	return []finding{f}
}

// waitsOf returns the outages of a replica. A ping for /readyz notices an outage before any event waits; then
// only NotReady has it.
func waitsOf(s snapshot.Snapshot) []snapshot.Wait {
	waits := slices.Clone(s.Waits)
	for _, line := range s.NotReady {
		dependency, reason, _ := strings.Cut(line, ": ")
		known := func(w snapshot.Wait) bool { return w.For == dependency && w.Channel == "" }
		if slices.Contains(stopping, dependency) && !slices.ContainsFunc(waits, known) {
			waits = append(waits, snapshot.Wait{For: dependency, Reason: reason})
		}
	}
	return waits
}

// stopped reports whether no running replica can send anything.
func (v view) stopped() bool {
	running := v.running()
	return len(running) > 0 && !slices.ContainsFunc(running, func(r report.Replica) bool { return !isStopped(r) })
}

// isStopped reports whether a replica sends nothing: it waits for a dependency, or is not ready and has no
// event left to post.
func isStopped(r report.Replica) bool {
	queued := slices.ContainsFunc(r.Snapshot.Channels, func(c snapshot.Channel) bool { return c.Queued > 0 })
	return hasOutage(r) || isUnready(r) && !queued
}

// isUnready reports whether a replica is not ready for another reason than an outage.
func isUnready(r report.Replica) bool { return !r.Snapshot.Ready && !hasOutage(r) }

func hasOutage(r report.Replica) bool {
	return slices.ContainsFunc(waitsOf(r.Snapshot), func(w snapshot.Wait) bool {
		return w.Channel == "" && slices.Contains(stopping, w.For)
	})
}

func (v view) nothingSentSince(begin time.Time) bool {
	return !slices.ContainsFunc(v.running(), func(r report.Replica) bool {
		return r.Snapshot.LastSent.After(begin)
	})
}

func (v view) running() []report.Replica {
	return slices.DeleteFunc(slices.Clone(v.replicas), func(r report.Replica) bool { return r.Silent })
}

// where returns " in 1 of 3 replicas", or "" if n counts every running replica.
func (v view) where(n int) string {
	if n == len(v.running()) {
		return ""
	}
	return fmt.Sprintf(" in %d of %s", n, term.Count(len(v.running()), "replica"))
}

func (v view) age(begin time.Time) string { return span(v.now.Sub(begin)) }

// redisTexts explains the kinds of trouble in which Redis refuses all writes.
var redisTexts = map[string]string{
	report.Full:       "Redis is full (maxmemory)",
	report.ReadOnly:   "Redis is read-only",
	report.NotSaving:  "Redis takes no writes, because it cannot save to its disk",
	report.NoReplicas: "Redis takes no writes, because it has too few replicas",
	report.Loading:    "Redis is loading its data",
}

// RedisRefusal returns the reason for which Redis refuses all writes, or "" if the error is another one.
func RedisRefusal(reason string) string { return redisTexts[report.Trouble(reason)] }

func redisText(reason, where string) string {
	if text := RedisRefusal(reason); text != "" {
		return text + where
	}
	return cut("Redis is unavailable"+where+": "+cause(reason), maxMessage)
}

// cause shortens an error to its cause: "slack: unavailable: http_503" to "http_503".
func cause(reason string) string {
	if rest, found := strings.CutPrefix(reason, "slack: "); found {
		if _, code, found := strings.Cut(rest, ": "); found {
			return code
		}
	}
	for _, prefix := range []string{"nats: ", "redis: "} {
		reason = strings.TrimPrefix(reason, prefix)
	}
	return reason
}

// slackText makes a clause of the reason of a failed post.
func slackText(reason string) string {
	if strings.HasPrefix(reason, "Slack ") {
		return reason
	}
	return "Slack fails with " + reason
}

// askedToWait begins the reason of a replica that waits because of Slack's 429.
const askedToWait = "Slack asked to wait"

func pauseText(left time.Duration) string { return askedToWait + ", " + span(left) + " left" }

// Bounds of foreign text, in bytes. A category and a channel fit.
const (
	maxName    = 128
	maxReason  = 160
	maxMessage = 300
)

// short cuts a name.
func short(name string) string { return cut(name, maxName) }

// cut cuts a text and makes it one printable line.
func cut(text string, max int) string {
	return term.Cut(term.Printable(text), max)
}

// span is a duration in its two largest units.
func span(d time.Duration) string {
	if d = max(0, d); d >= time.Hour {
		return term.ShortDuration(d.Round(time.Minute))
	}
	return term.Duration(d)
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
