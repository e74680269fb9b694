package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"notifier/internal/app"
	cmdline "notifier/internal/cli"
	"notifier/internal/settings"
	"notifier/internal/status"
	"notifier/internal/status/config"
	"notifier/internal/term"
)

const (
	// redisTimeout bounds the calls to Redis for one output.
	redisTimeout = 5 * time.Second

	watchInterval = 2 * time.Second
)

func statusCommand() *cli.Command {
	return &cli.Command{
		Name:      "status",
		Usage:     "show the conditions that are not ok and how full each limit is, or explain one category",
		ArgsUsage: "[CATEGORY]",
		Description: `The first line says whether events are sent and, if not, why. The tables below it
list the conditions that are not ok, the limits (the global one first, then groups and categories, the
fullest first), the workers, and the mutes and temporary limits in force. Counts cover the last hour.

With CATEGORY it says whether an event of one slot would be sent now and, if not, when there is room. The
category need not have had an event.

It reads only Redis, so it works while all workers are down, and uses no slots. The limits are those of the
newest ready worker or, if none runs, those set here.

Examples:
   notifier status -watch
   notifier status errors
   notifier status -json team-a.job1 | jq .sends`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "write one line of JSON; without CATEGORY the same as /api/status"},
			&cli.BoolFlag{Name: "watch", Usage: "repeat every two seconds until interrupted"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() > 1 {
				return cmdline.Usagef(cmd, "%d arguments, expected at most one CATEGORY", cmd.NArg())
			}
			show := showStatus
			if cmd.Bool("watch") {
				show = watchStatus
			}
			do := func(store app.Store) error { return categoryUsage(cmd, show(ctx, cmd, store.Status)) }
			if cmd.NArg() == 0 {
				return withStore(do)
			}
			return withConfig(do)
		},
	}
}

// withStore opens the Redis and the limits of the settings, and closes them when do returns.
func withStore(do func(store app.Store) error) error {
	s, err := settings.Load(settings.GroupRedis, settings.GroupLimits)
	if err != nil {
		return err
	}
	return openStore(s.Store, config.Deciding{Rules: s.Store.Limits, Dedupe: s.Store.Dedupe}, do)
}

// withConfig is withStore with the other settings that decide about events: the subject and, if they are
// valid, the channels.
func withConfig(do func(store app.Store) error) error {
	s, err := settings.Load(settings.GroupRedis, settings.GroupLimits, "NATS_SUBJECT")
	if err != nil {
		return err
	}
	own := s.Deciding()
	// An invalid channel keeps no event from being decided, and running workers name their own.
	if channels, err := settings.Load("SLACK_CHANNEL", "SLACK_ROUTES"); err == nil {
		own.Channel, own.Routes = channels.Slack.Channel, channels.Slack.Routes
	}
	return openStore(s.Store, own, do)
}

func openStore(s settings.Store, own config.Deciding, do func(store app.Store) error) error {
	app.SilenceLibraries()
	defer func() { _ = s.Redis.Close() }() // nothing is written through it
	store, err := app.OpenStore(s, own)
	if err != nil {
		return err
	}
	return do(store)
}

// categoryUsage makes a status.CategoryError an error of usage.
func categoryUsage(cmd *cli.Command, err error) error {
	if wrong := (*status.CategoryError)(nil); errors.As(err, &wrong) {
		return cmdline.Usage(cmd, wrong.Error())
	}
	return err
}

func showStatus(ctx context.Context, cmd *cli.Command, source status.Source) error {
	text, err := statusText(ctx, cmd, source)
	if _, written := io.WriteString(cmd.Root().Writer, text); err == nil {
		err = written
	}
	return err
}

// watchStatus writes the status until ctx is done. Operators watch outages, so an unavailable Redis does not
// end it.
func watchStatus(ctx context.Context, cmd *cli.Command, source status.Source) error {
	clearScreen := ""
	if !cmd.Bool("json") {
		clearScreen = term.ScreenOf(cmd.Root().Writer).Clear()
	}
	for {
		text, err := statusText(ctx, cmd, source)
		if wrong := (*status.CategoryError)(nil); errors.As(err, &wrong) {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		if _, err := io.WriteString(cmd.Root().Writer, clearScreen+text); err != nil {
			return err
		}
		if err != nil {
			cmdline.Warn(cmd, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchInterval):
		}
	}
}

// statusText returns the state or, with CATEGORY, its explanation. The error is a *status.CategoryError, or
// means that Redis is unavailable. Then the text is the state as far as it is known, or empty with CATEGORY.
func statusText(ctx context.Context, cmd *cli.Command, source status.Source) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	if cmd.NArg() > 0 {
		explanation, err := source.Explain(ctx, cmd.Args().First())
		if wrong := (*status.CategoryError)(nil); errors.As(err, &wrong) {
			return "", err
		}
		if err != nil {
			return "", unreadable(err)
		}
		return rendered(cmd, explanation)
	}
	state := source.Read(ctx)
	text, err := rendered(cmd, state)
	if state.Unreadable() != nil {
		err = unreadable(state.Unreadable())
	}
	return text, err
}

func unreadable(err error) error {
	return fmt.Errorf("REDIS_URL: %w; workers that cannot use it send nothing, and events wait in NATS: "+
		"\"notifier check\" looks at all services", err)
}

func rendered(cmd *cli.Command, shown interface {
	WriteText(out io.Writer, screen term.Screen) error
}) (string, error) {
	var text strings.Builder
	if cmd.Bool("json") {
		err := term.NewJSON(&text).Encode(shown)
		return text.String(), err
	}
	err := shown.WriteText(&text, term.ScreenOf(cmd.Root().Writer))
	return text.String(), err
}
