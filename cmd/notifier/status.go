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
		Name:  "status",
		Usage: "show how full each limit is, who holds the slots and when there is room again",
		Description: `Reads only Redis, so it works while all workers are down, and uses no slots. The limits are those of the running
workers; while none runs, those that are set here. The first line says whether anything is sent, and if not, why. Lines below
it name what needs attention: what is waited for, replicas that differ or are silent, dead events of the last hour, streams
that are nearly full, and what is muted or limited for a while. The table
has a row per limit: the global one first, then those of groups and of categories, the fullest of each first. Below it are
who holds the slots of the global limit, and for whom some are kept (LIMIT_RESERVE).

Example:
   notifier status -watch`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "write everything as JSON, like /api/status"},
			&cli.BoolFlag{Name: "watch", Usage: "refresh until interrupted"},
			&cli.DurationFlag{Name: "every", Value: 2 * time.Second, Usage: "with -watch: the `TIME` between two refreshes"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := cmdline.NoArguments(cmd); err != nil {
				return err
			}
			every := cmd.Duration("every")
			if every < 100*time.Millisecond {
				return cmdline.Usage(cmd, fmt.Sprintf("-every %s, expected 100ms or more", every))
			}
			return withStore(func(store app.Store) error {
				view := statusView{source: store.Status, out: cmd.Root().Writer, json: cmd.Bool("json")}
				if !cmd.Bool("watch") {
					return view.once(ctx)
				}
				return view.watch(ctx, every)
			})
		},
	}
}

// withStore opens the Redis and the limits of the settings, and closes them when do returns.
func withStore(do func(store app.Store) error) error {
	app.SilenceRedis()
	s, err := settings.LoadStore()
	if err != nil {
		return err
	}
	defer func() { _ = s.Redis.Close() }() // nothing is written through it
	store, err := app.OpenStore(s, s.StatusConfig())
	if err != nil {
		return err
	}
	return do(store)
}

// statusView writes the status.
type statusView struct {
	source status.Source
	out    io.Writer
	json   bool
}

func (v statusView) once(ctx context.Context) error {
	text, err := v.text(ctx)
	if err != nil {
		return err
	}
	_, err = io.WriteString(v.out, text)
	return err
}

// watch shows the status until ctx ends. If Redis is unavailable it shows that and continues: that is when people look.
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
	now, err := v.source.Read(ctx)
	if err != nil {
		return "", fmt.Errorf("REDIS_URL: %w", err)
	}
	if v.json {
		var text strings.Builder
		err := term.NewJSON(&text).Encode(now)
		return text.String(), err
	}
	return now.Table(term.ScreenOf(v.out)), nil
}
