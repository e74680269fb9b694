package feed

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"notifier/internal/consume/streams"
)

// lookUp finds the stream and the consumer, and creates those that do not exist. It fails while they do not
// fit NATS_SUBJECT: what a worker would read then would have no category.
func (s *Feed) lookUp(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	stream, err := s.ensureStream(ctx, jetstream.StreamConfig{
		Name:        s.Stream,
		Description: "events to be sent to Slack by notifier; an event leaves when it is settled",
		Subjects:    []string{s.Subject},
		Retention:   jetstream.WorkQueuePolicy,
		// Should it be bounded later: publishers get an error, nothing is thrown away.
		Discard:    jetstream.DiscardNew,
		Storage:    jetstream.FileStorage,
		MaxMsgSize: largestEvent(s.MostPayload, s.Connection.MaxPayload()),
	})
	if err != nil {
		return nil, err
	}
	if mismatch := StreamMismatch(s.Subject, stream.CachedInfo().Config); mismatch != "" {
		return nil, errors.New(mismatch)
	}
	if created := stream.CachedInfo().Created; !created.Equal(s.created) {
		s.inflight.forgetReplies()
		s.created = created
		s.warnOfLoss(stream.CachedInfo().Config)
	}
	consumer, err := s.ensureConsumer(ctx, stream)
	if errors.Is(err, jetstream.ErrNotPullConsumer) {
		return nil, fmt.Errorf("%w: consumer %s of stream %s is a push consumer, expected a pull consumer",
			ErrUnsuitable, s.Consumer, s.Stream)
	}
	if err != nil {
		return nil, fmt.Errorf("consumer %s of stream %s: %w", s.Consumer, s.Stream, s.unsuitable(err))
	}
	info := consumer.CachedInfo()
	if mismatch := ConsumerMismatch(s.Subject, stream.CachedInfo().Config, info.Config); mismatch != "" {
		return nil, errors.New(mismatch)
	}
	for _, taken := range [][]string{stream.CachedInfo().Config.Subjects, Filters(info.Config)} {
		if Partial(s.Subject, taken) {
			s.Log.Warn("not all of NATS_SUBJECT arrives",
				zap.String("subject", s.Subject), zap.String("taken", subjectList(taken)),
				zap.String("stream", s.Stream), zap.String("consumer", s.Consumer))
		}
	}
	return info, s.checkConsumer(info.Config)
}

// sameConsumer is nil when the consumer is the one that was bound, and errConsumerGone when it is not; any
// other error leaves that open.
func (s *Feed) sameConsumer(ctx context.Context, bound *jetstream.ConsumerInfo) error {
	consumer, err := s.js.Consumer(ctx, s.Stream, s.Consumer)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("%w: %w", errConsumerGone, err)
	case err != nil:
		return err
	case !consumer.CachedInfo().Created.Equal(bound.Created):
		return fmt.Errorf("%w: it was created again", errConsumerGone)
	}
	return nil
}

// largestEvent is the size of the largest message that a stream of ours takes, payload and headers together,
// in bytes. A larger one is refused to its publisher, who can do something about it; one that is only larger
// than EVENT_MAX_BYTES (mostPayload) becomes a dead letter, which its operator sees.
func largestEvent(mostPayload int, server int64) int32 {
	const atLeast, headers = 1 << 20, 1 << 16
	largest := max(int64(atLeast), 2*int64(mostPayload)+headers)
	if server > 0 {
		largest = min(largest, server)
	}
	return int32(min(largest, math.MaxInt32))
}

// ensureConsumer looks the consumer up and creates it if it does not exist. One that exists is used as it is.
func (s *Feed) ensureConsumer(ctx context.Context, stream jetstream.Stream) (jetstream.Consumer, error) {
	consumer, err := stream.Consumer(ctx, s.Consumer)
	if !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return consumer, err
	}
	creation, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	consumer, err = stream.CreateConsumer(creation, jetstream.ConsumerConfig{
		Durable:       s.Consumer,
		Description:   "shared by all replicas of notifier",
		FilterSubject: s.Subject,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       ackWait,
		MaxDeliver:    -1,
		MaxAckPending: maxAckPendingReplicas * s.Capacity,
	})
	if errors.Is(err, jetstream.ErrConsumerExists) { // another replica was faster
		return stream.Consumer(ctx, s.Consumer)
	}
	return consumer, err
}

// checkConsumer refuses a consumer that cannot be used, and warns of one that can lose events.
func (s *Feed) checkConsumer(config jetstream.ConsumerConfig) error {
	if config.AckPolicy != jetstream.AckExplicitPolicy {
		return fmt.Errorf("%w: consumer %s of stream %s has acknowledgement policy %s, expected explicit",
			ErrUnsuitable, s.Consumer, s.Stream, config.AckPolicy)
	}
	if len(config.PriorityGroups) > 0 {
		return fmt.Errorf("%w: consumer %s of stream %s has priority groups %q, "+
			"expected none: each request would have to name one",
			ErrUnsuitable, s.Consumer, s.Stream, config.PriorityGroups)
	}
	if config.MaxDeliver > 0 {
		s.Log.Warn("the consumer limits redeliveries",
			zap.String("consumer", s.Consumer), zap.Int("max_deliver", config.MaxDeliver),
			zap.String("advice", "set max_deliver to -1: "+
				"an event that is held for long is not delivered again after so many times"))
	}
	return nil
}

// shortAge is less than an outage may last: a stream that keeps events for less time throws away what is
// held.
const shortAge = time.Hour

// warnOfLoss warns of what a stream's own settings may throw away before a worker has read it: limits count
// in every retention policy.
func (s *Feed) warnOfLoss(config jetstream.StreamConfig) {
	warn := func(what, advice string) {
		s.Log.Warn("the stream may lose events",
			zap.String("stream", config.Name), zap.String("why", what), zap.String("advice", advice))
	}
	if config.MaxAge > 0 && config.MaxAge < shortAge {
		warn("max_age is "+config.MaxAge.String(),
			"an event that is held for longer is lost: set max_age to an hour or more, or to 0")
	}
	bounded := config.MaxMsgs > 0 || config.MaxBytes > 0 || config.MaxMsgsPerSubject > 0
	if config.Discard == jetstream.DiscardOld && bounded {
		warn("it is bounded and discards old messages",
			"a full stream throws away unread events: "+
				"set discard to new, so that publishers get an error instead")
	}
}

// ensureStream looks a stream up and creates it if it does not exist. One that exists is used as it is.
func (s *Feed) ensureStream(ctx context.Context, config jetstream.StreamConfig) (jetstream.Stream, error) {
	maker := streams.NewMaker(s.js, s.Replicas, s.Log)
	stream, err := maker.Ensure(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", config.Name, s.unsuitable(err))
	}
	return stream, nil
}

// unsuitable marks the errors that waiting does not fix. Nothing answers where JetStream is off; where it was
// on before, its servers are only unavailable.
func (s *Feed) unsuitable(err error) error {
	off := errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabled) ||
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
	if off && !s.wasBound {
		return fmt.Errorf("%w: %v; expected a server with JetStream (nats-server -js)", ErrUnsuitable, err)
	}
	return err
}
