package feed

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/event"
	"notifier/internal/streams"
)

// StuckLook is one look at the events that stay in a stream although its consumer will never deliver them.
// They were delivered max_deliver times and not acknowledged, or the consumer has passed them over: its
// filter was changed for a time, or it is ahead of its stream, such as after the stream was restored. The
// server does not count them, so LookForStuck compares the stream with its consumer.
type StuckLook struct {
	Unread    uint64 // events that the consumer has not delivered yet
	Stuck     uint64 // too high while the server is busy; see StuckLooks
	Known     bool   // false if neither the stream nor the consumer shows it
	Stream    jetstream.StreamConfig
	Consumer  *jetstream.ConsumerInfo
	at        time.Time
	first     uint64 // sequence of the oldest event in the stream
	delivered uint64 // last sequence that the consumer delivered or passed over
}

// Under load the stream still holds events for some milliseconds that the consumer counts as acknowledged,
// with replicas in each look. So a look that finds something is repeated, less the events that were delivered
// since the look before, and the least counts: a lower bound in a storm, exact once it is quiet.
const (
	stuckLooks = 5
	stuckPause = 100 * time.Millisecond
)

// LookForStuck compares a stream with its consumer. If it finds something it takes about half a second, and
// longer if NATS is distant. Without replies it ends after streams.RequestTimeout.
func LookForStuck(ctx context.Context, js jetstream.JetStream, stream, consumer string) (StuckLook, error) {
	lookUp := func(ctx context.Context) (StuckLook, error) { return lookOnce(ctx, js, stream, consumer) }
	least, err := streams.Request(ctx, lookUp)
	last := least
	for n := 1; err == nil && least.Stuck > 0 && n < stuckLooks; n++ {
		select {
		case <-time.After(stuckPause):
		case <-ctx.Done():
			return StuckLook{}, ctx.Err()
		}
		var look StuckLook
		look, err = streams.Request(ctx, lookUp)
		if err == nil {
			flow := look.Consumer.Delivered.Consumer - last.Consumer.Delivered.Consumer
			look.Stuck -= min(look.Stuck, flow)
			last = look
		}
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
		Unread: consumer.NumPending, Stream: after.Config, Consumer: consumer,
		at: time.Now(), first: after.State.FirstSeq, delivered: consumer.Delivered.Stream,
	}
	if !leavesWhenAcknowledged(after, consumer.Config) {
		look.Stuck, look.Known = StuckAtLeast(consumer), consumer.Config.MaxDeliver != 1
		return look
	}
	// An event that was published meanwhile may not be pending yet.
	published := int64(after.State.LastSeq) - int64(before.LastSeq)
	waiting := int64(consumer.NumPending) + int64(consumer.NumAckPending)
	look.Stuck, look.Known = uint64(max(0, int64(after.State.Msgs)-published-waiting)), true
	return look
}

// stuckFor is the time for which an event has to be left over until it counts as stuck. A server in an
// election or under load may be that late with its numbers.
const stuckFor = time.Minute

// StuckLooks are the looks of the last minute.
type StuckLooks struct{ looks []StuckLook }

// Add returns how many events were stuck in this look and in all looks of the last minute: a lower bound. The
// number is unknown until there are looks over a minute, unless one of them found nothing. If the oldest
// event of the stream was delivered after the first of these looks, nothing was stuck then.
func (l *StuckLooks) Add(look StuckLook) (n uint64, known bool) {
	if !look.Known {
		l.looks = nil
		return 0, false
	}
	l.looks = append(l.looks, look)
	for len(l.looks) > 1 && look.at.Sub(l.looks[1].at) >= stuckFor {
		l.looks = l.looks[1:]
	}
	earliest := l.looks[0]
	if look.first > earliest.delivered {
		return 0, true
	}
	n = slices.MinFunc(l.looks, func(a, b StuckLook) int { return cmp.Compare(a.Stuck, b.Stuck) }).Stuck
	if n > 0 && look.at.Sub(earliest.at) < stuckFor {
		return 0, false
	}
	return n, true
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

// coveredByAny reports whether each subject that a subscription takes has a filter that takes it.
func coveredByAny(filters []string, subject string) bool {
	covers := func(filter string) bool { return event.Covers(filter, subject) }
	if slices.ContainsFunc(filters, covers) {
		return true
	}
	// Several filters can share what follows a prefix: a.* and a.*.> take all of a.>.
	prefix, endless := strings.CutSuffix(subject, ">")
	isLonger := func(filter string) bool { return strings.Count(filter, ".") >= strings.Count(subject, ".") }
	return endless && slices.ContainsFunc(filters, isLonger) &&
		coveredByAny(filters, prefix+"*") && coveredByAny(filters, prefix+"*.>")
}
