//go:build !production

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/urfave/cli/v3"

	"notifier/internal/ratelimit"
	"notifier/internal/simulate"
)

// The embedded store makes much short-lived garbage for each decision. To collect it less often decides a quarter more
// events per second (GOGC=400 and GOGC=100, go test -run '^$' -bench Run -benchtime 1x ./internal/simulate); the limit
// keeps a long input within the bound that the help promises.
const (
	simulateGCPercent   = 400
	simulateMemoryLimit = 768 << 20 // bytes
)

func simulateCommand() *cli.Command {
	return &cli.Command{
		Name:      "simulate",
		Usage:     "replay events against limits: what would have been sent, and what dropped",
		ArgsUsage: "[FILE | -]",
		Description: `Choose limits by what happened last week. FILE, or standard input to its end, has an event per line:
   {"time":"2026-11-20T04:39:01Z","category":"errors","cost":2,"id":"x"}
cost (default 1) and id are optional. Or it is a worker's own log (LOG_FORMAT=json), or several of them one behind the
other; there an event's time is when it was settled, and its cost counts as 1. Lines are sorted by time. Other JSON lines
are counted and skipped. All events are kept in memory, a million of them in less than 1 GiB.

The limits are LIMIT_GLOBAL, LIMIT_CATEGORY, LIMIT_OVERRIDES and DEDUPE_WINDOW, or the flags below instead. The same
script as in production decides, on the embedded store, at the times of the events; nothing is connected. Each message is
taken to reach Slack at once. An event whose cost is above a limit is dead: no worker would ask for it.

The longest silence of a category is the longest time between two messages of it in which events came in and were not
sent (duplicates aside). It begins with the first event where no message was sent before, and ends with the last event
where none was sent after. "-": there was none.

Examples:
   notifier simulate -category 5/10m last-week.log
   notifier simulate -global 200/1h -overrides "errors=20/30m+2/10s" events.jsonl
   docker compose logs --no-log-prefix notifier | notifier simulate -json -`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "global", Usage: "`LIMIT` over all categories, instead of LIMIT_GLOBAL"},
			&cli.StringFlag{Name: "category", Usage: "`LIMIT` for each category, instead of LIMIT_CATEGORY"},
			&cli.StringFlag{Name: "overrides", Usage: "`LIST` of limits for some categories, instead of LIMIT_OVERRIDES"},
			&cli.StringFlag{Name: "dedupe", Usage: "`DURATION` for which an id is not sent again, instead of DEDUPE_WINDOW"},
			&cli.BoolFlag{Name: "json", Usage: "write each verdict as a line of JSON, in the words of the log, instead of the table"},
			&cli.BoolFlag{Name: "skip-bad", Usage: "count and skip lines that cannot be read, instead of ending at the first"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() > 1 {
				return usage(cmd, fmt.Sprintf("unexpected argument %q", cmd.Args().Get(1)))
			}
			limits, err := loadSimulatedLimits(cmd)
			if err != nil {
				return err
			}
			s := simulation{
				limits: limits, name: cmd.Args().First(), skipBad: cmd.Bool("skip-bad"),
				out: bufio.NewWriter(cmd.Root().Writer), errOut: cmd.Root().ErrWriter,
			}
			return interruption(ctx, s.run(ctx, cmd.Root().Reader, cmd.Bool("json")))
		},
	}
}

// loadSimulatedLimits reads the limits and the dedupe window, and nothing else of the settings. A flag goes before its
// variable, whose value then does not matter.
func loadSimulatedLimits(cmd *cli.Command) (config, error) {
	all := &faults{}
	env := readEnvironment(all)
	settings := []struct {
		flag, variable string
		value          *string
	}{
		{"global", "LIMIT_GLOBAL", &env.LimitGlobal},
		{"category", "LIMIT_CATEGORY", &env.LimitCategory},
		{"overrides", "LIMIT_OVERRIDES", &env.LimitOverrides},
		{"dedupe", "DEDUPE_WINDOW", &env.DedupeWindow},
	}
	var variables []string
	for _, s := range settings {
		if cmd.IsSet(s.flag) {
			*s.value = cmd.String(s.flag)
		} else {
			variables = append(variables, s.variable)
		}
	}
	f := all.about(variables)
	var c config
	parseLimits(env, f, &c)
	for _, s := range settings {
		if line, wrong := f.line(s.variable); wrong && cmd.IsSet(s.flag) {
			return c, usage(cmd, "-"+s.flag+line[len(s.variable):])
		}
	}
	return c, f.err()
}

// simulation is one run of the command.
type simulation struct {
	limits  config
	name    string // of the file; empty or "-": standard input
	skipBad bool
	out     *bufio.Writer
	errOut  io.Writer
	told    time.Time // when progress was told, or the decisions began
	decided int
}

func (s *simulation) run(ctx context.Context, in io.Reader, asJSON bool) error {
	defer debug.SetGCPercent(debug.SetGCPercent(simulateGCPercent))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(min(simulateMemoryLimit, debug.SetMemoryLimit(-1))))
	input, err := s.read(ctx, in)
	if err != nil {
		return err
	}
	if asJSON {
		if err := writeNotes(s.errOut, input); err != nil {
			return err
		}
	}
	var summary simulate.Summary
	s.told = time.Now()
	err = simulate.Run(ctx, input.Events, s.limits.rules, s.limits.dedupe, func(v simulate.Verdict) error {
		if err := s.progress(len(input.Events)); err != nil {
			return err
		}
		if asJSON {
			return writeVerdict(s.out, v)
		}
		summary.Add(v)
		return nil
	})
	if err == nil && !asJSON {
		err = writeSummary(s.out, input, s.limits, &summary)
	}
	if err != nil {
		return err
	}
	return s.out.Flush()
}

// read reads the input in a goroutine of its own, because a read from a terminal or a pipe ends for no signal. Where ctx
// ends before the input does, the goroutine is left to end with the process.
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

// progress says once a second on standard error how far it is.
func (s *simulation) progress(total int) error {
	s.decided++
	now := time.Now()
	if now.Sub(s.told) < time.Second {
		return nil
	}
	s.told = now
	_, err := fmt.Fprintf(s.errOut, "%d of %d events decided\n", s.decided, total)
	return err
}

// limitsLine says in words which limits were asked.
func limitsLine(c config) string {
	return fmt.Sprintf("Limits: %s in all, %s per category%s; an id counts once in %s.",
		c.rules.Global, c.rules.Category, overridesText(c.rules.Overrides), ratelimit.ShortDuration(c.dedupe))
}
