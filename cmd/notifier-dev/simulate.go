package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/internal/devstack/simulate"
	"notifier/internal/settings"
	"notifier/internal/term"
)

// Lua makes much short-lived garbage for each decision. Collecting it less often decides more events per
// second (GOGC=400 and GOGC=100, go test -run '^$' -bench Run -benchtime 1x ./internal/devstack/simulate);
// the limit keeps a long input within the bound that the help promises.
const (
	simulateGCPercent   = 400
	simulateMemoryLimit = 768 << 20 // bytes
)

func simulateCommand() *cli.Command {
	return &cli.Command{
		Name:      "simulate",
		Usage:     "replay past events against limits: what would have been sent, and what dropped",
		ArgsUsage: "[FILE | -]",
		Description: `Choose limits by what happened last week. FILE, or standard input, has one event per line:
   {"time":"2026-11-20T04:39:01Z","category":"errors","cost":2,"id":"x"}
cost (default 1) and id are optional. It can also be a worker's own log (LOG_FORMAT=json), or several logs concatenated;
there the time of an event is when it was settled, and its cost is taken as 1. Lines are sorted by time. Other JSON lines
are counted and skipped. All events are kept in memory, a million of them in less than 1 GiB.

The limits are LIMIT_GLOBAL, LIMIT_CATEGORY, LIMIT_OVERRIDES, LIMIT_GROUP, LIMIT_GROUP_OVERRIDES, LIMIT_RESERVE and
DEDUPE_WINDOW, or those of the flags below. The same script as in production decides, in this process, at the times of
the events; it connects to nothing. Each message is assumed to reach Slack at once. An event that costs more than a limit
allows is dead: no worker would ask for it.

The longest silence of a category is the longest time between two of its messages during which events arrived and were
not sent (duplicates aside). It starts at the first event if no message was sent before, and ends at the last event if
none was sent after. "-": there was none.

Examples:
   notifier-dev simulate -category 5/10m last-week.log
   notifier-dev simulate -global 200/1h -overrides "errors=20/30m+2/10s" events.jsonl
   notifier-dev simulate -group 40/30m -reserve payments=5 last-week.log
   docker compose logs --no-log-prefix notifier | notifier-dev simulate -json -`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "global", Usage: "`LIMIT` over all categories, instead of LIMIT_GLOBAL"},
			&cli.StringFlag{Name: "category", Usage: "`LIMIT` for each category, instead of LIMIT_CATEGORY"},
			&cli.StringFlag{
				Name:  "overrides",
				Usage: "`LIST` of limits for some categories, instead of LIMIT_OVERRIDES",
			},
			&cli.StringFlag{
				Name:  "group",
				Usage: "`LIMIT` that the categories of a group share, instead of LIMIT_GROUP",
			},
			&cli.StringFlag{
				Name:  "group-overrides",
				Usage: "`LIST` of limits for some groups, instead of LIMIT_GROUP_OVERRIDES",
			},
			&cli.StringFlag{
				Name:  "reserve",
				Usage: "`LIST` of slots kept for some categories, instead of LIMIT_RESERVE",
			},
			&cli.StringFlag{
				Name:  "dedupe",
				Usage: "`DURATION` for which an id is not sent again, instead of DEDUPE_WINDOW",
			},
			&cli.BoolFlag{
				Name:  "json",
				Usage: "write each decision as a line of JSON, with the names of the log, instead of the table",
			},
			&cli.BoolFlag{
				Name:  "skip-bad",
				Usage: "count and skip lines that cannot be read, instead of stopping at the first",
			},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() > 1 {
				return cmdline.Usagef(cmd, "unexpected argument %q", cmd.Args().Get(1))
			}
			limits, err := loadSimulatedLimits(cmd)
			if err != nil {
				return err
			}
			s := simulation{
				limits: limits, name: cmd.Args().First(), skipBad: cmd.Bool("skip-bad"), asJSON: cmd.Bool("json"),
				out: cmd.Root().Writer, errOut: cmd.Root().ErrWriter,
			}
			return interruption(ctx, s.run(ctx, cmd.Root().Reader))
		},
	}
}

