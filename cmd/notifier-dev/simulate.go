package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/internal/devstack/simulate"
	"notifier/internal/settings"
	"notifier/internal/term"
)

// simulateGCPercent collects the garbage of Lua less often, for more decisions per second.
const simulateGCPercent = 400

func simulateCommand() *cli.Command {
	return &cli.Command{
		Name:      "simulate",
		Usage:     "replay past events against limits: what would have been sent, and what dropped",
		ArgsUsage: "[FILE | -]",
		Description: `Choose limits by what happened last week. FILE, or standard input, has one event per line:
   {"time":"2026-11-20T04:39:01Z","category":"errors","cost":2,"id":"x"}
cost (default 1), id and source are optional; an id counts together with its source. It can also be a
worker's log (LOG_FORMAT=json), or what "docker compose logs" wrote; there the time of an event is when it
was settled, its cost is taken as 1, and every source as a CloudEvent's. Lines are sorted by time. Lines that
cannot be read are skipped and named on standard error.

The limits are LIMIT_GLOBAL, LIMIT_CATEGORY, LIMIT_OVERRIDES, LIMIT_GROUP, LIMIT_GROUP_OVERRIDES, LIMIT_RESERVE and
DEDUPE_WINDOW, or those of the flags below. The same script as in production decides, in this process, at the times of
the events; it connects to nothing. Each message is assumed to reach Slack at once.

Examples:
   notifier-dev simulate -category 5/10m last-week.log
   notifier-dev simulate -global 200/1h -overrides "errors=20/30m+2/10s" events.jsonl
   docker compose logs notifier | notifier-dev simulate -group 40/30m -reserve payments=5 -json`,
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
				limits: limits,
				name:   cmd.Args().First(),
				asJSON: cmd.Bool("json"),
				out:    cmd.Root().Writer,
				errOut: cmd.Root().ErrWriter,
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
	{"group", "LIMIT_GROUP"},
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
	limits settings.Store
	name   string // of the file; if empty or "-", standard input
	asJSON bool
	out    io.Writer
	errOut io.Writer
}

func (s *simulation) run(ctx context.Context, in io.Reader) error {
	defer debug.SetGCPercent(debug.SetGCPercent(simulateGCPercent))
	input, err := s.read(ctx, in)
	if err != nil {
		return err
	}
	if err := input.WriteNotes(s.errOut); err != nil {
		return err
	}
	out := bufio.NewWriter(s.out)
	if s.asJSON {
		err = s.decide(ctx, input.Events, func(v simulate.Verdict) error { return v.Write(out) })
	} else {
		var table simulate.Table
		err = s.decide(ctx, input.Events, func(v simulate.Verdict) error {
			table.Add(v)
			return nil
		})
		if err == nil {
			err = table.Write(out, input, s.limits.Limits, s.limits.Dedupe)
		}
	}
	if err != nil {
		return err
	}
	return out.Flush()
}

// decide decides the events. On a terminal it shows the progress on one line, unless verdicts show it.
func (s *simulation) decide(
	ctx context.Context, events []simulate.Event, observe func(simulate.Verdict) error,
) error {
	shown := term.ScreenOf(s.errOut).Terminal && !(s.asJSON && term.ScreenOf(s.out).Terminal)
	progress := progress{out: term.Unescaped(s.errOut), total: len(events), last: time.Now()}
	err := simulate.Run(ctx, events, s.limits.Limits, s.limits.Dedupe, func(v simulate.Verdict) error {
		if shown {
			progress.advance()
		}
		return observe(v)
	})
	progress.erase()
	return err
}

// progress shows once a second how many events are decided, on one line that it overwrites. Its errors do not
// matter.
type progress struct {
	out     io.Writer
	total   int
	decided int
	last    time.Time // when the line was written, or the start
	written bool
}

func (p *progress) advance() {
	p.decided++
	if time.Since(p.last) < time.Second {
		return
	}
	p.last, p.written = time.Now(), true
	_, _ = fmt.Fprintf(p.out, "\r%d of %s decided", p.decided, term.Count(p.total, "event"))
}

// erase clears the line, so that the next output starts in the first column.
func (p *progress) erase() {
	if p.written {
		_, _ = io.WriteString(p.out, "\r\x1b[K")
	}
}

// read reads the input in a goroutine of its own, because no signal ends a read from a terminal or a pipe. If
// ctx ends before the input does, the goroutine is left to end with the process.
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
		input, err := simulate.Read(ctx, in)
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
