package feed

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/event"
)

// StuckLook is one look at the events that stay in a stream although its consumer will never deliver them.
// They were delivered max_deliver times and not acknowledged, or the consumer is ahead of its stream, such as
// after the stream was restored. The server does not count them, so LookForStuck compares the stream with its
// consumer.
type StuckLook struct {
	Unread    uint64 // events that the consumer has not delivered yet
	Stuck     uint64 // a lower bound, once a later look confirms it
	Known     bool   // false if neither the stream nor the consumer shows it
	first     uint64 // sequence of the oldest event in the stream
	delivered uint64 // last sequence that the consumer delivered
}

// Under load the stream still holds events for some milliseconds that the consumer counts as acknowledged. So
// a look that finds something is repeated, and the least counts.
const (
	stuckLooks = 5
	stuckPause = 100 * time.Millisecond
)

// LookForStuck compares a stream with its consumer. If it finds something it takes about half a second.
func LookForStuck(ctx context.Context, js jetstream.JetStream, stream, consumer string) (StuckLook, error) {
	least, err := lookOnce(ctx, js, stream, consumer)
	for n := 1; err == nil && least.Stuck > 0 && n < stuckLooks; n++ {
		select {
		case <-time.After(stuckPause):
		case <-ctx.Done():
			return StuckLook{}, ctx.Err()
		}
		var look StuckLook
		look, err = lookOnce(ctx, js, stream, consumer)
		if least.Stuck > look.Stuck {
			least = look
		}
		least.Unread = look.Unread
	}
	return least, err
}

func lookOnce(ctx context.Context, js jetstream.JetStream, stream, consumer string) (StuckLook, error) {
	found, err := js.Stream(ctx, stream)
	if err != nil {
		return StuckLook{}, err
	}
	before := found.CachedInfo().State
	bound, err := found.Consumer(ctx, consumer)
	if err != nil {
		return StuckLook{}, err
	}
	after, err := found.Info(ctx)
	if err != nil {
		return StuckLook{}, err
	}
	return stuckIn(before, bound.CachedInfo(), after), nil
}

// stuckIn compares a stream, as it was before and after its consumer was looked up, with that consumer.
func stuckIn(
	before jetstream.StreamState, consumer *jetstream.ConsumerInfo, after *jetstream.StreamInfo,
) StuckLook {
	look := StuckLook{
		Unread: consumer.NumPending, first: after.State.FirstSeq, delivered: consumer.Delivered.Stream,
	}
	if !leavesWhenAcknowledged(after, consumer.Config) {
		look.Stuck, look.Known = StuckAtLeast(consumer), consumer.Config.MaxDeliver != 1
		return look
	}
	// An event that was published meanwhile may not be pending yet.
	published := int64(after.State.LastSeq) - int64(before.LastSeq)
	waiting := int64(consumer.NumPending) + int64(consumer.NumAckPending)
	left := int64(after.State.Msgs) - published - waiting
	switch {
	case consumer.Delivered.Stream > after.State.LastSeq: // it skips events that it has never delivered
	case consumer.Config.MaxDeliver <= 0: // it was above zero before, if an event is stuck
		left = min(left, int64(consumer.NumRedelivered-consumer.NumAckPending))
	case consumer.Config.MaxDeliver > 1: // with 1 the server counts no redelivered events
		left = min(left, int64(consumer.NumRedelivered))
	}
	look.Stuck, look.Known = uint64(max(0, left)), true
	return look
}

// Confirmed returns how many events were stuck in this look and in an earlier one. If the oldest event of the
// stream was delivered after the earlier look, nothing was stuck then.
func (l StuckLook) Confirmed(earlier StuckLook) (n uint64, known bool) {
	if !l.Known || !earlier.Known {
		return 0, false
	}
	if l.first > earlier.delivered {
		return 0, true
	}
	return min(l.Stuck, earlier.Stuck), true
}

// StuckAtLeast returns how many events are stuck by the consumer's numbers alone. It is too low by the number
// of unacknowledged events, and 0 if max_deliver is 1.
func StuckAtLeast(info *jetstream.ConsumerInfo) uint64 {
	if info.Config.MaxDeliver <= 0 {
		return 0
	}
	return uint64(max(0, info.NumRedelivered-info.NumAckPending)) // the server counts stuck ones as redelivered
}

// leavesWhenAcknowledged reports whether the stream holds only events that this consumer has not settled.
func leavesWhenAcknowledged(stream *jetstream.StreamInfo, consumer jetstream.ConsumerConfig) bool {
	switch stream.Config.Retention {
	case jetstream.LimitsPolicy:
		return false
	case jetstream.InterestPolicy:
		if stream.State.Consumers > 1 {
			return false
		}
	}
	taken := filters(consumer)
	if len(taken) == 0 {
		return true
	}
	if opaque(stream.Config) {
		return false
	}
	for _, subject := range stream.Config.Subjects {
		if !coveredByAny(taken, subject) {
			return false
		}
	}
	return true
}

func coveredByAny(filters []string, subject string) bool {
	for _, filter := range filters {
		if event.Covers(filter, subject) {
			return true
		}
	}
	return false
}
