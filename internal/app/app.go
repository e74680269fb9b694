// Package app is what "notifier serve" does: it builds one worker from the settings and everything around it,
// runs it until it is to stop, and takes it down in reverse.
//
// It knows which part needs which other part, and the order of starting and stopping. It does not know how
// any of them works, reads no environment (libraries read their own variables: OTEL_*, GOMEMLIMIT,
// AUTOMEMLIMIT), and writes to nothing but the logger it is given.
//
// Reading order: app.go (wire, start, run, stop), store.go (what Redis is asked through), background.go (what
// runs next to the worker), this.go and streams.go (what this replica knows by itself, and how full the
// streams are), outcomes.go (what became of events, for those who ask later), nats.go (the connection),
// memory.go (how much memory a worker may use), log.go (the logger).
package app

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"

	"notifier/internal/admin"
	"notifier/internal/consume"
	"notifier/internal/consume/result"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/settings"
	"notifier/internal/slackout"
	"notifier/internal/status/digest"
	"notifier/internal/status/stats"
	"notifier/internal/steering"
	"notifier/internal/telemetry"
)

const (
	// adminShutdown is how long requests to the admin server may go on once the worker has stopped.
	adminShutdown = time.Second
	// flushTimeout is how long a stopped worker waits until its last acknowledgements have left.
	flushTimeout = settings.NATSTimeout
)

// Run runs one worker until ctx ends, and then drains it for at most ShutdownTimeout. Each settled event is
// handed to observe, which may be nil. It takes over the Redis client of the settings and closes it.
//
// The error is nil after a clean end; else it names what could not be started, or why the worker could not go
// on.
func Run(ctx context.Context, s settings.Settings, log *zap.Logger, observe func(result.Result)) error {
	a := &app{settings: s, log: log, observe: observe, cleanups: cleanups{log: log}}
	defer a.stop()
	if err := a.wire(ctx); err != nil {
		return err
	}
	if err := a.start(ctx); err != nil {
		return err
	}
	return a.run(ctx)
}

// app is one worker and everything around it.
type app struct {
	settings settings.Settings
	log      *zap.Logger
	observe  func(result.Result)
	cleanups cleanups
	replica  string // its name

	store      Store
	steering   *steering.Follower
	poster     *slackout.Poster
	connection *link
	metrics    *telemetry.Metrics
	tracing    *telemetry.Tracing
	recorder   *stats.Recorder
	outcomes   *outcomes
	healer     *ratelimit.Healer // nil: the client has no guard
	digest     *digest.Digest    // nil: none
	worker     *consume.Worker
	streams    *streamUse // nil: there are none
	own        own
}

// wire builds all parts. Only two of them are active already: the connection to NATS, which reconnects by
// itself, and the exporter of spans.
func (a *app) wire(ctx context.Context) (err error) {
	a.replica, a.own.started = replicaName(), time.Now().UTC()
	a.cleanups.add("redis", func() {
		_ = a.settings.Store.Redis.Close() // an error means that it is closed already
	})
	if a.poster, err = slackout.New(a.settings.Slack); err != nil {
		return err
	}
	a.cleanups.add("slack", a.poster.Close)
	if a.store, err = OpenStore(a.settings.Store, a.settings.StatusConfig()); err != nil {
		return err
	}
	if a.healer, err = a.newHealer(); err != nil {
		return err
	}
	if a.connection, err = connectWorker(a.settings.NATS, a.log); err != nil {
		return err
	}
	a.cleanups.add("nats", a.connection.Close)
	a.steering = steering.NewFollower(a.store.Steering, a.store.Limiter, a.log)
	a.metrics = telemetry.New()
	if a.recorder, err = a.newRecorder(); err != nil {
		return err
	}
	if a.outcomes, err = a.newOutcomes(); err != nil {
		return err
	}
	if a.digest, err = a.newDigest(); err != nil {
		return err
	}
	if a.tracing, err = telemetry.StartTracing(ctx, a.log); err != nil {
		return fmt.Errorf("traces: %w", err)
	}
	a.cleanups.add("traces", a.tracing.Stop)
	if a.worker, err = consume.New(a.workerSettings()); err != nil {
		return err
	}
	if a.streams, err = newStreamUse(a.connection.Conn, a.settings.NATS.Stream); err != nil {
		return err
	}
	a.store.Status.This = a.this
	a.metrics.AddGauges(a.worker, a.store.Limiter)
	a.metrics.AddSteering(a.steering.Count)
	a.metrics.AddDifferent(a.store.Status.Different)
	a.metrics.AddOutcomesLeftOut(a.outcomes.recorder.LeftOut)
	a.metrics.AddStreams(a.streams.list)
	return nil
}

