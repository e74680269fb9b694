package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v3"

	"notifier/internal/status"
)

// statusTimeout bounds one look into Redis.
const statusTimeout = 5 * time.Second

func statusCommand() *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "show how full each limit is, who holds the slots and when there is room again",
		Description: `Reads Redis alone, with the REDIS_* and LIMIT_* settings of the workers: it works while all of them are down, and
charges nothing. The table has a row per limit: the global one first, then the categories, the fullest first.

Example:
   notifier status -watch`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "write all of it as JSON, as /api/status does"},
			&cli.BoolFlag{Name: "watch", Usage: "look again and again, until interrupted"},
			&cli.DurationFlag{Name: "every", Value: 2 * time.Second, Usage: "with -watch: the `TIME` between two looks"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := noArguments(cmd); err != nil {
				return err
			}
			every := cmd.Duration("every")
			if every < 100*time.Millisecond {
				return usage(cmd, fmt.Sprintf("-every %s, expected 100ms or more", every))
			}
			s, err := openStore()
			if err != nil {
				return err
			}
			defer s.close()
			show := statusShow{source: s.status, out: cmd.Root().Writer, json: cmd.Bool("json")}
			if !cmd.Bool("watch") {
				return show.once(ctx)
			}
			return show.watch(ctx, every)
		},
	}
}

// statusShow writes the status.
type statusShow struct {
	source status.Source
	out    io.Writer
	json   bool
}

func (s statusShow) once(ctx context.Context) error {
	text, err := s.text(ctx)
	if err != nil {
		return err
	}
	_, err = io.WriteString(s.out, text)
	return err
}

// watch shows the status until ctx ends. A Redis that is away is told and waited for: that is when people look.
func (s statusShow) watch(ctx context.Context, every time.Duration) error {
	screen := terminalOf(s.out)
	for {
		text, err := s.text(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			text = err.Error() + "\n"
		}
		if _, err := io.WriteString(s.out, screen.home()+text); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

func (s statusShow) text(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	now, err := s.source.Read(ctx)
	if err != nil {
		return "", fmt.Errorf("REDIS_URL: %w", err)
	}
	if s.json {
		text, err := json.Marshal(now)
		return string(text) + "\n", err
	}
	return statusTable(now, terminalOf(s.out)), nil
}
