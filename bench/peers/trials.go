package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A storm runs under notifier's default limits. Its categories share channels, so each channel gets more
// messages than Slack accepts. In the bursts each category has its own channel and stays below Slack's limit,
// so the limiter alone decides when messages arrive.
var (
	stormLimits = limits{global: 100, category: 10, window: 30 * time.Minute, channels: 5}
	burstLimits = limits{global: 20, category: 3, window: 5 * time.Second, channels: categories}
)

const (
	killAfter = 30 // posts
	// maximum difference in the time that messages take from the decision to Slack
	onItsWay = 500 * time.Millisecond
)

// timed holds the measurements of one storm.
type timed struct {
	perSecond    float64
	cpu, workers time.Duration // of all processes including NATS and Redis; of the peer alone
	memory       int64         // bytes
}

type result struct {
	peer                      peer
	storms                    []timed
	messages, refused, silent int // in the first storm
	above                     int // in the bursts
	lost, aboveKilled, twice  int // after the kill
}

// inTurn returns the category of an event in a storm.
func inTurn(i int) int { return i % categories }

// storm times a storm until at most the admitted events are left. If whole is set, it then waits until all
// events are settled, and counts the messages, Slack's refusals and the silent events.
func (b *bench) storm(ctx context.Context, r *result, whole bool) (err error) {
	if err := errors.Join(b.fresh(ctx, r.peer), b.publish(ctx, 0, b.events, inTurn)); err != nil {
		return err
	}
	accepted, refused := b.Slack.Accepted(), b.refused()
	nats, redis := b.Used()
	g, err := b.start(r.peer, stormLimits)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.end(err == nil && whole)) }()
	delivering := func(info *jetstream.ConsumerInfo) bool { return info.Delivered.Stream > 0 }
	if err := b.until(ctx, r.peer, "started", 20*time.Second, delivering); err != nil {
		return err
	}
	started := time.Now()
	// Up to a full window of admitted events may still wait for Slack's own limit. That wait is not timed.
	drained := func(info *jetstream.ConsumerInfo) bool {
		return info.NumPending == 0 && info.NumAckPending <= stormLimits.global
	}
	if err := b.until(ctx, r.peer, "drained", time.Minute, drained); err != nil {
		return err
	}
	t := timed{perSecond: float64(b.events-stormLimits.global) / time.Since(started).Seconds(), workers: g.cpu()}
	natsAfter, redisAfter := b.Used()
	t.cpu = t.workers + natsAfter - nats + redisAfter - redis
	if whole {
		if err := b.settled(ctx, r.peer); err != nil {
			return err
		}
	}
	t.memory = g.memory()
	r.storms = append(r.storms, t)
	fmt.Fprintf(
		os.Stderr,
		"%-32s %7.0f events/s, %5.1f µs/event, %4.0f MiB\n",
		r.peer.name,
		t.perSecond,
		t.each(t.cpu, b.events),
		mebibytes(t.memory),
	)
	if !whole {
		return nil
	}
	inbox := b.inbox(accepted)
	lines, err := linesIn(g.logs)
	r.messages, r.refused, r.silent = len(inbox), b.refused()-refused, silent(b.run, b.events, inbox, lines)
	return err
}

func (g *group) end(gracefully bool) error {
	if gracefully {
		return g.stop()
	}
	return g.kill()
}

// burstAt lists the start of each burst, counted from the moment when the first few events are settled. If a
// peer has fixed windows, they begin with those events: one burst comes shortly before the first window
// ends, the next shortly after.
var burstAt = []time.Duration{
	4300 * time.Millisecond,
	5500 * time.Millisecond,
	7 * time.Second,
	9 * time.Second,
	11500 * time.Millisecond,
}

const (
	firstFew  = 5
	burstSize = 200
	// The first events of a burst fall into four categories and exceed the category limit. The others are
	// spread over all categories and exceed the global limit.
	busy = 40
)

// inBursts returns the category of an event in the bursts.
func inBursts(i int) int {
	if i -= firstFew; i >= 0 && i%burstSize < busy {
		return i % 4
	}
	return inTurn(i + firstFew)
}

// bursts counts messages above the limits, while the windows roll.
func (b *bench) bursts(ctx context.Context, r *result) (err error) {
	if err := errors.Join(b.fresh(ctx, r.peer), b.publish(ctx, 0, firstFew, inBursts)); err != nil {
		return err
	}
	accepted := b.Slack.Accepted()
	g, err := b.start(r.peer, burstLimits)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.end(err == nil)) }()
	if err := b.settled(ctx, r.peer); err != nil {
		return err
	}
	begin := time.Now()
	for i, at := range burstAt {
		select {
		case <-time.After(time.Until(begin.Add(at))):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := b.publish(ctx, firstFew+i*burstSize, burstSize, inBursts); err != nil {
			return err
		}
	}
	if err := b.settled(ctx, r.peer); err != nil {
		return err
	}
	inbox := b.inbox(accepted)
	first, _ := once(inbox)
	r.above = above(first, burstLimits, onItsWay, inBursts)
	fmt.Fprintf(os.Stderr, "%-32s bursts: %d messages, %d above the limits\n", r.peer.name, len(inbox), r.above)
	return nil
}

// kill kills a process of the peer after the first posts, restarts it and waits until all events are settled.
func (b *bench) kill(ctx context.Context, r *result) (err error) {
	if err := errors.Join(b.fresh(ctx, r.peer), b.publish(ctx, 0, b.events, inTurn)); err != nil {
		return err
	}
	before := b.Slack.Accepted()
	g, err := b.start(r.peer, stormLimits)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.end(err == nil)) }()
	waiting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := b.Slack.Wait(
		waiting,
		func(accepted int) bool { return accepted-before >= killAfter },
	); err != nil {
		return fmt.Errorf("%d posts: %w", b.Slack.Accepted()-before, err)
	}
	if err := g.killAndRestart(0); err != nil {
		return err
	}
	if err := b.settled(ctx, r.peer); err != nil {
		return err
	}
	inbox := b.inbox(before)
	lines, err := linesIn(g.logs)
	if err != nil {
		return err
	}
	var first []message
	first, r.twice = once(inbox)
	r.aboveKilled = above(first, stormLimits, onItsWay, inTurn)
	r.lost = lost(stormLimits.global, inbox, silent(b.run, b.events, inbox, lines))
	fmt.Fprintf(
		os.Stderr,
		"%-32s kill: %d messages, %d lost, %d above the limits, %d twice\n",
		r.peer.name,
		len(inbox),
		r.lost,
		r.aboveKilled,
		r.twice,
	)
	return nil
}
