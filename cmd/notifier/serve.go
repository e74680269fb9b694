package main

import (
	"context"
	"fmt"
	"os/signal"
	"strings"
	"syscall"

	"github.com/urfave/cli/v3"
	"go.uber.org/zap"

	"notifier/internal/app"
	"notifier/internal/buildinfo"
	"notifier/internal/settings"
)

func serveCommand() *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "run one worker until SIGTERM, SIGINT or SIGHUP (the default command)",
		Description: `Reads events from NATS, decides each batch in Redis, posts admitted events to
Slack, and logs the outcome of every event on standard output. Settings come from environment variables;
docs/configuration.md lists them.

Example:
   SLACK_BOT_TOKEN_FILE=/run/secrets/slack SLACK_CHANNEL=#alerts notifier serve`,
		Action: runServe,
	}
}

// runServe reads the settings and runs one worker until ctx ends.
func runServe(ctx context.Context, cmd *cli.Command) error {
	s, err := settings.Load()
	if err != nil {
		return err
	}
	// Hold events if the log's reader goes away. By default SIGPIPE would end the process.
	signal.Ignore(syscall.SIGPIPE)
	root := cmd.Root()
	root.ErrWriter = app.Unblocked(root.ErrWriter) // a stalled reader may not keep the process from ending
	log, stopLog := app.NewLog(root.Writer, root.ErrWriter, s.LogLevel, s.LogConsole)
	err = serve(ctx, s, log)
	if logErr := stopLog(); logErr != nil && err == nil {
		err = fmt.Errorf("the end of the log could not be written: %w", logErr)
	}
	return err
}

// serve runs one worker until ctx is done, and logs its start and end.
func serve(ctx context.Context, s settings.Settings, log *zap.Logger) error {
	limits := s.Store.Limits
	log.Info("starting", zap.String("version", buildinfo.Version()),
		zap.Stringer("limit_global", limits.Global), zap.Stringer("limit_category", limits.Category),
		zap.Int("limit_overrides", limits.Overrides.Len()), zap.Stringer("limit_group", limits.Group),
		zap.Int("limit_group_overrides", len(limits.GroupOverrides)), zap.Int("limit_reserve", limits.Reserved()),
		zap.String("subject", s.NATS.Pattern.String()))
	for _, file := range s.Exposed {
		log.Warn("a secret file can be used by others", zap.String("file", file))
	}
	for _, unknown := range s.Unknown {
		variable, reason, _ := strings.Cut(unknown, ": ")
		log.Warn("a variable looks like a setting",
			zap.String("variable", variable), zap.String("reason", reason))
	}
	if err := app.Run(ctx, s, log, nil); err != nil {
		log.Error("stopped", zap.Error(err))
		return err
	}
	log.Info("stopped")
	return nil
}
