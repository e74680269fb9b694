package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v3"

	"notifier/internal/app"
	cmdline "notifier/internal/cli"
	"notifier/internal/preflight"
	"notifier/internal/settings"
	"notifier/internal/status/report"
	"notifier/internal/term"
)

func checkCommand() *cli.Command {
	return &cli.Command{
		Name:  "check",
		Usage: "check whether a worker with these settings could do its job; changes nothing",
		Description: `Reads the settings as a worker does, and sends requests to NATS, Redis and Slack.
Nothing is created, published, charged, posted or written, so check can run beside workers at any time.
It takes at most ten seconds.
   ok     as it should be
   warn   a worker runs, but may lose or delay events, or is exposed
   fail   a worker could not do its job
   skip   unknown
Secrets are never shown. Exit codes: 0 no failures; 1 a failure, with -strict also a warning; 2 invalid
settings, all listed.

Examples:
   notifier check
   docker compose run --rm notifier check -all
   notifier check -strict`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "all", Usage: "first show every setting, its value and its source"},
			&cli.BoolFlag{Name: "strict", Usage: "fail on warnings, too"},
		},
		Action: runCheck,
	}
}

func runCheck(ctx context.Context, cmd *cli.Command) error {
	s, origins, err := settings.LoadWithOrigins()
	if err != nil {
		return err
	}
	defer func() { _ = s.Store.Redis.Close() }() // wrote nothing
	app.SilenceLibraries()
	reports, err := report.NewReader(s.Store.Redis, s.Store.Namespace)
	if err != nil {
		return err
	}
	rows := preflight.Run(ctx, preflight.Config{Settings: s, Hash: s.Snapshot().Hash, Replicas: reports})
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	out := cmd.Root().Writer
	if cmd.Bool("all") {
		if err := writeOrigins(out, origins); err != nil {
			return err
		}
	}
	failures, warnings, err := writeChecks(out, rows)
	if err == nil && (failures > 0 || cmd.Bool("strict") && warnings > 0) {
		return cli.Exit("", cmdline.ExitFailed)
	}
	return err
}

// writeOrigins writes the value and the source of each setting, and an empty line.
func writeOrigins(out io.Writer, origins []settings.Origin) error {
	table := term.NewTable(out)
	table.Row("SETTING", "VALUE", "SOURCE")
	for _, o := range origins {
		table.Row(o.Name, o.Shown(), strings.TrimSpace(o.Source+" "+o.File))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out)
	return err
}

// writeChecks writes the rows and the number of failures and warnings.
func writeChecks(out io.Writer, rows []preflight.Row) (failures, warnings int, err error) {
	table := term.NewTable(out)
	table.Row("CHECK", "STATE", "MESSAGE")
	for _, row := range rows {
		table.Row(row.Name, row.State, row.Message)
		switch row.State {
		case preflight.Fail:
			failures++
		case preflight.Warn:
			warnings++
		}
	}
	summary := "No failures"
	if failures > 0 {
		summary = term.Count(failures, "failure")
	}
	if warnings > 0 {
		summary += ", " + term.Count(warnings, "warning")
	}
	if err := table.Flush(); err != nil {
		return 0, 0, err
	}
	_, err = fmt.Fprintf(out, "\n%s.\n", summary)
	return failures, warnings, err
}
