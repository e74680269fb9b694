package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v3"

	"notifier/internal/deadletter"
	"notifier/internal/settings"
	"notifier/internal/term"
)

func deadDeleteCommand() *cli.Command {
	return &cli.Command{
		Name:  "delete",
		Usage: "delete dead letters for good, the oldest first",
		Description: `What is to be deleted must be named: by -seq, by -reason or -category (both have to match), or by -all. "notifier dead list"
with the same flags shows what that is. A deleted event is gone; "notifier dead replay" is what sends it.

Only letters that a worker wrote are deleted. What others have put into the stream is left and reported on standard error.
Letters that arrive meanwhile are not touched.

Examples:
   notifier dead delete -seq 17
   notifier dead delete -reason malformed -category errors`,
		Flags: append(deadFlags(),
			&cli.BoolFlag{Name: "all", Usage: "delete all letters"},
			&cli.IntFlag{Name: "n", Usage: "delete at most `N`; by default all that match"},
			&cli.BoolFlag{Name: "json", Usage: "write a line of JSON for each letter, and one with the counts"}),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			filter, err := parseDead(cmd)
			if err != nil {
				return err
			}
			switch all := cmd.Bool("all"); {
			case !all && !filter.isSet():
				return usage(cmd, "missing what to delete: expected -seq, -reason, -category or -all")
			case all && filter.isSet():
				return usage(cmd, "-all cannot be used with -seq, -reason or -category")
			}
			remove := deadDelete{filter: filter, most: cmd.Int("n"), json: cmd.Bool("json"), out: cmd.Root().Writer, errOut: cmd.Root().ErrWriter}
			return remove.start(ctx)
		},
	}
}

// deadDelete is one run of the command.
type deadDelete struct {
	filter deadFilter
	most   int // letters deleted; 0: all
	json   bool
	out    io.Writer
	errOut io.Writer

	bin      *deadletter.Bin
	deleted  int
	left     int
	progress *deadProgress
}

func (d *deadDelete) start(ctx context.Context) error {
	source, err := settings.LoadNATS()
	if err != nil {
		return err
	}
	subject, err := settings.LoadDeadLetterSubject(source.Stream, source.Pattern)
	if err != nil {
		return err
	}
	return withDeadLetters(ctx, "notifier dead delete", func(ctx context.Context, letters *deadletter.Stream) error {
		return d.run(ctx, letters, subject)
	})
}

func (d *deadDelete) run(ctx context.Context, letters *deadletter.Stream, subject string) error {
	if letters == nil {
		if err := d.filter.noStream(); err != nil {
			return err
		}
		return d.finish(true, false)
	}
	var err error
	if d.bin, err = letters.Bin(subject); err != nil {
		return err
	}
	d.progress = newDeadProgress(d.errOut, "deleted")
	err = d.filter.each(ctx, letters, letters.Scan, func(letter *deadletter.Letter) error {
		if !d.filter.matches(letter) {
			return nil
		}
		if err := d.one(ctx, letter); err != nil {
			return err
		}
		if d.most > 0 && d.deleted == d.most {
			return errEnough
		}
		return nil
	})
	stopped := errors.Is(err, errEnough)
	if stopped {
		err = nil
	}
	return errors.Join(err, d.finish(false, stopped))
}

// one deletes one letter, or reports why it stays.
func (d *deadDelete) one(ctx context.Context, letter *deadletter.Letter) error {
	err := d.bin.Delete(ctx, letter)
	if foreign := (*deadletter.NotOursError)(nil); errors.As(err, &foreign) {
		d.left++
		_, err := fmt.Fprintf(d.errOut, "%s was left: %s\n", letterName(letter.Info), term.Printable(foreign.Why))
		return errors.Join(err, d.report(letter, foreign.Why))
	}
	if err != nil {
		return err // it names the letter
	}
	d.deleted++
	return errors.Join(d.report(letter, ""), d.progress.report(d.deleted))
}

// deadDeleteLine is a line of -json: the letter, and what became of it.
type deadDeleteLine struct {
	deadLetterLine
	Outcome string `json:"outcome"` // "deleted" or "left"
	Why     string `json:"why,omitempty"`
}

func (d *deadDelete) report(letter *deadletter.Letter, why string) error {
	if !d.json {
		return nil
	}
	line := deadDeleteLine{deadLetterLine: newDeadLetterLine(letter.Info), Outcome: "deleted", Why: why}
	if why != "" {
		line.Outcome = "left"
	}
	return term.NewJSON(d.out).Encode(line)
}

// finish writes the last line.
func (d *deadDelete) finish(none, stopped bool) error {
	if d.json {
		_, err := fmt.Fprintf(d.out, "{\"deleted\":%d,\"left\":%d}\n", d.deleted, d.left)
		return err
	}
	_, err := fmt.Fprintln(d.out, d.filter.lastLine(fmt.Sprintf("%d deleted, %d left", d.deleted, d.left), none, stopped, d.most))
	return err
}
