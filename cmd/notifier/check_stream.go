package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/ratelimit"
)

// shortestKeeping is less than an outage may last: a stream that keeps events for less time loses what waits.
const shortestKeeping = time.Hour

// streamLook looks at the stream, its consumer and the dead-letter stream.
type streamLook struct {
	asking   *natsAsking
	settings config
	f        *findings
}

func (l *streamLook) run(ctx context.Context) {
	name := l.settings.nats.stream
	info, err := l.stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		l.absent(ctx)
	case err != nil:
		l.f.fail(natsRefusal(err), "stream %s: %v", name, err)
		return // the next questions would fare no better
	default:
		l.tellStream(info)
		l.consumer(ctx, info)
	}
	l.deadLetters(ctx)
}

func (l *streamLook) stream(ctx context.Context, name string) (*jetstream.StreamInfo, error) {
	var info *jetstream.StreamInfo
	err := l.asking.ask(ctx, func(ctx context.Context) error {
		stream, err := l.asking.js.Stream(ctx, name)
		if err == nil {
			info = stream.CachedInfo()
		}
		return err
	})
	return info, err
}

// absent looks whether another stream has the subjects already: then a worker could not create its own.
func (l *streamLook) absent(ctx context.Context) {
	subject, other := l.settings.nats.pattern.String(), ""
	err := l.asking.ask(ctx, func(ctx context.Context) (err error) {
		other, err = l.asking.js.StreamNameBySubject(ctx, subject)
		return err
	})
	if err == nil && other != "" {
		l.f.fail("set NATS_STREAM to "+other+", or NATS_SUBJECT to subjects that no stream has",
			"stream %s is not there, and cannot be created: stream %s has subjects of %s already", l.settings.nats.stream, other, subject)
		return // and an error only means that nobody may tell
	}
	l.f.note("", "stream %s is not there yet: the first worker will create it, for %s; until then nobody keeps events", l.settings.nats.stream, subject)
}

func (l *streamLook) tellStream(info *jetstream.StreamInfo) {
	c, f := info.Config, l.f
	f.ok("stream %s takes %s: %s, %s; %s retention, discards %s, %s, %s, %s", c.Name, subjectsOf(c),
		counted(int(info.State.Msgs), "event"), size(info.State.Bytes), c.Retention, discard(c.Discard), bounds(c), strings.ToLower(c.Storage.String())+" storage", counted(c.Replicas, "replica"))
	l.subjects(fmt.Sprintf("stream %s takes %s", c.Name, subjectsOf(c)), c.Subjects, c.Mirror != nil || len(c.Sources) > 0)
	bounded := c.MaxMsgs > 0 || c.MaxBytes > 0 || c.MaxMsgsPerSubject > 0
	switch {
	case c.Discard == jetstream.DiscardOld && bounded:
		f.warn("set discard to new, so that publishers are told instead", "stream %s is bounded and discards old: full, it throws away what nobody has read", c.Name)
	case c.Retention == jetstream.LimitsPolicy && !bounded && c.MaxAge <= 0:
		f.warn("make it a work queue, or set max_age", "stream %s keeps every event for ever, and nothing bounds it", c.Name)
	}
	if c.MaxAge > 0 && c.MaxAge < shortestKeeping {
		f.warn("set max_age to an hour or more, or to 0", "stream %s forgets events after %s, also those that wait in an outage", c.Name, ratelimit.ShortDuration(c.MaxAge))
	}
	if c.Retention == jetstream.LimitsPolicy {
		f.note("never delete the consumer, or make the stream a work queue", "stream %s keeps events that are settled: a consumer that is made anew decides them again", c.Name)
	}
	if c.Storage == jetstream.MemoryStorage {
		f.warn("use file storage", "stream %s is in memory: a restart of the server loses what waits", c.Name)
	}
}

// subjects holds what is taken in against NATS_SUBJECT. What comes by mirroring or sourcing cannot be told by subjects.
func (l *streamLook) subjects(what string, taken []string, otherwise bool) {
	wanted := l.settings.nats.pattern.String()
	switch {
	case otherwise || slices.ContainsFunc(taken, func(s string) bool { return covers(s, wanted) }):
	case slices.ContainsFunc(taken, func(s string) bool { return overlap(s, wanted) }):
		l.f.warn("add NATS_SUBJECT to them", "%s, which is not all of NATS_SUBJECT %s: events of other categories do not come", what, wanted)
	default:
		l.f.fail("no event would ever come; add NATS_SUBJECT to them, or set it to subjects that are there", "%s, and nothing of NATS_SUBJECT %s", what, wanted)
	}
}

