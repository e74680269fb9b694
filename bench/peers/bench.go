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
	// peerInFlight is the MaxAckPending of each peer's consumer. notifier keeps its own value.
	peerInFlight = 2048
	slackLimit   = "12/10s" // per channel: about one a second, with a burst
)

// bench holds the servers and the programs that all trials share.
type bench struct {
	rig.Servers
	redis                     *redis.Client
	handmade, bento, notifier string // programs
	events                    int
	logs                      string // folder for the peers' logs; if empty, the scratch folder
	run                       run
	logged                    int // number of log files so far
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

// fresh begins a new run with an empty Redis, an empty stream and reset limits in Slack. Slack keeps the
// messages of earlier runs.
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

// publish publishes count events, numbered from first. category maps the number of an event to its category.
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

// payload returns the event with a number. Its text begins with the id, so a message in Slack has it too.
func (r run) payload(i int) []byte {
	text := r.eventID(i) + " disk full on db-1: "
	return fmt.Appendf(
		nil,
		`{"id":"%s","text":"%s"}`,
		r.eventID(i),
		text+strings.Repeat("x", textBytes-len(text)),
	)
}

// left returns the state of the consumer, including its counts of pending and unacknowledged events.
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

// until polls the consumer until its state meets a condition.
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
		info, err := b.left(context.WithoutCancel(ctx), p) // the error below needs the counts
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

// refused counts the posts that Slack's limit refused since Slack started.
func (b *bench) refused() int {
	sum := 0
	for i := range categories {
		sum += b.Slack.Limited(channel(i))
	}
	return sum
}

// inbox returns the messages that follow the message with number after.
func (b *bench) inbox(after int) []message {
	var all []message
	for _, m := range b.Slack.Messages() {
		if m.N > after {
			all = append(all, message{id: idIn(m.Text), at: m.Time})
		}
	}
	return all
}
