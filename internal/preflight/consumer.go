package preflight

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/consume/feed"
	"notifier/internal/term"
)

// mostBatchesHeld is how many batches one worker holds at most.
const mostBatchesHeld = 4

func (c *streamCheck) consumer(ctx context.Context, stream *jetstream.StreamInfo) {
	name, r := c.settings.NATS.Consumer, c.report
	var info *jetstream.ConsumerInfo
	err := c.client.request(ctx, func(ctx context.Context) error {
		consumer, err := c.client.js.Consumer(ctx, stream.Config.Name, name)
		if err == nil {
			info = consumer.CachedInfo()
		}
		return err
	})
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		r.note("", "consumer %s does not exist yet: the first worker will create it", name)
		if stream.Config.Retention == jetstream.InterestPolicy {
			r.warn(
				"start a worker before anything is published",
				"stream %s keeps only events that a consumer waits for: until then events are deleted",
				stream.Config.Name,
			)
		}
	case errors.Is(err, jetstream.ErrNotPullConsumer):
		r.fail("set NATS_CONSUMER to a new name, or to a pull consumer", "consumer %s is a push consumer", name)
	case err != nil:
		r.fail(requestAdvice(err), "consumer %s: %v", name, err)
	default:
		c.examineConsumer(stream.Config, info)
	}
}

func (c *streamCheck) examineConsumer(stream jetstream.StreamConfig, info *jetstream.ConsumerInfo) {
	config, r := info.Config, c.report
	filters := feed.Filters(config)
	what := "takes everything in the stream"
	if len(filters) > 0 {
		what = "takes " + term.List(filters)
	}
	r.ok(
		"consumer %s %s: %d waiting, %d with workers; ack wait %s, %s, %s",
		info.Name,
		what,
		info.NumPending,
		info.NumAckPending,
		term.ShortDuration(config.AckWait),
		maximum("max_deliver", config.MaxDeliver),
		maximum("max_ack_pending", config.MaxAckPending),
	)
	c.checkSubjects(
		"consumer "+info.Name+" "+what,
		filters,
		feed.ConsumerMismatch(c.settings.NATS.Pattern.String(), stream, config),
	)
	if config.AckPolicy != jetstream.AckExplicitPolicy {
		r.fail(
			"create one whose policy is explicit",
			"consumer %s has the acknowledgement policy %s, with which a worker does not start",
			info.Name,
			config.AckPolicy,
		)
	}
	if len(config.PriorityGroups) > 0 {
		r.fail(
			"create one without them",
			"consumer %s has the priority groups %s, with which a worker does not start",
			info.Name,
			term.List(config.PriorityGroups),
		)
	}
	if config.MaxDeliver > 0 {
		r.warn(
			"set max_deliver to -1",
			"consumer %s has %s: an event that is held for long is not delivered again after so many deliveries",
			info.Name,
			maximum("max_deliver", config.MaxDeliver),
		)
	}
	if len(config.BackOff) > 0 {
		r.warn(
			"remove it",
			"consumer %s has a backoff, which replaces ack wait: events are redelivered while they are being processed",
			info.Name,
		)
	}
	if held := mostBatchesHeld * c.settings.BatchSize; config.MaxAckPending > 0 && config.MaxAckPending < held {
		r.note(
			"",
			"consumer %s allows %d unacknowledged events over all workers; a single one could hold %d",
			info.Name,
			config.MaxAckPending,
			held,
		)
	}
	if info.Paused {
		r.warn(
			"resume it",
			"consumer %s is paused for another %s: no events arrive",
			info.Name,
			info.PauseRemaining.Round(time.Second),
		)
	}
}

// maximum is a bound of a consumer; none is 0 or less.
func maximum(name string, n int) string {
	if n <= 0 {
		return "no " + name
	}
	return fmt.Sprintf("%s %d", name, n)
}
