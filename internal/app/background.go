package app

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/internal/status/digest"
	"notifier/internal/status/report"
)

// newReporter returns the part that reports this worker's counts and snapshots.
func (a *app) newReporter() (*report.Reporter, error) {
	return report.New(report.Config{
		Redis: a.settings.Store.Redis, Namespace: a.settings.Store.Namespace, Replica: a.replica.id,
		Snapshot: a.heartbeat, Digest: a.settings.Digest, Log: a.log,
	})
}

// newHealer returns the part that restores data which Redis lost, or nil if the Redis client has no guard.
func (a *app) newHealer() (*ratelimit.Healer, error) {
	if a.settings.Store.Guard == nil {
		return nil, nil
	}
	return ratelimit.NewHealer(a.store.Limiter, a.settings.Store.Guard, ratelimit.Healing{
		Replica: a.replica.id, Log: a.log,
		Restore: func(ctx context.Context, connection *redis.Conn) error { // a.steering is set later
			return a.steering.Restore(ctx, connection)
		},
	})
}

// newDigest returns the digest, or nil if it is off.
func (a *app) newDigest() (*digest.Digest, error) {
	s := a.settings
	if s.Digest == 0 {
		return nil, nil
	}
	return digest.New(digest.Config{
		Redis: s.Store.Redis, Namespace: s.Store.Namespace, Replica: a.replica.id, Interval: s.Digest,
		Channel: s.DigestChannel, Publisher: a.poster, Permits: a.store.Limiter, Timeout: s.Slack.Timeout, Log: a.log,
	})
}

// startBackground starts the jobs beside the worker. The digest ends with ctx. The caller calls stop after the
// worker has settled its last event: stop ends the reporter, which writes its last counts, and waits for all.
func (a *app) startBackground(ctx context.Context) (stop func()) {
	recording, endRecording := context.WithCancel(context.WithoutCancel(ctx))
	digesting, endDigesting := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { a.reporter.Run(recording) })
	running.Go(func() { a.steering.Run(recording) })
	if a.outcomes.recorder != nil {
		running.Go(func() { a.outcomes.recorder.Run(recording) })
	}
	// While nats.go tries a server that does not reply, a lookup does not return, so stop does not wait for it.
	go a.streams.run(digesting)
	if a.healer != nil {
		running.Go(func() { a.healer.Run(recording) })
	}
	if a.digest != nil {
		running.Go(func() { a.digest.Run(digesting) })
	}
	return func() {
		endRecording()
		endDigesting()
		running.Wait()
		a.steering.Stop()
	}
}
