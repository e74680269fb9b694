// Package app runs one worker for "notifier serve": it builds the parts from the settings, starts them in the
// order of their needs, and stops them in reverse.
//
// The package wires and knows how no part works. It reads no environment, although libraries read their own
// variables: OTEL_*, GOMEMLIMIT, AUTOMEMLIMIT. It writes only to its logger.
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
	"notifier/internal/status/report"
	"notifier/internal/steering"
	"notifier/internal/telemetry"
)

const (
	// adminShutdown bounds the end of requests to the admin server after the worker has stopped.
	adminShutdown = time.Second
	// flushTimeout bounds the wait of a stopped worker until its last acknowledgements have left.
	flushTimeout = settings.NATSTimeout
)

// Run runs one worker until ctx ends, and then drains it for at most ShutdownTimeout. Each settled event is
// handed to observe, which may be nil. It takes over the Redis client of the settings and closes it.
//
// The error is nil after a clean end. Else it names the part that did not start, or the fault that ended the
// worker.
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
	replica  *replica

	store      Store
	steering   *steering.Follower
	poster     *slackout.Poster
	connection *link
	metrics    *telemetry.Metrics
	tracing    *telemetry.Tracing
	reporter   *report.Reporter
	outcomes   *outcomes
	healer     *ratelimit.Healer // nil: the client has no guard
	digest     *digest.Digest    // nil: none
	worker     *consume.Worker
	streams    *streamLookup
}

// wire builds all parts. Only two of them are active already: the connection to NATS, which reconnects by
// itself, and the exporter of spans.
func (a *app) wire(ctx context.Context) (err error) {
	a.replica = newReplica(a.settings.Snapshot())
	a.cleanups.add("redis", func() {
		_ = a.settings.Store.Redis.Close() // an error means that it is closed already
	})
	if a.poster, err = slackout.New(a.settings.Slack); err != nil {
		return err
	}
	a.cleanups.add("slack", a.poster.Close)
	if a.store, err = OpenStore(a.settings.Store, a.settings.Deciding()); err != nil {
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
	if a.reporter, err = a.newReporter(); err != nil {
		return err
	}
	if a.outcomes, err = a.newOutcomes(); err != nil {
		return err
	}
	if a.digest, err = a.newDigest(); err != nil {
		return err
	}
	if a.tracing, err = telemetry.StartTracing(ctx, a.log); err != nil {
		a.log.Warn("no traces are exported", zap.Error(err))
	}
	a.cleanups.add("traces", a.tracing.Stop)
	if a.worker, err = consume.New(a.workerSettings()); err != nil {
		return err
	}
	a.streams, err = newStreamLookup(a.connection.Conn, a.settings.NATS, a.settings.Store.Namespace)
	if err != nil {
		return err
	}
	a.store.Status.This = a.snapshot
	a.metrics.Register(telemetry.Sources{
		Snapshot: a.snapshot, Limiter: a.store.Limiter, Different: a.store.Reports.Different,
		LogErrors: func() uint64 { return logErrors(a.log) },
	})
	return nil
}

// workerSettings connects the worker to the other parts.
func (a *app) workerSettings() consume.Settings {
	s := a.settings
	rules := s.Events
	rules.CheckCost = a.checkCost
	return consume.Settings{
		JetStream: consume.JetStream{
			Connection: a.connection.Conn, Why: a.connection.why,
			Stream: s.NATS.Stream, Consumer: s.NATS.Consumer, Subject: s.NATS.Pattern.String(),
			Namespace:   s.Store.Namespace,
			StreamBytes: s.NATS.StreamBytes, DeadLetter: s.DeadLetter, DeadLetterBytes: s.DeadLetterBytes,
			Replicas: s.NATS.Replicas,
		},
		Rules: rules, MaxAge: s.MaxAge,
		BatchSize: s.BatchSize, MaxBytes: limitMemory(memlimit.FromCgroup, a.log),
		Concurrency: s.Concurrency, ShutdownTimeout: s.ShutdownTimeout, PostTimeout: s.Slack.Timeout,
		DroppedSubject: s.Dropped, Group: a.limitedGroup,
		Channels: s.Slack.Channels(),
		Limiter:  a.metrics.TimeLimiter(a.store.Limiter), Mutes: a.steering, Slack: a.metrics.TimePoster(a.poster),
		Log: a.log, Events: EventLog(a.log), Observe: a.settled,
	}
}

// checkCost returns an error unless the settings or the limits in force allow the cost. A higher temporary
// limit allows more. A lower one ends, so an event above it is dropped, and is no dead letter.
func (a *app) checkCost(category string, cost int) error {
	rules := a.settings.Store.Limits
	if current := a.store.Limiter.Rules(); current.MaxCost(category) > rules.MaxCost(category) {
		rules = current
	}
	return rules.CheckCost(category, cost)
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
		kind := sum.Kind
		a.reporter.Observe(kind.Outcome, kind.Reason, kind.Category, kind.Source, len(sum.Results))
		a.outcomes.settled(sum)
	}
	for _, s := range batch {
		a.tracing.Observe(s)
		if s.Outcome == outcome.Sent {
			a.replica.sent(now)
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
		config := admin.Config{Addr: s.AdminAddr, Token: s.AdminToken}
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

// probes returns the data of the admin server.
func (a *app) probes() admin.Probes {
	return admin.Probes{
		Live:     a.worker.Live,
		Ready:    a.ready,
		Snapshot: a.snapshot,
		Metrics:  a.metrics.Handler(),
		State:    a.store.Status.Read,
		Events:   a.outcomes.list,
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

// stop takes down the parts in reverse. The worker has drained by then: the background jobs write the
// last counts, then the admin server ends, which reported "not ready" all the while, then traces, NATS,
// Slack, and Redis at last.
func (a *app) stop() { a.cleanups.run() }
