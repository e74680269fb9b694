package feed

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"notifier/internal/streams"
)

// lookUp finds the stream and the consumer, and creates those that do not exist. It fails while one of them
// has a fault that forbids reading, and logs the risks.
func (s *Feed) lookUp(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	stream, err := s.ensureStream(ctx)
	if err != nil {
		return nil, err
	}
	reading := Reading{
		Subject: s.settings.Subject, Namespace: s.settings.Namespace,
		Held: s.settings.Capacity, Stream: stream.CachedInfo().Config,
	}
	faults := reading.StreamFaults()
	if err := s.refusal(faults); err != nil {
		return nil, err
	}
	if created := stream.CachedInfo().Created; !created.Equal(s.created) {
		s.inflight.forgetReplies()
		s.created = created
	}
	info, err := s.ensureConsumer(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("consumer %s of stream %s: %w", s.settings.Consumer, s.settings.Stream, s.unsuitable(err))
	}
	faults = append(faults, reading.ConsumerFaults(info)...)
	if err := s.refusal(faults); err != nil {
		return nil, err
	}
	if err := s.mayAcknowledge(ctx); err != nil {
		return nil, err
	}
	s.warn(faults)
	return info, nil
}

// mayAcknowledge returns why the worker could not acknowledge events, or nil.
func (s *Feed) mayAcknowledge(ctx context.Context) error {
	err := s.settings.Connection.MayAcknowledge(ctx, s.settings.Stream, s.settings.Consumer)
	if errors.Is(err, nats.ErrPermissionViolation) {
		err = fmt.Errorf("%w; give the user the permissions in docs/security.md", err)
	}
	if err != nil {
		return fmt.Errorf("consumer %s of stream %s: %w", s.settings.Consumer, s.settings.Stream, err)
	}
	return nil
}

// refusal returns why a worker must not read, or nil. A worker that has read before waits for the fault to be
// mended, whatever the fault is.
func (s *Feed) refusal(faults []Fault) error {
	for _, fault := range faults {
		switch {
		case fault.Severity == Refuse && !s.wasBound:
			return fmt.Errorf("%w: %s; %s", ErrUnsuitable, fault.Problem, fault.Advice)
		case fault.Severity >= Wait:
			return fmt.Errorf("%s; %s", fault.Problem, fault.Advice)
		}
	}
	return nil
}

// warn logs the risks that the last binding did not have.
func (s *Feed) warn(faults []Fault) {
	risks := map[string]bool{}
	for _, fault := range faults {
		if fault.Severity != Risk && fault.Severity != Withhold {
			continue
		}
		risks[fault.Problem] = true
		if !s.risks[fault.Problem] {
			s.settings.Log.Warn("events may be lost or late",
				zap.String("stream", s.settings.Stream), zap.String("consumer", s.settings.Consumer),
				zap.String("why", fault.Problem), zap.String("advice", fault.Advice))
		}
	}
	s.risks = risks
}

// LookUp finds a consumer, also one that pushes.
func LookUp(ctx context.Context, js jetstream.JetStream, stream, name string) (*jetstream.ConsumerInfo, error) {
	return streams.LookUp(ctx, func(ctx context.Context) (*jetstream.ConsumerInfo, error) {
		consumer, err := js.Consumer(ctx, stream, name)
		if err == nil {
			return consumer.CachedInfo(), nil
		}
		if !errors.Is(err, jetstream.ErrNotPullConsumer) {
			return nil, err
		}
		pushing, err := js.PushConsumer(ctx, stream, name)
		if err != nil {
			return nil, err
		}
		return pushing.CachedInfo(), nil
	})
}

// sameConsumer returns nil if the consumer is the one that was bound, with the settings that a worker depends
// on, and still delivers payloads that may be acknowledged. Otherwise it returns errConsumerGone,
// errHeadersOnly or nats.ErrPermissionViolation. Any other error leaves that open.
func (s *Feed) sameConsumer(ctx context.Context, bound *jetstream.ConsumerInfo) error {
	info, err := LookUp(ctx, s.js, s.settings.Stream, s.settings.Consumer)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("%w: %w", errConsumerGone, err)
	case err != nil:
		return err
	case !info.Created.Equal(bound.Created):
		return fmt.Errorf("%w: it was created again", errConsumerGone)
	case isChanged(info.Config, bound.Config):
		return fmt.Errorf("%w: its configuration was changed", errConsumerGone)
	case info.Config.HeadersOnly:
		return errHeadersOnly
	}
	return s.mayAcknowledge(ctx)
}