// limitFlags are the flags that replace a variable.
var limitFlags = []struct{ flag, variable string }{
	{"global", "LIMIT_GLOBAL"},
	{"category", "LIMIT_CATEGORY"},
	{"overrides", "LIMIT_OVERRIDES"},
	{
		"group",
		"LIMIT_GROUP",
	},
	{"group-overrides", "LIMIT_GROUP_OVERRIDES"},
	{"reserve", "LIMIT_RESERVE"},
	{"dedupe", "DEDUPE_WINDOW"},
}

// loadSimulatedLimits reads the limits and the dedupe window, and no other settings. A flag overrides its
// variable, even if the variable is invalid.
func loadSimulatedLimits(cmd *cli.Command) (settings.Store, error) {
	instead := map[string]string{}
	for _, f := range limitFlags {
		if cmd.IsSet(f.flag) {
			instead[f.variable] = cmd.String(f.flag)
		}
	}
	loaded, err := settings.LoadWith(instead, settings.GroupLimits)
	limits := loaded.Store
	var problems *settings.Problems
	if errors.As(err, &problems) {
		for _, f := range limitFlags {
			if text, wrong := problems.Line(f.variable); wrong && cmd.IsSet(f.flag) {
				return limits, cmdline.Usage(cmd, "-"+f.flag+": "+text)
			}
		}
	}
	return limits, err
}

// simulation is one run of the command.
type simulation struct {
	limits  settings.Store
	name    string // of the file; empty or "-": standard input
	skipBad bool
	asJSON  bool
	out     io.Writer
	errOut  io.Writer
}

func (s *simulation) run(ctx context.Context, in io.Reader) error {
	defer debug.SetGCPercent(debug.SetGCPercent(simulateGCPercent))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(min(simulateMemoryLimit, debug.SetMemoryLimit(-1))))
	input, err := s.read(ctx, in)
	if err != nil {
		return err
	}
	if s.asJSON {
		if err := input.WriteNotes(s.errOut); err != nil {
			return err
		}
	}
	out := bufio.NewWriter(s.out)
	var summary simulate.Summary
	err = s.decide(ctx, input.Events, func(v simulate.Verdict) error {
		if s.asJSON {
			return v.Write(out)
		}
		summary.Add(v)
		return nil
	})
	if err == nil && !s.asJSON {
		err = summary.WriteTable(out, input, s.limits.Limits, s.limits.Dedupe)
	}
	if err != nil {
		return err
	}
	return out.Flush()
}

// decide decides the events and shows the progress.
func (s *simulation) decide(
	ctx context.Context,
	events []simulate.Event,
	observe func(simulate.Verdict) error,
) error {
	screen := term.ScreenOf(s.errOut)
	if s.asJSON && term.ScreenOf(s.out).Terminal {
		screen = term.Screen{} // the verdicts on the screen show it
	}
	progress := newProgress(s.errOut, screen, len(events))
	err := simulate.Run(ctx, events, s.limits.Limits, s.limits.Dedupe, func(v simulate.Verdict) error {
		return errors.Join(progress.advance(), observe(v))
	})
	return errors.Join(err, progress.erase())
}

// read reads the input in a goroutine of its own, because a read from a terminal or a pipe ends for no
// signal. Where ctx ends before the input does, the goroutine is left to end with the process.
func (s *simulation) read(ctx context.Context, in io.Reader) (simulate.Input, error) {
	name := "standard input"
	if s.name != "" && s.name != "-" {
		file, err := os.Open(s.name)
		if err != nil {
			return simulate.Input{}, err
		}
		defer func() { _ = file.Close() }()
		in, name = file, s.name
	}
	type result struct {
		input simulate.Input
		err   error
	}
	read := make(chan result, 1)
	go func() {
		input, err := simulate.Read(ctx, in, s.skipBad)
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		read <- result{input, err}
	}()
	select {
	case r := <-read:
		return r.input, r.err
	case <-ctx.Done():
		return simulate.Input{}, ctx.Err()
	}
}
