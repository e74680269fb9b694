package main

import (
	"context"
	"errors"
	"fmt"
	"io"

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
		Description: `Reads the settings as a worker does, and sends requests to NATS, Redis and Slack. Nothing is created, published,
charged, posted or written, so check can run beside workers at any time. It takes at most ten seconds.
   ok     as it should be
   warn   a worker runs, but may lose or delay events, or is exposed
   fail   a worker could not do its job
   skip   unknown
Secrets are never shown. Exit codes: 0 no failures; 1 a failure, with -strict also a warning; 2 invalid settings, all listed.

Examples:
   notifier check
   docker compose run --rm notifier check -all
   notifier check -strict
   notifier check -json | jq '.checks[] | select(.state != "ok")'`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "all", Usage: "first show every setting, its value and its source"},
			&cli.BoolFlag{Name: "json", Usage: "write one JSON object, with all settings, instead of tables"},
			&cli.BoolFlag{Name: "strict", Usage: "fail on warnings, too"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := cmdline.NoArguments(cmd); err != nil {
				return err
			}
			s, origins, err := settings.LoadWithOrigins()
			if err != nil {
				return err
			}
			defer func() { _ = s.Store.Redis.Close() }() // wrote nothing
			app.SilenceRedis()
			reports, err := report.NewReader(s.Store.Redis, s.Store.Namespace)
			if err != nil {
				return err
			}
			rows := preflight.Run(ctx, preflight.Config{Settings: s, Hash: s.Snapshot().Hash, Replicas: reports})
			if ctx.Err() != nil {
				return errors.New("interrupted")
			}
			result := checkResult{Checks: rows}
			result.Summary, result.OK = summarize(rows, cmd.Bool("strict"))
			for _, origin := range origins {
				result.Settings = append(result.Settings, checkedSetting{
					Name: origin.Name, Value: origin.Shown(), Source: origin.Source, File: origin.File,
				})
			}
			if cmd.Bool("json") {
				encoder := term.NewJSON(cmd.Root().Writer)
				encoder.SetIndent("", "  ")
				err = encoder.Encode(result)
			} else {
				err = result.write(cmd.Root().Writer, cmd.Bool("all"))
			}
			if err == nil && !result.OK {
				return cli.Exit("", cmdline.ExitFailed)
			}
			return err
		},
	}
}

// checkResult is the output of -json.
type checkResult struct {
	OK       bool             `json:"ok"` // no failures; with -strict no warnings either
	Summary  string           `json:"summary"`
	Settings []checkedSetting `json:"settings"`
	Checks   []preflight.Row  `json:"checks"`
}

type checkedSetting struct {
	Name   string `json:"name"`
	Value  string `json:"value"` // "set" for secrets
	Source string `json:"source"`
	File   string `json:"file,omitempty"`
}

// summarize returns one sentence, and whether the check has passed.
func summarize(rows []preflight.Row, strict bool) (sentence string, passed bool) {
	count := map[preflight.State]int{}
	for _, row := range rows {
		count[row.State]++
	}
	failures, warnings := count[preflight.Fail], count[preflight.Warn]
	sentence = "No failures"
	if failures > 0 {
		sentence = term.Count(failures, "failure")
	}
	if warnings > 0 {
		sentence += ", " + term.Count(warnings, "warning")
	}
	return sentence + ".", failures == 0 && (warnings == 0 || !strict)
}

// write writes the rows as a table, behind a table of all settings if wanted.
func (r checkResult) write(out io.Writer, all bool) error {
	if all {
		table := term.NewTable(out)
		table.Row("SETTING", "VALUE", "SOURCE")
		for _, s := range r.Settings {
			source := s.Source
			if s.File != "" {
				source += " " + s.File
			}
			table.Row(s.Name, s.Value, source)
		}
		if err := table.Flush(); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out); err != nil {
			return err
		}
	}
	table := term.NewTable(out)
	table.Row("CHECK", "STATE", "MESSAGE")
	for _, row := range r.Checks {
		table.Row(row.Name, row.State, row.Message)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%s\n", r.Summary)
	return err
}
