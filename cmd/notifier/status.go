package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"notifier/internal/app"
	cmdline "notifier/internal/cli"
	"notifier/internal/settings"
	"notifier/internal/status"
	"notifier/internal/term"
)

// redisTimeout bounds what is asked of Redis for one answer.
const redisTimeout = 5 * time.Second

func statusCommand() *cli.Command {
	return &cli.Command{
		Name:      "status",
		Usage:     "show what is wrong now and how full each limit is, or what applies to one category",
		ArgsUsage: "[CATEGORY]",
		Description: `The first line says whether anything is sent and, if not, why. Lines below it name what needs
attention: unavailable services, replicas that differ or are silent, dead events of the last hour, streams
that are nearly full, mutes and temporary limits. The table has a row per limit: the global one first, then
those of groups and of categories, the fullest of each first. Below it are who holds the slots of the
global limit, and for whom some are reserved (LIMIT_RESERVE).

With CATEGORY it shows whether an event of that category would be sent now and, if not, why and when there
is room. Below it are the group, each limit with its usage and the setting it is from, the reservation, the
mute and the channel with its pace and pauses. The category need not have had an event. It assumes an event
that costs one slot and names no channel.

It reads only Redis, so it works while all workers are down, and uses no slots. The settings are those of
the running workers or, while none runs, those that are set here.

Examples:
   notifier status -watch
   notifier status errors
   notifier status -json team-a.job1 | jq .forecast`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "write JSON; without CATEGORY the same as /api/status"},
			&cli.BoolFlag{Name: "watch", Usage: "refresh until interrupted"},
			&cli.DurationFlag{Name: "every", Value: 2 * time.Second, Usage: "with -watch: refresh at this `INTERVAL`"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			view, err := parseStatus(cmd)
			if err != nil {
				return err
			}
			open := withStore
			if view.category != "" {
				open = withConfig
			}
			return open(func(store app.Store) error {
				view.source = store.Status
				if err := repeatsPrefix(store.Status.Own.Subject, view.category); err != nil {
					return err
				}
				if !cmd.Bool("watch") {
					return view.once(ctx)
				}
				return view.watch(ctx, cmd.Duration("every"))
			})
		},
	}
}

func parseStatus(cmd *cli.Command) (statusView, error) {
	view := statusView{category: cmd.Args().First(), out: cmd.Root().Writer, json: cmd.Bool("json")}
	if cmd.NArg() > 1 {
		return view, cmdline.Usagef(cmd, "unexpected argument %q, expected at most one CATEGORY", cmd.Args().Get(1))
	}
	if cmd.Args().Present() {
		if err := status.CheckCategory(view.category); err != nil {
			return view, cmdline.Usagef(cmd, "CATEGORY %q %v", view.category, err)
		}
	}
	every := cmd.Duration("every")
	switch {
	case every < 100*time.Millisecond:
		return view, cmdline.Usagef(cmd, "-every %s, expected 100ms or more", every)
	case cmd.IsSet("every") && !cmd.Bool("watch"):
		return view, cmdline.Usage(cmd, "-every requires -watch")
	}
	return view, nil
}

// withStore opens the Redis and the limits of the settings, and closes them when do returns.
func withStore(do func(store app.Store) error) error {
	app.SilenceRedis()
	s, err := settings.LoadStore()
	if err != nil {
		return err
	}
	return openedStore(s, s.StatusConfig(), do)
}

// withConfig is withStore for what depends on more than limits: on all settings that heartbeats have.
func withConfig(do func(store app.Store) error) error {
	app.SilenceRedis()
	s, own, err := settings.LoadStatusConfig()
	if err != nil {
		return err
	}
	return openedStore(s, own, do)
}

func openedStore(s settings.Store, own status.Config, do func(store app.Store) error) error {
	defer func() { _ = s.Redis.Close() }() // nothing is written through it
	store, err := app.OpenStore(s, own)
	if err != nil {
		return err
	}
	return do(store)
}

// statusView writes the status.
type statusView struct {
	source   status.Source
	category string // empty: of everything
	out      io.Writer
	json     bool
}

func (v statusView) once(ctx context.Context) error {
	text, err := v.text(ctx)
	if err != nil {
		return err
	}
	_, err = io.WriteString(v.out, text)
	return err
}

// watch shows the status until ctx ends. If Redis is unavailable it shows that and continues: that is when
// people look.
func (v statusView) watch(ctx context.Context, every time.Duration) error {
	screen := term.ScreenOf(v.out)
	for {
		text, err := v.text(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			text = err.Error() + "\n"
		}
		if _, err := io.WriteString(v.out, screen.Clear()+text); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

func (v statusView) text(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	answer, shown, err := v.ask(ctx)
	if err != nil {
		return "", fmt.Errorf(
			"REDIS_URL: %w; where the workers cannot use it either they send nothing, and events wait in NATS: "+
				"\"notifier check\" looks at all services",
			err,
		)
	}
	if v.json {
		var text strings.Builder
		err := term.NewJSON(&text).Encode(answer)
		return text.String(), err
	}
	return shown(term.ScreenOf(v.out)), nil
}

// ask returns the answer as it is encoded, and how it is shown to people.
func (v statusView) ask(ctx context.Context) (answer any, shown func(term.Screen) string, err error) {
	if v.category != "" {
		of, err := v.source.Explain(ctx, v.category)
		return of, of.Lines, err
	}
	now, err := v.source.Read(ctx)
	return now, now.Table, err
}