func isChanged(a, b jetstream.ConsumerConfig) bool {
	return a.AckWait != b.AckWait || a.MaxAckPending != b.MaxAckPending || a.MaxDeliver != b.MaxDeliver ||
		!slices.Equal(filters(a), filters(b)) || a.Metadata[NamespaceKey] != b.Metadata[NamespaceKey]
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
func (s *Feed) ensureConsumer(ctx context.Context, stream jetstream.Stream) (*jetstream.ConsumerInfo, error) {
	info, err := LookUp(ctx, s.js, s.settings.Stream, s.settings.Consumer)
	if !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return info, err
	}
	config := jetstream.ConsumerConfig{
		Durable:       s.settings.Consumer,
		Description:   "shared by all workers of notifier",
		FilterSubject: s.settings.Subject,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       ackWait,
		MaxDeliver:    -1,
		MaxAckPending: maxAckPendingReplicas * s.settings.Capacity,
	}
	if s.settings.Namespace != "" {
		config.Metadata = map[string]string{NamespaceKey: s.settings.Namespace}
	}
	info, err = create(ctx, stream, config)
	for streams.IsTooManyUnacknowledged(err) && config.MaxAckPending > 0 {
		// An account may allow less. The server's own default, 1000, respects its limit.
		if config.MaxAckPending /= 2; config.MaxAckPending <= 1000 {
			config.MaxAckPending = 0
		}
		info, err = create(ctx, stream, config)
	}
	switch {
	case errors.Is(err, jetstream.ErrConsumerExists): // another worker was faster
		return LookUp(ctx, s.js, s.settings.Stream, s.settings.Consumer)
	case streams.IsTooManyConsumers(err):
		return nil, fmt.Errorf("%w; raise max_consumers of the account or of the stream", err)
	case streams.HasOtherConsumer(err):
		return nil, fmt.Errorf("%w; %s", err, OtherConsumerAdvice)
	}
	return info, err
}

// OtherConsumerAdvice is the advice for a work queue whose events another consumer takes.
const OtherConsumerAdvice = "set NATS_CONSUMER to the other consumer, or delete that one: " +
	"its unsettled events stay in the stream"

func create(
	ctx context.Context, stream jetstream.Stream, config jetstream.ConsumerConfig,
) (*jetstream.ConsumerInfo, error) {
	consumer, err := streams.Request(ctx, func(ctx context.Context) (jetstream.Consumer, error) {
		return stream.CreateConsumer(ctx, config)
	})
	if err != nil {
		return nil, err
	}
	return consumer.CachedInfo(), nil
}

// SizeSetting names the variable with the size of a stream that is created here.
const SizeSetting = "NATS_STREAM_MAX_BYTES"

// Config returns the configuration of a new stream of events. A full stream refuses publishers and deletes
// nothing.
func Config(name, subject string, maxBytes int64, maxMsgSize int32) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        name,
		Description: "events to be sent to Slack by notifier; an event leaves when it is settled",
		Subjects:    []string{subject},
		Retention:   jetstream.WorkQueuePolicy,
		Discard:     jetstream.DiscardNew,
		MaxBytes:    maxBytes,
		Storage:     jetstream.FileStorage,
		MaxMsgSize:  maxMsgSize,
	}
}

// ensureStream looks the stream up and creates it if it does not exist. One that exists is used as it is.
func (s *Feed) ensureStream(ctx context.Context) (jetstream.Stream, error) {
	size := largestEvent(s.settings.MostPayload, s.settings.Connection.MaxPayload())
	config := Config(s.settings.Stream, s.settings.Subject, s.settings.MaxBytes, size)
	stream, err := s.maker.Ensure(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", s.settings.Stream, s.unsuitable(err))
	}
	return stream, nil
}

// JetStreamAdvice is the advice for a server without JetStream.
const JetStreamAdvice = "start the server with it (nats-server -js); " +
	"workers of a leaf node without it connect to its hub"

// unsuitable marks the errors that waiting does not fix: a server without JetStream sends no reply. If it had
// JetStream before, it is only unavailable.
func (s *Feed) unsuitable(err error) error {
	off := errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabled) ||
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
	if off && !s.wasBound {
		return fmt.Errorf("%w: %v; expected JetStream: %s", ErrUnsuitable, err, JetStreamAdvice)
	}
	return err
}
