package consume

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"notifier/internal/consume/availability"
	"notifier/internal/snapshot"
	"notifier/internal/term"
)

func (w *Worker) stamp() { w.progress.Store(time.Now().UnixNano()) }

// stalledAfter bounds the silence of the loop, which otherwise gives a sign of life every few seconds.
const stalledAfter = 30 * time.Second

// Live returns nil while the loop makes progress. Waiting for Redis, Slack, NATS or the log is progress: a
// restart would help none of them.
func (w *Worker) Live() error {
	if silence := time.Since(time.Unix(0, w.progress.Load())); silence > stalledAfter {
		return fmt.Errorf("the loop has made no progress for %s", silence.Round(time.Second))
	}
	return nil
}

// Ready lists the reasons why this worker cannot do its job at the moment. A Slack that takes no posts is no
// reason, nor is a dead-letter stream that stores no letters, unless their events fill the worker. Refused
// credentials are one, and so are replies that are not Slack's. Ready pings Redis, and returns within a
// second.
func (w *Worker) Ready(ctx context.Context) []string {
	var reasons []string
	for _, wait := range w.tracker.Waits(
		availability.NATS, availability.Consumer, availability.Redis,
		availability.Credentials, availability.Log,
	) {
		reasons = append(reasons, reasonLine(wait.For, wait.Reason))
	}
	for _, wait := range w.tracker.Waits(availability.DeadLetters) {
		if w.feed.Full() {
			reason := fmt.Sprintf("%s; no room is left beside %s",
				wait.Reason, term.Count(w.letters.Size(), "dead event"))
			reasons = append(reasons, reasonLine(wait.For, reason))
		}
	}
	reasons = append(reasons, w.noRoom()...)
	if !w.running.Load() || (!w.feed.IsBound() && len(reasons) == 0) {
		reasons = append(reasons, "worker: starting or stopping")
	}
	return append(reasons, w.unreachable(ctx)...)
}

// noRoom returns a reason if events for slow channels fill the worker, so that it reads no more. It names the
// channel with the most.
func (w *Worker) noRoom() (reasons []string) {
	if !w.feed.Full() {
		return nil
	}
	delayed, largest := 0, snapshot.Channel{}
	for _, c := range w.sender.Channels() {
		if c.Why == "" {
			continue
		}
		delayed += c.Queued
		if c.Queued > largest.Queued {
			largest = c
		}
	}
	if delayed < w.feed.Held()/2 || delayed == 0 {
		return nil
	}
	return []string{fmt.Sprintf("worker: no room is left beside %s for slow channels, most of them for %s",
		term.Count(delayed, "event"), largest.Name)}
}

const (
	readyTimeout = 900 * time.Millisecond

	// A ping of Redis goes on after readyTimeout, because a new connection takes eight round trips, with TLS and
	// to another continent two seconds. The next ping finds it open. Callers share a ping that runs, else they
	// would need several connections.
	pingTimeout = 5 * time.Second
)

// unreachable pings NATS and Redis concurrently, and skips servers that are known to be unavailable.
func (w *Worker) unreachable(ctx context.Context) (reasons []string) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var natsErr, redisErr error
	var asking sync.WaitGroup
	if !w.tracker.Unavailable(availability.NATS) {
		asking.Go(func() { natsErr = w.settings.JetStream.connection().Unreachable(ctx) })
	}
	if !w.tracker.Unavailable(availability.Redis) {
		asking.Go(func() {
			if redisErr = w.redisReady(ctx); redisErr == nil {
				w.decider.CheckStore()
			}
		})
	}
	asking.Wait()
	if natsErr != nil {
		reasons = append(reasons, reasonLine(availability.NATS.String(), natsErr.Error()))
	}
	if redisErr != nil {
		reasons = append(reasons, reasonLine(availability.Redis.String(), redisErr.Error()))
	}
	return reasons
}

// redisReady waits for a ping until ctx is done.
func (w *Worker) redisReady(ctx context.Context) error {
	replied := make(chan error, 1)
	go func() {
		_, err := w.redis.Get(context.WithoutCancel(ctx))
		replied <- err
	}()
	select {
	case err := <-replied:
		return err
	case <-ctx.Done():
		return fmt.Errorf("no reply within %s", readyTimeout)
	}
}

// reasonLine begins a reason with the dependency's word, once.
func reasonLine(what, reason string) string {
	return what + ": " + strings.TrimPrefix(reason, what+": ")
}

// heldFor counts the events that wait for a dependency.
func (w *Worker) heldFor(d availability.Dependency) int {
	if d == availability.DeadLetters {
		return w.letters.Size()
	}
	return w.feed.Held()
}
