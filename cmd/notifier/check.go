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
	"notifier/internal/preflight"
	"notifier/internal/settings"
	"notifier/internal/term"
)

func checkCommand() *cli.Command {
	return &cli.Command{
		Name:  "check",
		Usage: "check whether a worker with these settings could do its job; changes nothing",
		Description: `Reads the settings as a worker does, and asks NATS, Redis and Slack. Nothing is created, published, charged, posted or
written, so it can be run next to workers at any time. First it shows the settings that are set, and where their values come from,
then one line for each check:
   ok     as it should be
   note   good to know
   warn   it works, but may cause trouble later; with what to do about it
   fail   a worker could not do its job
Secrets are never shown. Exit code 0: nothing failed; 1: something failed; 2: invalid configuration, all of it listed.
With -strict a warning is a failure, too: for deployments.

Examples:
   notifier check
   docker compose run --rm cli check -all
   notifier check -strict
   notifier check -json | jq '.checks[] | select(.level != "ok")'`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "all", Usage: "also show the settings that have their defaults"},
			&cli.BoolFlag{Name: "json", Usage: "write one JSON object, with all settings, instead of the lines"},
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
			defer func() { _ = s.Store.Redis.Close() }() // nothing is written through it
			app.SilenceRedis()
			store, err := app.OpenStore(s.Store, s.StatusConfig())
			if err != nil {
				return err
			}
			check := checkOutput{
				areas: preflight.Run(ctx, s, store.Status), origins: origins, strict: cmd.Bool("strict"),
				out: cmd.Root().Writer, errOut: cmd.Root().ErrWriter,
			}
			if cmd.Bool("json") {
				return check.json(ctx)
			}
			return check.lines(ctx, cmd.Bool("all"))
		},
	}
}

// checkOutput writes what one run of the command finds.
type checkOutput struct {
	areas   []*preflight.Area
	origins []settings.Origin
	strict  bool // a warning is a failure
	out     io.Writer
	errOut  io.Writer
}

// levelColour is how a terminal shows a level.
var levelColour = map[preflight.Level]term.Colour{
	preflight.OK: term.Green, preflight.Note: term.Bold, preflight.Warn: term.Yellow, preflight.Fail: term.Red,
}

// lines writes the settings, and each area as soon as it and those before it are done.
func (c *checkOutput) lines(ctx context.Context, all bool) error {
	if err := writeOrigins(c.out, c.origins, all); err != nil {
		return err
	}
	screen := term.ScreenOf(c.out)
	for i, area := range c.areas {
		c.wait(c.areas[i:])
		for _, finding := range area.Findings() {
			if err := writeFinding(c.out, screen, area.Name, finding); err != nil {
				return err
			}
		}
	}
	if err := c.result(ctx); err != nil {
		return err
	}
	summary := "nothing failed"
	if n := c.count(preflight.Warn); n > 0 {
		summary += ", " + term.Count(n, "warning")
	}
	_, err := fmt.Fprintln(c.out, "\n"+summary)
	return err
}

// wait waits for the first of the areas. After a second, and whenever another one is done since, it writes to
// standard error what it is still waiting for.
func (c *checkOutput) wait(areas []*preflight.Area) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	reported := ""
	for {
		select {
		case <-areas[0].Done():
			return
		case <-ticker.C:
		}
		if names := unfinished(areas); names != reported {
			reported = names
			_, _ = fmt.Fprintf(c.errOut, "waiting for %s\n", names) // the lines are what counts
		}
	}
}

func unfinished(areas []*preflight.Area) string {
	var names []string
	for _, area := range areas {
		select {
		case <-area.Done():
		default:
			names = append(names, area.Name)
		}
	}
	return strings.Join(names, ", ")
}

func (c *checkOutput) count(level preflight.Level) int {
	n := 0
	for _, area := range c.areas {
		n += area.Count(level)
	}
	return n
}

// result is the error that names what failed, with -strict also what has warnings, or nil.
func (c *checkOutput) result(ctx context.Context) error {
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	var reasons []string
	if failed := c.areasWith(preflight.Fail); len(failed) > 0 {
		reasons = append(reasons, "failed: "+strings.Join(failed, ", "))
	}
	if warned := c.areasWith(preflight.Warn); c.strict && len(warned) > 0 {
		reasons = append(
			reasons,
			fmt.Sprintf(
				"%s, and -strict allows none: %s",
				term.Count(c.count(preflight.Warn), "warning"),
				strings.Join(warned, ", "),
			),
		)
	}
	if len(reasons) == 0 {
		return nil
	}
	return errors.New(strings.Join(reasons, "; "))
}

// areasWith are the names of the areas that have a finding of a level.
func (c *checkOutput) areasWith(level preflight.Level) []string {
	var names []string
	for _, area := range c.areas {
		if area.Count(level) > 0 {
			names = append(names, area.Name)
		}
	}
	return names
}

// writeFinding writes a line for people: "warn  redis     ...".
func writeFinding(out io.Writer, screen term.Screen, area string, finding preflight.Finding) error {
	level := screen.Paint(levelColour[finding.Level], fmt.Sprintf("%-4s", finding.Level))
	text := finding.Text
	if finding.Advice != "" {
		text += "; " + finding.Advice
	}
	_, err := fmt.Fprintf(out, "%s  %-8s  %s\n", level, area, text)
	return err
}

// writeOrigins writes the settings as a table: those that are set, or all.
func writeOrigins(out io.Writer, origins []settings.Origin, all bool) error {
	table := term.NewTable(out)
	omitted := 0
	for _, origin := range origins {
		if origin.Source == settings.FromDefault && !all {
			omitted++
			continue
		}
		source := origin.Source
		if origin.File != "" {
			source += " " + term.Printable(origin.File)
		}
		table.Row(origin.Name, origin.Shown(), source)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if omitted > 0 {
		more := term.Count(omitted, "more setting")
		if _, err := fmt.Fprintf(out, "%s at the default; -all shows them\n", more); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(out)
	return err
}

// checkJSON is what -json writes.
type checkJSON struct {
	OK       bool             `json:"ok"` // nothing failed; with -strict there is no warning either
	Settings []checkedSetting `json:"settings"`
	Checks   []checkedFinding `json:"checks"`
}

type checkedSetting struct {
	Name   string `json:"name"`
	Value  string `json:"value"` // as the lines show it
	Source string `json:"source"`
	File   string `json:"file,omitempty"`
}

type checkedFinding struct {
	Level   preflight.Level `json:"level"`
	Subject string          `json:"subject"`
	Text    string          `json:"text"`
	Advice  string          `json:"advice,omitempty"`
}

func (c *checkOutput) json(ctx context.Context) error {
	for i := range c.areas {
		c.wait(c.areas[i:])
	}
	result := c.result(ctx)
	answer := checkJSON{OK: result == nil}
	for _, origin := range c.origins {
		answer.Settings = append(
			answer.Settings,
			checkedSetting{Name: origin.Name, Value: origin.Shown(), Source: origin.Source, File: origin.File},
		)
	}
	for _, area := range c.areas {
		for _, finding := range area.Findings() {
			answer.Checks = append(
				answer.Checks,
				checkedFinding{Level: finding.Level, Subject: area.Name, Text: finding.Text, Advice: finding.Advice},
			)
		}
	}
	encoder := term.NewJSON(c.out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(answer); err != nil {
		return err
	}
	return result
}