func (l *streamLook) consumer(ctx context.Context, stream *jetstream.StreamInfo) {
	name, f := l.settings.nats.consumer, l.f
	var info *jetstream.ConsumerInfo
	err := l.asking.ask(ctx, func(ctx context.Context) error {
		consumer, err := l.asking.js.Consumer(ctx, stream.Config.Name, name)
		if err == nil {
			info = consumer.CachedInfo()
		}
		return err
	})
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		f.note("", "consumer %s is not there yet: the first worker will create it", name)
		if stream.Config.Retention == jetstream.InterestPolicy {
			f.warn("start a worker before anything is published", "stream %s keeps only what a consumer waits for: until then events are thrown away", stream.Config.Name)
		}
	case errors.Is(err, jetstream.ErrNotPullConsumer):
		f.fail("set NATS_CONSUMER to one that is not there yet, or to a pull consumer", "consumer %s pushes", name)
	case err != nil:
		f.fail(natsRefusal(err), "consumer %s: %v", name, err)
	default:
		l.tellConsumer(info)
	}
}

func (l *streamLook) tellConsumer(info *jetstream.ConsumerInfo) {
	c, f := info.Config, l.f
	filters := c.FilterSubjects
	if c.FilterSubject != "" {
		filters = []string{c.FilterSubject}
	}
	what := "takes all of the stream"
	if len(filters) > 0 {
		what = "takes " + listed(filters)
	}
	f.ok("consumer %s %s: %d waiting, %d with workers; ack wait %s, %s, %s", info.Name, what, info.NumPending, info.NumAckPending,
		ratelimit.ShortDuration(c.AckWait), most("max_deliver", c.MaxDeliver), most("max_ack_pending", c.MaxAckPending))
	if len(filters) > 0 {
		l.subjects("consumer "+info.Name+" "+what, filters, false)
	}
	if c.AckPolicy != jetstream.AckExplicitPolicy {
		f.fail("make one whose policy is explicit", "consumer %s has the acknowledgement policy %s, with which a worker does not start", info.Name, c.AckPolicy)
	}
	if c.MaxDeliver > 0 {
		f.warn("set max_deliver to -1", "consumer %s has %s: an event that is held for long is not delivered again after so many times", info.Name, most("max_deliver", c.MaxDeliver))
	}
	if len(c.BackOff) > 0 {
		f.warn("remove it", "consumer %s has a backoff, which counts instead of ack wait: events are handed out again while they are worked on", info.Name)
	}
	if hand := 4 * l.settings.batchSize; c.MaxAckPending > 0 && c.MaxAckPending < hand {
		f.note("", "consumer %s hands out %d events at most to all workers together; one alone could hold %d", info.Name, c.MaxAckPending, hand)
	}
	if info.Paused {
		f.warn("resume it", "consumer %s is paused for %s more: nothing comes", info.Name, info.PauseRemaining.Round(time.Second))
	}
}

func (l *streamLook) deadLetters(ctx context.Context) {
	name, subject, f := l.settings.nats.stream+"_DEAD", l.settings.deadLetter+".>", l.f
	info, err := l.stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		f.note("", "stream %s is not there yet: the first worker will create it, for %s", name, subject)
		return
	case err != nil:
		f.fail(natsRefusal(err), "stream %s: %v", name, err)
		return
	}
	c := info.Config
	f.ok("stream %s takes %s: %s, %s, %s", name, subjectsOf(c), counted(int(info.State.Msgs), "dead letter"), bounds(c), counted(c.Replicas, "replica"))
	if !slices.ContainsFunc(c.Subjects, func(s string) bool { return covers(s, subject) }) {
		f.fail("add them, or set DEAD_LETTER_SUBJECT as it was", "stream %s does not take %s: an event that can never be sent would be held for ever", name, subject)
	}
}

func subjectsOf(c jetstream.StreamConfig) string {
	if len(c.Subjects) == 0 {
		return "no subjects"
	}
	return listed(c.Subjects)
}

func discard(policy jetstream.DiscardPolicy) string {
	if policy == jetstream.DiscardNew {
		return "new"
	}
	return "old"
}

// bounds are a stream's limits, those that are set.
func bounds(c jetstream.StreamConfig) string {
	var set []string
	if c.MaxAge > 0 {
		set = append(set, "max_age "+ratelimit.ShortDuration(c.MaxAge))
	}
	if c.MaxBytes > 0 {
		set = append(set, "max_bytes "+size(uint64(c.MaxBytes)))
	}
	if c.MaxMsgs > 0 {
		set = append(set, fmt.Sprintf("max_msgs %d", c.MaxMsgs))
	}
	if c.MaxMsgsPerSubject > 0 {
		set = append(set, fmt.Sprintf("max_msgs_per_subject %d", c.MaxMsgsPerSubject))
	}
	if len(set) == 0 {
		return "no bounds"
	}
	return strings.Join(set, ", ")
}

// most is a bound of a consumer; none is 0 or less.
func most(name string, n int) string {
	if n <= 0 {
		return "no " + name
	}
	return fmt.Sprintf("%s %d", name, n)
}

// size is a number of bytes for people.
func size(bytes uint64) string {
	const step = 1024
	if bytes < step {
		return fmt.Sprintf("%d B", bytes)
	}
	value, unit := float64(bytes)/step, 0
	for value >= step && unit < 4 {
		value, unit = value/step, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGTP"[unit])
}
