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

// redisTimeout bounds the reads of Redis for one output.
const redisTimeout = 5 * time.Second

func statusCommand() *cli.Command {
	return &cli.Command{
		Name:      "status",
		Usage:     "show the conditions that are not ok and how full each limit is, or explain one category",
		ArgsUsage: "[CATEGORY]",
		Description: `The first line says whether events are sent and, if not, why. The tables below it list the conditions
that are not ok, the limits (the global one first, then groups and categories, the fullest first), the
replicas, and the mutes and temporary limits in force. Counts cover the last hour.

With CATEGORY it says whether an event of one slot would be sent now and, if not, when there is room. The
category need not have had an event.

It reads only Redis, so it works while all workers are down, and uses no slots. The limits are those of the
newest replica or, if none runs, those set here.

Examples:
   notifier status -watch
   notifier status errors
   notifier status -json team-a.job1 | jq .sends`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "write JSON; without CATEGORY the same as /api/status"},
			&cli.BoolFlag{Name: "watch", Usage: "refresh until interrupted; with -json a line each time, and errors on standard error"},
			&cli.DurationFlag{Name: "every", Value: 2 * time.Second, Usage: "with -watch: refresh at this `INTERVAL`"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			view, err := parseStatus(cmd)
			if err != nil {
				return err
			}
			open := withStore
			if !view.all {
				open = withConfig
			}
			err = open(func(store app.Store) error {
				view.source = store.Status
				if !cmd.Bool("watch") {
					return view.once(ctx)
				}
				return view.watch(ctx, cmd.Duration("every"))
			})
			if wrong := (*status.CategoryError)(nil); errors.As(err, &wrong) {
				return cmdline.Usage(cmd, wrong.Error())
			}
			return err
		},
	}
}

func parseStatus(cmd *cli.Command) (statusView, error) {
	view := statusView{
		category: cmd.Args().First(), all: cmd.NArg() == 0, json: cmd.Bool("json"),
		out: cmd.Root().Writer, errOut: cmd.Root().ErrWriter,
	}
	every := cmd.Duration("every")
	switch {
	case cmd.NArg() > 1:
		return view, cmdline.Usagef(cmd, "unexpected argument %q, expected at most one CATEGORY", cmd.Args().Get(1))
	case every < 100*time.Millisecond:
		return view, cmdline.Usagef(cmd, "-every %s, expected 100ms or more", every)
	case cmd.IsSet("every") && !cmd.Bool("watch"):
		return view, cmdline.Usage(cmd, "-every requires -watch")
	}
	return view, nil
}

// withStore opens the Redis and the limits of the settings, and closes them when do returns.
func withStore(do func(store app.Store) error) error {
	s, err := settings.Load(settings.GroupRedis, settings.GroupLimits)
	if err != nil {
		return err
	}
	return openStore(s.Store, config.Deciding{Rules: s.Store.Limits, Dedupe: s.Store.Dedupe}, do)
}

// withConfig is withStore with the other settings that decide about events, such as SLACK_ROUTES.
func withConfig(do func(store app.Store) error) error {
	s, err := settings.Load(settings.GroupRedis, settings.GroupLimits,
		"NATS_SUBJECT", "NATS_STREAM", "NATS_CONSUMER", "SLACK_CHANNEL", "SLACK_ROUTES")
	if err != nil {
		return err
	}
	return openStore(s.Store, s.Deciding(), do)
}

func openStore(s settings.Store, own config.Deciding, do func(store app.Store) error) error {
	app.SilenceRedis()
	defer func() { _ = s.Redis.Close() }() // nothing is written through it
	store, err := app.OpenStore(s, own)
	if err != nil {
		return err
	}
	return do(store)
}

// statusView writes the state, or the explanation of a category.
type statusView struct {
	source   status.Source
	all      bool
	category string // if not all
	json     bool
	out      io.Writer
	errOut   io.Writer
}

func (v statusView) once(ctx context.Context) error {
	text, err := v.text(ctx)
	if err != nil {
		return err
	}
	_, err = io.WriteString(v.out, text)
	return err
}

// watch writes the state until ctx is done. It shows an unavailable Redis and continues, because operators
// watch outages.
func (v statusView) watch(ctx context.Context, every time.Duration) error {
	for {
		text, err := v.text(ctx)
		if wrong := (*status.CategoryError)(nil); errors.As(err, &wrong) {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		if err := v.refresh(text, err); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// refresh writes one output. With -json standard output gets nothing but documents, one a line.
func (v statusView) refresh(text string, failure error) error {
	if failure != nil {
		text = term.Printable(failure.Error()) + "\n"
	}
	out := v.out
	switch {
	case !v.json:
		text = term.ScreenOf(v.out).Clear() + text
	case failure != nil:
		out, text = v.errOut, "notifier: "+text
	}
	_, err := io.WriteString(out, text)
	return err
}

// statusOutput is a State or an Explanation.
type statusOutput interface {
	WriteText(out io.Writer, screen term.Screen) error
}

func (v statusView) text(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	now, err := v.read(ctx)
	if wrong := (*status.CategoryError)(nil); errors.As(err, &wrong) {
		return "", err
	}
	if err != nil {
		return "", fmt.Errorf("REDIS_URL: %w; workers that cannot use it send nothing, and events wait in NATS: "+
			"\"notifier check\" looks at all services", err)
	}
	var text strings.Builder
	if v.json {
		err = term.NewJSON(&text).Encode(now)
	} else {
		err = now.WriteText(&text, term.ScreenOf(v.out))
	}
	return text.String(), err
}

func (v statusView) read(ctx context.Context) (statusOutput, error) {
	if !v.all {
		return v.source.Explain(ctx, v.category)
	}
	now := v.source.Read(ctx)
	return now, now.Unreadable()
}
