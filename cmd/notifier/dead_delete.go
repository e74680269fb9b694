package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/internal/consume/letters"
	"notifier/internal/settings"
)

func deadDeleteCommand() *cli.Command {
	return &cli.Command{
		Name:      "delete",
		ArgsUsage: "[SEQ...]",
		Usage:     "delete dead letters for good, the oldest first",
		Description: `What is to be deleted must be named: by SEQ, by -reason or -category (both have to match), or by -all. "notifier dead list"
with the same flags shows what that is. A deleted event is gone; "notifier dead replay" is what sends it.

Only letters that a worker wrote are deleted. What others have put into the stream is left and reported on standard error.
Letters that arrive meanwhile are not touched.

Examples:
   notifier dead delete 17 18
   notifier dead delete -reason malformed -category errors`,
		Flags: append(deadFlags(),
			&cli.BoolFlag{Name: "all", Usage: "delete all letters"},
			&cli.IntFlag{Name: "n", Usage: "delete at most `N`; by default all that match"},
			&cli.BoolFlag{Name: "json", Usage: "write a line of JSON for each letter, and one with the counts"}),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			filter, err := parseSeqs(cmd)
			if err != nil {
				return err
			}
			switch all := cmd.Bool("all"); {
			case !all && !filter.isSet():
				return cmdline.Usage(cmd, "missing what to delete: expected SEQ, -reason, -category or -all")
			case all && filter.isSet():
				return cmdline.Usage(cmd, "-all cannot be used with SEQ, -reason or -category")
			}
			remove := deadDelete{deadWork: newDeadWork(cmd, filter, "deleted", "deleted")}
			return withDeadLetters(ctx, "notifier dead delete", remove.start)
		},
	}
}

// deadDelete is one run of the command.
type deadDelete struct {
	deadWork
	bin *letters.Bin
}

func (d *deadDelete) start(ctx context.Context, s settings.NATS, stream *letters.Stream) error {
	subject, err := settings.LoadDeadLetterSubject(s.Stream, s.Pattern)
	if err != nil {
		return err
	}
	if stream != nil {
		if d.bin, err = stream.Bin(subject); err != nil {
			return err
		}
	}
	return d.run(
		ctx,
		ctx,
		stream,
		(*letters.Stream).Scan,
		func(letter *letters.Letter) (deadDone, error) { return d.one(ctx, letter) },
	)
}

// one deletes one letter, or says why it stays.
func (d *deadDelete) one(ctx context.Context, letter *letters.Letter) (deadDone, error) {
	line, why := deadDeleteLine{deadLetterLine: newDeadLetterLine(letter.Info), Outcome: "deleted"}, ""
	err := d.bin.Delete(ctx, letter)
	if foreign := (*letters.NotOursError)(nil); errors.As(err, &foreign) {
		why, err = foreign.Why, nil
		line.Outcome, line.Why = "left", why
	}
	if err != nil {
		return deadDone{}, err // it names the letter
	}
	return deadDone{line: line, left: why}, nil
}

// deadDeleteLine is a line of -json: the letter, and what became of it.
type deadDeleteLine struct {
	deadLetterLine
	Outcome string `json:"outcome"` // "deleted" or "left"
	Why     string `json:"why,omitempty"`
}
