package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/internal/devstack"
)

// A backlog holds messages far larger than events should be. The worker must send its good events and stay
// below mostMemory.
const (
	mostMemory = 96 << 20 // bytes
	slackTakes = 20 * time.Millisecond
)

// backlog describes a stream full of large messages.
type backlog struct {
	name   string
	events int
	sent   int // expected posts
	event  func(i int) *nats.Msg
}

func backlogs() []backlog {
	largest, long := strings.Repeat("x", 900_000), strings.Repeat("h", 60_000)
	whole := strings.Repeat("x", 65_000)
	return []backlog{
		{"payloads of 900 kB, each tenth event good", 660, 60, func(i int) *nats.Msg {
			if i%11 == 10 {
				return message("good", fmt.Sprintf("good %d", i))
			}
			return message("large", largest)
		}},
		{"headers of 60 kB, all good", 4000, 4000, func(i int) *nats.Msg {
			m := message("good", fmt.Sprintf("good %d", i))
			m.Header.Set("X-Long", long)
			return m
		}},
		{"payloads of 65 kB, all good", 2000, 2000, func(int) *nats.Msg { return message("good", whole) }},
	}
}

func message(category, payload string) *nats.Msg {
	m := nats.NewMsg("notify." + category)
	m.Data = []byte(payload)
	return m
}

// measureBacklogs drains each backlog with one worker and prints its peak memory. It fails if the worker
// reaches mostMemory.
func measureBacklogs(ctx context.Context) (err error) {
	b := &bench{}
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := b.setUp(ctx); err != nil {
		return err
	}
	b.Slack.Respond(devstack.Always(devstack.Response{Delay: slackTakes}))
	for i, l := range backlogs() {
		result, err := b.drainBacklog(ctx, i, l)
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		fmt.Printf("%-60s %5d events, %4d posts   %5.1f s   peak memory %5.1f MiB (under %d MiB is asked)\n",
			l.name, l.events, l.sent, float64(l.events)/result.perSecond, mebibytes(result.peak), mostMemory>>20)
		if result.peak >= mostMemory {
			return fmt.Errorf("%s: %.1f MiB", l.name, mebibytes(result.peak))
		}
	}
	return nil
}

func (b *bench) drainBacklog(ctx context.Context, i int, l backlog) (drained, error) {
	if err := b.create(ctx, "NOTIFY", "notifier", "notify"); err != nil {
		return drained{}, err
	}
	for n := range l.events {
		if _, err := b.JS.PublishMsg(ctx, l.event(n)); err != nil {
			return drained{}, err
		}
	}
	log, err := os.Create(filepath.Join(b.Folder, fmt.Sprintf("backlog-%d.log", i)))
	if err != nil {
		return drained{}, err
	}
	defer func() { _ = log.Close() }()
	b.events = l.events
	before := b.Slack.Accepted()
	command := b.serve(fmt.Sprintf("backlog-%d", i), log, "LIMIT_GLOBAL=100000/30m", "LIMIT_CATEGORY=100000/30m")
	result, err := b.drain(ctx, command, "NOTIFY", "notifier")
	if got := b.Slack.Accepted() - before; err == nil && got != l.sent {
		err = fmt.Errorf("%d messages sent, expected %d", got, l.sent)
	}
	return result, err
}
