package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/consume/feed"
	"notifier/internal/event"
	"notifier/internal/settings"
	"notifier/internal/term"
)

// shortestRetention is less than an outage may last: a stream that keeps events for less time loses what
// waits.
const shortestRetention = time.Hour

// streamCheck looks at the stream, its consumer (consumer.go) and the dead-letter stream.
type streamCheck struct {
	client   *natsClient
	settings settings.Settings
	report   *report
}

func (c *streamCheck) run(ctx context.Context) {
	name := c.settings.NATS.Stream
	info, err := c.stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		if c.missing(ctx, Fail, name, c.settings.NATS.Pattern.String(),
			"set NATS_STREAM to that one, or NATS_SUBJECT to subjects that no stream has") {
			c.missingReplicas()
		}
	case err != nil:
		c.report.fail(requestAdvice(err), "stream %s: %v", name, err)
		return // the next requests would fail too
	default:
		c.examineStream(info)
		c.consumer(ctx, info)
	}
	c.deadLetters(ctx)
	c.outcomes(ctx)
	c.dropped(ctx)
}

func (c *streamCheck) stream(ctx context.Context, name string) (*jetstream.StreamInfo, error) {
	var info *jetstream.StreamInfo
	err := c.client.request(ctx, func(ctx context.Context) error {
		stream, err := c.client.js.Stream(ctx, name)
		if err == nil {
			info = stream.CachedInfo()
		}
		return err
	})
	return info, err
}

// owner is the stream that takes a subject.
func (c *streamCheck) owner(ctx context.Context, subject string) (stream string, err error) {
	err = c.client.request(ctx, func(ctx context.Context) (err error) {
		stream, err = c.client.js.StreamNameBySubject(ctx, subject)
		return err
	})
	return stream, err
}

// missing is about a stream that does not exist. Where another one has its subjects already, a worker could
// not create it.
func (c *streamCheck) missing(ctx context.Context, level Level, name, subject, advice string) (canBe bool) {
	other, err := c.owner(ctx, subject)
	if err == nil && other != "" { // an error would only mean that this user may not ask
		c.report.add(
			level,
			advice,
			"stream %s does not exist and cannot be created: stream %s already has subjects of %s",
			name,
			other,
			subject,
		)
		return false
	}
	c.report.note("", "stream %s does not exist yet: the first worker will create it for %s", name, subject)
	return true
}

func (c *streamCheck) examineStream(info *jetstream.StreamInfo) {
	config, r := info.Config, c.report
	r.ok(
		"stream %s takes %s: %s, %s; %s retention, discards %s, %s, %s, %s",
		config.Name,
		subjectsOf(config),
		term.Count(int(info.State.Msgs), "event"),
		term.Size(info.State.Bytes),
		config.Retention,
		discardPolicy(config.Discard),
		boundsOf(config),
		strings.ToLower(config.Storage.String())+" storage",
		term.Count(config.Replicas, "replica"),
	)
	c.checkSubjects(fmt.Sprintf("stream %s takes %s", config.Name, subjectsOf(config)), config.Subjects,
		feed.StreamMismatch(c.settings.NATS.Pattern.String(), config))
	bounded := config.MaxMsgs > 0 || config.MaxBytes > 0 || config.MaxMsgsPerSubject > 0
	switch {
	case config.Discard == jetstream.DiscardOld && bounded:
		r.warn(
			"set discard to new, so that publishers get an error instead",
			"stream %s is bounded and discards old: when it is full, it deletes events that no worker has read",
			config.Name,
		)
	case config.Retention == jetstream.LimitsPolicy && !bounded && config.MaxAge <= 0:
		r.warn(
			"make it a work queue, or set max_age",
			"stream %s keeps every event for ever, without any bound",
			config.Name,
		)
	}
	if config.MaxAge > 0 && config.MaxAge < shortestRetention {
		r.warn(
			"set max_age to an hour or more, or to 0",
			"stream %s deletes events after %s, including those that wait during an outage",
			config.Name,
			term.ShortDuration(config.MaxAge),
		)
	}
	if config.Retention == jetstream.LimitsPolicy {
		r.note(
			"never delete the consumer, or make the stream a work queue",
			"stream %s keeps settled events: a consumer that is created again decides them again",
			config.Name,
		)
	}
	c.checkReplicas(config)
	if config.Storage == jetstream.MemoryStorage {
		r.warn(
			"use file storage",
			"stream %s is in memory: a restart of the server loses waiting events",
			config.Name,
		)
	}
}

// checkSubjects compares what is taken in with NATS_SUBJECT. With a mismatch a worker waits; no subjects
// cannot be judged.
func (c *streamCheck) checkSubjects(what string, taken []string, mismatch string) {
	wanted := c.settings.NATS.Pattern.String()
	switch {
	case mismatch != "":
		c.report.fail("a worker waits until they agree: change them, or NATS_SUBJECT", "%s", mismatch)
	case feed.Partial(wanted, taken):
		c.report.warn(
			"add NATS_SUBJECT to them",
			"%s, which is not all of NATS_SUBJECT %s: events of other categories do not arrive",
			what,
			wanted,
		)
	}
}

func (c *streamCheck) deadLetters(ctx context.Context) {
	name, subject, r := c.settings.NATS.Stream+"_DEAD", c.settings.DeadLetter+".>", c.report
	info, err := c.stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		c.missing(ctx, Fail, name, subject, "set DEAD_LETTER_SUBJECT to a subject that no stream has")
		return
	case err != nil:
		r.fail(requestAdvice(err), "stream %s: %v", name, err)
		return
	}
	config := info.Config
	r.ok(
		"stream %s takes %s: %s, %s, %s",
		name,
		subjectsOf(config),
		term.Count(int(info.State.Msgs), "dead letter"),
		boundsOf(config),
		term.Count(config.Replicas, "replica"),
	)
	c.checkReplicas(config)
	if !slices.ContainsFunc(config.Subjects, func(s string) bool { return event.Covers(s, subject) }) {
		r.fail(
			"add them, or set DEAD_LETTER_SUBJECT as it was",
			"stream %s does not take %s: an event that can never be sent would be held for ever",
			name,
			subject,
		)
	}
}

func subjectsOf(config jetstream.StreamConfig) string {
	if len(config.Subjects) == 0 {
		return "no subjects"
	}
	return term.List(config.Subjects)
}

func discardPolicy(policy jetstream.DiscardPolicy) string {
	if policy == jetstream.DiscardNew {
		return "new"
	}
	return "old"
}

// boundsOf are a stream's limits, those that are set.
func boundsOf(config jetstream.StreamConfig) string {
	var set []string
	if config.MaxAge > 0 {
		set = append(set, "max_age "+term.ShortDuration(config.MaxAge))
	}
	if config.MaxBytes > 0 {
		set = append(set, "max_bytes "+term.Size(uint64(config.MaxBytes)))
	}
	if config.MaxMsgs > 0 {
		set = append(set, fmt.Sprintf("max_msgs %d", config.MaxMsgs))
	}
	if config.MaxMsgsPerSubject > 0 {
		set = append(set, fmt.Sprintf("max_msgs_per_subject %d", config.MaxMsgsPerSubject))
	}
	if len(set) == 0 {
		return "no bounds"
	}
	return strings.Join(set, ", ")
}
