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
		Description: `Select the letters by SEQ, by -reason or -category (both have to match), or by -all. "notifier dead list"
with the same flags shows them. A deleted event is gone; "notifier dead replay" sends it instead.

Only letters that a worker wrote are deleted. Other messages of the stream are left, and reported on standard error.
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
}

func (d *deadDelete) start(ctx context.Context, s settings.NATS, stream *letters.Stream) error {
	with, err := settings.Load(settings.GroupNATS, "DEAD_LETTER_SUBJECT")
	if err != nil {
		return err
	}
	subject := with.DeadLetter
	return d.run(ctx, ctx, stream, func(letter *letters.Letter) (deadDone, error) {
		return deleteLetter(ctx, stream, subject, letter)
	})
}

// deleteLetter deletes one letter, or reports why it stays.
func deleteLetter(
	ctx context.Context,
	stream *letters.Stream,
	subject string,
	letter *letters.Letter,
) (deadDone, error) {
	line, why := deadDeleteLine{deadLetterLine: newDeadLetterLine(letter.Info), Outcome: "deleted"}, ""
	err := stream.Delete(ctx, subject, letter)
	if foreign := (*letters.LeftError)(nil); errors.As(err, &foreign) {
		why, err = foreign.Why, nil
		line.Outcome, line.Why = "left", why
	}
	if err != nil {
		return deadDone{}, err // it names the letter
	}
	return deadDone{line: line, left: why}, nil
}

// deadDeleteLine is a line of -json.
type deadDeleteLine struct {
	deadLetterLine
	Outcome string `json:"outcome"` // "deleted" or "left"
	Why     string `json:"why,omitempty"`
}
