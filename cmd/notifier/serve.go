package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"
	"go.uber.org/zap"

	"notifier/internal/admin"
	"notifier/internal/consume"
	"notifier/internal/slackout"
)

func serveCommand() *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "run one worker until SIGTERM or SIGINT (the default command)",
		Description: `Reads events from NATS, asks Redis for each batch, posts what may be posted to Slack and logs what became
of every event on standard output. Settings come from environment variables; the README lists them.

Example:
   SLACK_BOT_TOKEN_FILE=/run/secrets/slack SLACK_CHANNEL=#alerts notifier serve`,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := noArguments(cmd); err != nil {
				return err
			}
			return runServe(ctx, cmd.Root().Writer)
		},
	}
}

// runServe reads the settings and runs one worker until ctx ends.
func runServe(ctx context.Context, out io.Writer) error {
	settings, err := loadConfig()
	if err != nil {
		return err
	}
	log, stopLog := newLog(out, settings.logLevel, settings.logConsole)
	defer stopLog()
	redis.SetLogger(redisLog{log})
	log.Info("starting", zap.String("version", version()),
		zap.Stringer("limit_global", settings.rules.Global), zap.Stringer("limit_category", settings.rules.Category),
		zap.Int("limit_overrides", len(settings.rules.Overrides)), zap.String("subject", settings.nats.pattern.String()))
	err = serve(ctx, settings, log, nil)
	if err != nil {
		log.Error("stopped", zap.Error(err))
		return err
	}
	log.Info("stopped")
	return nil
}

// adminShutdown is how long requests to the admin server may go on when the worker has stopped.
const adminShutdown = time.Second

// serve wires one worker and runs it until ctx ends. Teardown is in reverse: the worker drains, the last counts are
// written, then the admin server goes, which has told "not ready" all the while, then NATS, then Redis.
func serve(ctx context.Context, settings config, log *zap.Logger, observe func(consume.Settled)) error {
	defer func() { _ = settings.redis.Close() }() // an error would say that it is closed already
	poster, err := slackout.New(settings.slack)
	if err != nil {
		return err
	}
	defer poster.Close()
	kept, err := newStore(settings)
	if err != nil {
		return err
	}
	limiter, pause := kept.limiter, kept.pause
	connection, err := connectWorker(settings.nats, log)
	if err != nil {
		return err
	}
	defer connection.Close()

	figures := newMetrics()
	var worker *consume.Worker
	recorder, err := newRecorder(settings, func() *consume.Worker { return worker }, log)
	if err != nil {
		return err
	}
	summary, err := newDigest(settings, limiter, pause, poster, log)
	if err != nil {
		return err
	}
	spans, err := newTracing(ctx, log)
	if err != nil {
		return fmt.Errorf("traces: %w", err)
	}
	if spans != nil {
		defer spans.stop()
	}
	wiring := workerSettings(settings, connection)
	wiring.Limiter, wiring.Pause, wiring.Poster, wiring.Log = timedLimiter{limiter, figures}, pause, timedPoster{poster, figures}, log
	wiring.Observe = func(s consume.Settled) {
		figures.settled(s)
		recorder.Observe(s.Outcome, s.Reason, s.Event.Category, time.Now())
		if spans != nil {
			spans.settled(s)
		}
		if observe != nil {
			observe(s)
		}
	}
	if worker, err = consume.New(wiring); err != nil {
		return err
	}
	figures.registry.MustRegister(newGauges(worker, limiter, pause))
	if settings.adminAddr != "" {
		server, err := admin.Start(settings.adminAddr, admin.Probes{
			Live: worker.Live, Ready: worker.Ready, Waits: func() []string { return waitLines(worker) }, Metrics: figures.handler(),
			Status: func(ctx context.Context) (any, error) { return kept.status.Read(ctx) },
		})
		if err != nil {
			return fmt.Errorf("ADMIN_ADDR: %w", err)
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), adminShutdown)
			defer cancel()
			_ = server.Shutdown(ctx) // the process ends either way
		}()
		log.Info("admin server listens", zap.String("addr", server.Addr()))
	}
	stopBeside := runBeside(ctx, recorder, summary)
	defer stopBeside()
	err = worker.Run(ctx)
	if connection.IsConnected() { // else there is nobody who would take them, and waiting would outlast SHUTDOWN_TIMEOUT
		if flushErr := connection.FlushTimeout(natsTimeout); flushErr != nil && err == nil {
			log.Warn("acknowledgements may not have arrived; their events come again", zap.Error(flushErr))
		}
	}
	return err
}

// workerSettings is what the settings alone say of a worker.
func workerSettings(settings config, connection *nats.Conn) consume.Settings {
	wiring := consume.Settings{
		Rules: settings.events, MaxAge: settings.maxAge, BatchSize: settings.batchSize,
		Concurrency: settings.concurrency, ShutdownTimeout: settings.shutdownTimeout, PostTimeout: settings.slack.Timeout,
		DroppedSubject: settings.dropped,
	}
	subject := settings.nats.pattern.String()
	if settings.nats.core {
		wiring.Core = &consume.Core{
			Connection: connection, Subject: subject, Queue: settings.nats.consumer, DeadLetter: settings.deadLetter,
		}
	} else {
		wiring.JetStream = &consume.JetStream{
			Connection: connection, Stream: settings.nats.stream, Consumer: settings.nats.consumer,
			Subject: subject, DeadLetter: settings.deadLetter,
		}
	}
	return wiring
}