// workerSettings is how the worker is connected to everything else.
func (a *app) workerSettings() consume.Settings {
	s := a.settings
	return consume.Settings{
		JetStream: consume.JetStream{
			Connection: a.connection.Conn, Why: a.connection.why,
			Stream: s.NATS.Stream, Consumer: s.NATS.Consumer, Subject: s.NATS.Pattern.String(),
			DeadLetter: s.DeadLetter, DeadLetterBytes: s.DeadLetterBytes, Replicas: s.NATS.Replicas,
		},
		Rules: s.Events, MaxAge: s.MaxAge,
		BatchSize: s.BatchSize, MaxBytes: limitMemory(memlimit.FromCgroup, a.log),
		Concurrency: s.Concurrency, ShutdownTimeout: s.ShutdownTimeout, PostTimeout: s.Slack.Timeout,
		DroppedSubject: s.Dropped, Group: a.limitedGroup,
		Channels: s.Slack.Channels(), Pace: s.Store.Limits.Pace, LongestLater: s.Store.Limits.LongestWindow() / 2,
		Limiter: a.metrics.TimeLimiter(a.store.Limiter), Mutes: a.steering, Slack: a.metrics.TimePoster(a.poster),
		Log: a.log, Events: EventLog(a.log), Observe: a.settled,
	}
}

// limitedGroup names the group of a category where that group has a limit now, else nothing.
func (a *app) limitedGroup(category string) string {
	return limitedGroup(a.store.Limiter.Rules(), category)
}

func limitedGroup(limits ratelimit.Rules, category string) string {
	if len(limits.Group) == 0 && len(limits.GroupOverrides) == 0 {
		return ""
	}
	group := ratelimit.GroupOf(category)
	if len(limits.GroupLimit(group)) == 0 {
		return ""
	}
	return group
}

// settled passes settled events on to everything that counts or shows them.
func (a *app) settled(batch []*result.Result) {
	now := time.Now()
	sums := result.SumUp(batch)
	a.metrics.Observe(sums)
	for _, sum := range sums {
		a.recorder.Observe(sum.Outcome, sum.Reason, sum.Category, sum.Source, len(sum.Results), now)
		a.outcomes.settled(sum, now)
	}
	for _, s := range batch {
		a.tracing.Observe(s)
		if s.Outcome == outcome.Sent {
			a.own.sent(now)
		}
		if a.observe != nil {
			a.observe(*s)
		}
	}
}

// start starts the admin server and the background jobs.
func (a *app) start(ctx context.Context) error {
	if a.settings.AdminAddr != "" {
		s := a.settings
		config := admin.Config{Addr: s.AdminAddr, Hosts: s.AdminHosts, Token: s.AdminToken}
		server, err := admin.Start(config, a.probes())
		if err != nil {
			return fmt.Errorf("ADMIN_ADDR: %w", err)
		}
		a.cleanups.add("admin server", func() {
			ctx, cancel := context.WithTimeout(context.Background(), adminShutdown)
			defer cancel()
			_ = server.Shutdown(ctx) // the process ends either way
		})
		a.log.Info("admin server listens", zap.String("addr", server.Addr()))
	}
	a.cleanups.add("background jobs", a.startBackground(ctx))
	return nil
}

// probes is what the admin server asks.
func (a *app) probes() admin.Probes {
	return admin.Probes{
		Live: a.worker.Live, Ready: a.worker.Ready,
		Waits:   func() []string { return waitLines(work(a.worker)) },
		Metrics: a.metrics.Handler(), Status: a.status, Page: a.page, Events: a.outcomes.list,
	}
}

// run lets the worker work until ctx ends and it has drained, and sends off its last acknowledgements.
func (a *app) run(ctx context.Context) error {
	reserved := headroom()
	defer runtime.KeepAlive(reserved)
	err := a.worker.Run(ctx)
	if a.connection.IsConnected() { // else they could not arrive, and waiting would outlast SHUTDOWN_TIMEOUT
		if flushErr := a.connection.FlushTimeout(flushTimeout); flushErr != nil && err == nil {
			a.log.Warn("acknowledgements may not have arrived; their events will be redelivered", zap.Error(flushErr))
		}
	}
	return err
}

// stop takes down what was built, in reverse. The worker has drained by then: the background jobs write the
// last counts, then the admin server ends, which reported "not ready" all the while, then traces, NATS,
// Slack, and Redis at last.
func (a *app) stop() { a.cleanups.run() }
