package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The limits of the storms are notifier's defaults. Their categories share channels, so that a storm brings
// more into each than Slack takes. In the bursts each category has a channel of its own, and Slack refuses
// nobody: what arrives when is then the limiter's doing alone.
var (
	stormLimits = limits{global: 100, category: 10, window: 30 * time.Minute, channels: 5}
	burstLimits = limits{global: 20, category: 3, window: 5 * time.Second, channels: categories}
)

const (
	killAfter = 30 // posts
	// most that one message takes longer than another from its verdict to Slack
	onItsWay = 500 * time.Millisecond
)

// timed is what one storm has cost.
type timed struct {
	perSecond    float64
	cpu, workers time.Duration // of all processes, and of the peer's alone
	memory       int64
}

// result is what was found about a peer.
type result struct {
	peer                      peer
	storms                    []timed
	messages, refused, silent int // in the first storm
	above                     int // in the bursts
	lost, aboveKilled, twice  int // after the kill
}

// inTurn is the category of an event of a storm.
func inTurn(i int) int { return i % categories }

// storm times how a peer gets through a storm. A whole one goes on until everything is posted, and is
// accounted for.
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
	// Those that may wait for Slack don't count: how long they wait is Slack's doing.
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

// end ends the processes gracefully or at once.
func (g *group) end(gracefully bool) error {
	if gracefully {
		return g.stop()
	}
	return g.kill()
}

// burstAt is when the bursts begin, after the first few events were posted. Windows that are fixed begin with
// those: a burst comes just before such a window ends, and one just after.
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
	// of a burst are in four categories, which meet their own limit; the others are spread over all categories,
	// and meet the global one
	busy = 40
)

// inBursts is the category of an event of the bursts.
func inBursts(i int) int {
	if i -= firstFew; i >= 0 && i%burstSize < busy {
		return i % 4
	}
	return inTurn(i + firstFew)
}

// bursts counts what is above limits whose windows roll meanwhile.
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

// kill kills a process of the peer once the first posts are in Slack, starts it again and waits for the end.
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
