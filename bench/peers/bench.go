package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"notifier/bench/internal/rig"
	"notifier/internal/ratelimit"
)

const (
	stream, consumer, subject = "NOTIFY", "notifier", "notify"
	categories                = 20
	textBytes                 = 100
	// peerInFlight bounds what NATS gives out to a peer before it is acknowledged. notifier's is what it sets by
	// itself.
	peerInFlight = 2048
	slackLimit   = "12/10s" // for each channel: about one a second, with a burst
)

// bench is what one run has set up.
type bench struct {
	rig.Servers
	redis                     *redis.Client
	handmade, bento, notifier string // programs
	events                    int
	logs                      string // folder for the logs of peers; empty: the scratch folder
	run                       run
	logged                    int // logs so far
}

func (b *bench) setUp(ctx context.Context) error {
	if err := b.Start("peers"); err != nil {
		return err
	}
	options, err := redis.ParseURL(b.RedisURL)
	if err != nil {
		return err
	}
	b.redis = redis.NewClient(options)
	b.handmade, b.bento = filepath.Join(b.Folder, "handmade"), filepath.Join(b.Folder, "bento")
	if b.notifier, err = b.BuildWorker(ctx, top); err != nil {
		return err
	}
	return errors.Join(rig.Build(ctx, ".", b.handmade, "./handmade"), rig.Build(ctx, ".", b.bento, "./bento"))
}

// fresh gives a peer an empty Redis, an empty stream and a Slack without a past.
func (b *bench) fresh(ctx context.Context, p peer) error {
	b.run++
	if err := b.redis.FlushAll(ctx).Err(); err != nil {
		return err
	}
	limit, err := ratelimit.ParseLimit(slackLimit)
	if err != nil {
		return err
	}
	b.Slack.SetLimit(limit, 0)
	config := rig.Consumer(consumer)
	if !p.ours {
		config.MaxAckPending = peerInFlight
	}
	if p.push {
		config.DeliverSubject, config.DeliverGroup = "deliver."+consumer, consumer
	}
	return b.Create(ctx, stream, subject, config)
}

// publish puts events with the numbers from first on into the stream; category gives each its category.
func (b *bench) publish(ctx context.Context, first, count int, category func(i int) int) error {
	for i := first; i < first+count; i++ {
		if _, err := b.JS.PublishAsync(
			fmt.Sprintf("%s.category-%d", subject, category(i)),
			b.run.payload(i),
			jetstream.WithStallWait(time.Minute),
		); err != nil {
			return err
		}
	}
	return b.Published(ctx, time.Minute)
}

// payload is the event with a number. Its text begins with its id, so that Slack's inbox shows which it is.
func (r run) payload(i int) []byte {
	text := r.eventID(i) + " disk full on db-1: "
	return fmt.Appendf(
		nil,
		`{"id":"%s","text":"%s"}`,
		r.eventID(i),
		text+strings.Repeat("x", textBytes-len(text)),
	)
}

// left is what NATS has for the consumer: events to be delivered, and events that are not acknowledged.
func (b *bench) left(ctx context.Context, p peer) (info *jetstream.ConsumerInfo, err error) {
	if p.push {
		c, err := b.JS.PushConsumer(ctx, stream, consumer)
		if err != nil {
			return nil, err
		}
		return c.CachedInfo(), nil
	}
	c, err := b.JS.Consumer(ctx, stream, consumer)
	if err != nil {
		return nil, err
	}
	return c.CachedInfo(), nil
}

// until waits until what is left for the consumer meets a condition.
func (b *bench) until(
	ctx context.Context,
	p peer,
	what string,
	most time.Duration,
	met func(*jetstream.ConsumerInfo) bool,
) error {
	const pollEvery = 5 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		info, err := b.left(context.WithoutCancel(ctx), p) // so that the error below says what was left
		switch {
		case err != nil:
			return err
		case met(info):
			return nil
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			return fmt.Errorf(
				"not %s in time: %d events to be delivered, %d not acknowledged",
				what,
				info.NumPending,
				info.NumAckPending,
			)
		}
	}
}

// settled waits until every event is acknowledged.
func (b *bench) settled(ctx context.Context, p peer) error {
	return b.until(
		ctx,
		p,
		"settled",
		2*time.Minute,
		func(info *jetstream.ConsumerInfo) bool { return info.NumPending == 0 && info.NumAckPending == 0 },
	)
}

// refused is how many posts Slack has refused so far.
func (b *bench) refused() int {
	sum := 0
	for i := range categories {
		sum += b.Slack.Limited(channel(i))
	}
	return sum
}

// inbox is what Slack has accepted after its first messages.
func (b *bench) inbox(after int) []message {
	var all []message
	for _, m := range b.Slack.Messages() {
		if m.N > after {
			all = append(all, message{id: idIn(m.Text), at: m.Time})
		}
	}
	return all
}
