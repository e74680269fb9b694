package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/consume"
	"notifier/internal/consume/availability"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/status/digest"
	"notifier/internal/status/stats"
	"notifier/internal/steering"
	"notifier/internal/term"
)

// newRecorder makes what counts for the status and, if it is on, for the digest. At each flush it asks the
// worker, which is there by then, what it waits for.
func (a *app) newRecorder() (*stats.Recorder, error) {
	a.own.shown = a.settings.StatusConfig().Shown()
	recording := stats.Config{
		Redis: a.settings.Store.Redis, Namespace: a.settings.Store.Namespace, Replica: a.replica, Log: a.log,
		Heartbeat: a.heartbeat, Flushed: a.flushed,
	}
	if a.settings.Digest > 0 {
		recording.Limit = func(reason, category string) string {
			if reason == outcome.Muted {
				return "" // no limit has refused it
			}
			return limitFor(a.store.Limiter.Rules(), reason, category).String()
		}
	}
	return stats.NewRecorder(recording)
}

// newHealer makes what puts back what Redis has forgotten; nil where the settings have a client without a
// guard.
func (a *app) newHealer() (*ratelimit.Healer, error) {
	if a.settings.Store.Guard == nil {
		return nil, nil
	}
	steering := func(ctx context.Context, connection *redis.Conn) error {
		return a.steering.PutBack(ctx, connection)
	}
	return ratelimit.NewHealer(a.store.Limiter, a.settings.Store.Guard, ratelimit.Healing{
		Replica: a.replica, Log: a.log,
		PutBack: []func(context.Context, *redis.Conn) error{steering},
	})
}

// flushed takes what each flush of the counts brings back.
func (a *app) flushed(f stats.Flushed) {
	ctx, cancel := context.WithTimeout(context.Background(), followTimeout)
	defer cancel()
	a.steering.Follow(ctx, f)
}

// followTimeout is how long a replica asks for what operators have changed, before it tries again with the
// next flush.
const followTimeout = 2 * time.Second

// limitFor is the limit that refuses events of a category for a reason.
func limitFor(limits ratelimit.Rules, reason, category string) ratelimit.Limit {
	switch reason {
	case outcome.Global:
		return limits.Global
	case outcome.Group:
		return limits.GroupLimit(ratelimit.GroupOf(category))
	default:
		return limits.LimitFor(category)
	}
}

// replicaName is the host's name, which in a container is the container's, and a suffix that no other run
// has.
func replicaName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "notifier"
	}
	return host + "-" + rand.Text()[:4]
}

// work is the part of a heartbeat about what a replica holds and waits for.
func work(worker *consume.Worker) stats.Heartbeat {
	beat := stats.Heartbeat{Held: worker.Holds(), Dead: worker.DeadEvents()}
	for _, wait := range worker.Waits() {
		shown := stats.Wait{For: wait.For, Channel: wait.Channel, Reason: wait.Reason, Since: wait.Since.UTC()}
		if wait.For == availability.Redis.String() {
			shown.Kind = stats.TroubleKind(wait.Reason)
		}
		beat.Waits = append(beat.Waits, shown)
	}
	for _, f := range worker.Failing() {
		beat.Failing = append(beat.Failing, stats.Failing(f))
	}
	for _, u := range worker.Unposted() {
		if u.Events > 0 {
			beat.Unposted = append(beat.Unposted, stats.Unposted{
				Channel: u.Channel, Events: u.Events, Parked: u.Parked, Oldest: u.Oldest.UTC(), Why: u.Why,
			})
		}
	}
	return beat
}

// waitLines describes what a replica waits for, and how many events are held in the meantime.
func waitLines(beat stats.Heartbeat) []string {
	var lines []string
	for _, wait := range beat.Waits {
		lines = append(lines, fmt.Sprintf("waiting for %s for %s, %s held: %s",
			wait.For, term.Duration(time.Since(wait.Since)), term.Count(beat.HeldFor(wait), "event"), wait.Text()))
	}
	return lines
}

// newDigest makes the digest; nil where it is off.
func (a *app) newDigest() (*digest.Digest, error) {
	s := a.settings
	if s.Digest == 0 {
		return nil, nil
	}
	reader, err := stats.NewReader(s.Store.Redis, s.Store.Namespace)
	if err != nil {
		return nil, err
	}
	return digest.New(digest.Config{
		Redis: s.Store.Redis, Namespace: s.Store.Namespace, Interval: s.Digest, Channel: s.DigestChannel,
		Publisher: a.poster, Permits: a.store.Limiter, Timeout: s.Slack.Timeout, Log: a.log,
		NextFree: a.store.Status.NextFree, Sources: reader.Sources,
		InForce: func() []steering.Order { orders, _ := a.steering.InForce(); return orders },
	})
}

// startBackground starts what runs next to the worker. The digest ends with ctx. stop is called when the
// worker has settled its last event: it ends the recorder, which writes its last counts, and waits for both.
func (a *app) startBackground(ctx context.Context) (stop func()) {
	recording, endRecording := context.WithCancel(context.WithoutCancel(ctx))
	digesting, endDigesting := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { a.recorder.Run(recording) })
	if a.outcomes.recorder != nil {
		running.Go(func() { a.outcomes.recorder.Run(recording) })
	}
	if a.streams != nil {
		// Nobody waits for its end: while nats.go tries a server that does not answer, it does not return.
		go a.streams.run(digesting)
	}
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
