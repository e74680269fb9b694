package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"notifier/internal/consume"
	"notifier/internal/digest"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
	"notifier/internal/stats"
)

// newRecorder makes what counts for the status and, if it is on, for the digest. The worker is asked what it waits for
// at each flush.
func newRecorder(settings config, worker func() *consume.Worker, log *zap.Logger) (*stats.Recorder, error) {
	started := time.Now().UTC()
	recording := stats.Config{
		Redis: settings.redis, Namespace: settings.namespace, Replica: replicaName(), Log: log,
		Heartbeat: func() stats.Heartbeat { return heartbeat(worker(), started) },
	}
	if settings.digest > 0 {
		recording.Limit = func(reason, category string) string {
			if reason == outcome.Global {
				return settings.rules.Global.String()
			}
			return settings.rules.For(category).String()
		}
	}
	return stats.NewRecorder(recording)
}

// replicaName is the host's name, which in a container is the container's, and something that no other run has.
func replicaName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "notifier"
	}
	return host + "-" + rand.Text()[:4]
}

// heartbeat is what the status tells of this replica.
func heartbeat(worker *consume.Worker, started time.Time) stats.Heartbeat {
	beat := stats.Heartbeat{
		Started: started, Version: version(), Held: worker.Holds(), Refused: worker.RefusedChannels(),
		Ready: len(worker.Ready(context.Background())) == 0, // which answers within a second
	}
	for _, wait := range worker.Waits() {
		beat.Waits = append(beat.Waits, stats.Wait{For: wait.For, Reason: wait.Reason, Since: wait.Since.UTC()})
	}
	return beat
}

// waitLines tells what a worker waits for, and how many events it holds meanwhile.
func waitLines(worker *consume.Worker) []string {
	var lines []string
	for _, wait := range worker.Waits() {
		lines = append(lines, fmt.Sprintf("waiting for %s for %s, %s held: %s", wait.For, short(time.Since(wait.Since)),
			counted(worker.Holds(), "event"), wait.Reason))
	}
	return lines
}

// newDigest makes the digest; nil where it is off.
func newDigest(settings config, limiter *ratelimit.Limiter, pause *ratelimit.Pause, poster *slackout.Poster, log *zap.Logger) (*digest.Digest, error) {
	if settings.digest == 0 {
		return nil, nil
	}
	return digest.New(digest.Config{
		Redis: settings.redis, Namespace: settings.namespace, Interval: settings.digest, Channel: settings.digestChannel,
		Publisher: poster, Pause: pause, Timeout: settings.slack.Timeout, Log: log,
		NextFree: func(ctx context.Context) (time.Duration, error) {
			usages, err := limiter.Peek(ctx)
			var wait time.Duration
			for _, usage := range usages { // of the global tiers alone: all must have room
				wait = max(wait, usage.FreeIn)
			}
			return wait, err
		},
	})
}

// runBeside runs what works beside the worker. The digest ends with ctx. stop is called when the worker has settled its
// last event: it ends the recorder, which writes its last counts, and waits for both.
func runBeside(ctx context.Context, recorder *stats.Recorder, summary *digest.Digest) (stop func()) {
	recording, endRecording := context.WithCancel(context.WithoutCancel(ctx))
	telling, endTelling := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { recorder.Run(recording) })
	if summary != nil {
		running.Go(func() { summary.Run(telling) })
	}
	return func() {
		endRecording()
		endTelling()
		running.Wait()
	}
}
