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

// view is what the conditions and State.Summary are computed from.
type view struct {
	now      time.Time
	replicas []report.Replica // with the reader's own snapshot, if the reader is a worker
	counts   []report.Count   // of the last hour
	pauses   []ratelimit.Pause
	channels []string // all that events can go to. Empty if unknown

	blind    bool  // workers, counts and pauses could not be read
	readErr  error // the first failed read. Nil if all succeeded
	refuses  error // Redis refuses all writes
	unusable error // the reason why the limits shown are not the workers'
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
	return append(v.redisOutage(), v.eviction()...)
}

func (v view) eviction() []finding {
	o := v.outage("redis_eviction")
	if o.replicas == 0 {
		return nil
	}
	return []finding{{kind: "redis", state: Warn, since: o.since, message: o.reason}}
}

func (v view) redisOutage() []finding {
	o := v.outage("redis")
	f := finding{kind: "redis", state: Fail, since: o.since, stops: true}
	switch {
	case v.refuses != nil:
		f.since = earlier(o.since, v.lastHeartbeat()) // workers may notice long after their heartbeats stopped
		f.message = redisText(v.refuses.Error(), "")
	case v.blind:
		f.message = redisText(v.readErr.Error(), "")
	case v.readErr != nil && o.replicas == 0:
		f.stops = false
		f.message = cut("the limits cannot be read: "+cause(v.readErr.Error()), maxMessage)
	case o.replicas == 0:
		return nil
	default:
		f = v.outageFinding("redis", "redis", "")[0]
		f.message = redisText(o.reason, v.where(o.replicas))
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
	return v.consumer()
}

// consumer reports a stream or consumer that cannot be read, and one that withholds events.
func (v view) consumer() []finding {
	if f := v.outageFinding("consumer", "consumer", "the stream or its consumer cannot be read"); f != nil {
		return f
	}
	var all []finding
	sends := v.posts() // events that were read before
	for _, stream := range v.latestStreams() {
		w := stream.Withheld
		// Another deployment in this namespace has a stream of its own.
		sends = sends || stream.Unread != nil && (w == nil || !w.None)
		if w == nil {
			continue
		}
		f := finding{kind: "consumer", state: Warn, message: cut(w.Why, maxMessage), stops: w.None}
		if w.None {
			f.state = Fail
		}
		all = append(all, f)
	}
	for i := range all {
		all[i].stops = all[i].stops && !sends
	}
	return all
}

// posts reports whether a worker makes a post now.
func (v view) posts() bool {
	return slices.ContainsFunc(v.running(), func(replica report.Replica) bool {
		return slices.ContainsFunc(replica.Snapshot.Channels, func(c snapshot.Channel) bool { return c.Posting })
	})
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
		v.outageFinding("credentials", "slack", credentialsText(v.outage("credentials").reason)),
		v.outageFinding("slack", "slack", "Slack takes no posts"),
	)
}

// workers reports missing, unready and silent workers, and those that cannot write their log. While Redis
// stores no heartbeats, silence means nothing.
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

// unready reports workers that are not ready for another reason than an outage.
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
	longest := slices.MinFunc(v.replicas, func(a, b report.Replica) int { return a.Seen.Compare(b.Seen) })
	message := fmt.Sprintf("%d of %s silent, %s for %s", n, term.Count(len(v.replicas), "worker"),
		short(longest.Snapshot.ID), v.age(longest.Seen))
	return []finding{{kind: "workers", state: Warn, since: longest.Seen, message: message}}
}

// A stream with less room than smallEvent, in bytes, counts as full.
const smallEvent = 1024

// startupGrace is the time after its start in which a worker may not have created its streams yet.
const startupGrace = 10 * time.Second

// latestStreams returns the latest lookup of each stream, in the order of their names.
func (v view) latestStreams() (streams []snapshot.Stream) {
	latest := map[string]snapshot.Stream{}
	for _, replica := range v.running() {
		starting := v.now.Sub(replica.Snapshot.Started) < startupGrace
		for _, stream := range replica.Snapshot.Streams {
			if starting && stream.Unknown != "" { // the worker is about to create the stream
				continue
			}
			known, there := latest[stream.Name]
			better := known.Unknown != "" && stream.Unknown == ""
			same := (known.Unknown == "") == (stream.Unknown == "")
			if !there || better || same && stream.Seen.After(known.Seen) {
				latest[stream.Name] = stream
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(latest)) {
		streams = append(streams, latest[name])
	}
	return streams
}

// streams reports unknown streams, those that are full or nearly so and do not discard their oldest messages,
// and events that will not be delivered again.
func (v view) streams() (all []finding) {
	for _, stream := range v.latestStreams() {
		all = append(all, streamFindings("stream/"+short(stream.Name), stream)...)
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
		message := term.Count(*s.Stuck, "event") + " will never be delivered"
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
			return fmt.Sprintf("%s (%s)", hash, term.Count(n, "worker"))
		})
		all = append(all, finding{kind: "settings", state: Warn, message: cut("workers differ: "+parts, maxMessage)})
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
	return []finding{{kind: "clock", state: Fail, since: o.since, message: o.reason}}
}
