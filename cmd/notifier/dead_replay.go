package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"

	"notifier/internal/consume/letters"
	"notifier/internal/settings"
	"notifier/internal/term"
)

// mostFailures in a row end a replay: then the letters are not the cause.
const mostFailures = 10

func deadReplayCommand() *cli.Command {
	return &cli.Command{
		Name:      "replay",
		ArgsUsage: "[SEQ...]",
		Usage:     "publish dead letters again to where they came from, the oldest first",
		Description: `SEQ is the number of a letter, as "notifier dead list" shows it; without one, all letters that match are replayed.

Each event is published as it was, to the subject it came from, and its letter is deleted once the stream has the
event. If a replay is cut off, by a crash for example, run it again: events keep their ids and are not duplicated.
Limits and mutes apply: an event that they drop is gone, and so is its letter. "notifier status CATEGORY" shows the used
slots: give -n the number of free ones.

Letters that were shortened, or whose subject is unknown, are left and reported on standard error. The exit code is 1 if
an event could not be published. Letters that arrive during a replay are not touched, so no event is replayed twice.

Examples:
   notifier dead replay 17 18
   notifier dead replay -reason slack_rejected -category deploys -n 1`,
		Flags: append(deadFlags(),
			&cli.IntFlag{Name: "n", Usage: "replay at most `N`; by default all"},
			&cli.BoolFlag{Name: "json", Usage: "write a line of JSON for each letter, and one with the counts"}),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			filter, err := parseSeqs(cmd)
			if err != nil {
				return err
			}
			replay := deadReplay{deadWork: newDeadWork(cmd, filter, "replayed", "put_back")}
			// An interrupt ends it between two letters: one that was published is also deleted.
			return withDeadLetters(
				context.WithoutCancel(ctx),
				"notifier dead replay",
				func(work context.Context, _ settings.NATS, stream *letters.Stream) error {
					return replay.start(ctx, work, stream)
				},
			)
		},
	}
}

// deadReplay is one run of the command.
type deadReplay struct {
	deadWork
	failed int // of those left
	inARow int // failures since the last success
}

// start replays letters until the context until is done. The letter at hand is finished within work.
func (r *deadReplay) start(until, work context.Context, stream *letters.Stream) error {
	reading, stop := context.WithCancelCause(work)
	defer stop(nil)
	defer context.AfterFunc(until, func() { stop(context.Canceled) })()
	replay := func(letter *letters.Letter) (deadDone, error) { return r.one(work, stream, letter) }
	err := r.run(reading, until, stream, replay)
	if err == nil && r.failed > 0 {
		err = fmt.Errorf("%s could not be published", term.Count(r.failed, "event"))
	}
	return err
}

// one replays one letter, or says why it stays.
func (r *deadReplay) one(
	ctx context.Context,
	stream *letters.Stream,
	letter *letters.Letter,
) (deadDone, error) {
	receipt, err := stream.Replay(ctx, letter)
	left, failed := (*letters.LeftError)(nil), (*letters.PublishError)(nil)
	switch {
	case err == nil:
		r.inARow = 0
		return replayed(letter, receipt, ""), nil
	case errors.As(err, &left):
		return replayed(letter, letters.Receipt{}, left.Why), nil
	case errors.As(err, &failed):
		r.failed++
		if r.inARow++; r.inARow == mostFailures {
			err = fmt.Errorf("%d letters in a row could not be published, the others were not tried", mostFailures)
		} else {
			err = nil
		}
		return replayed(letter, letters.Receipt{}, failed.Why), err
	case receipt.Stream != "":
		return deadDone{}, fmt.Errorf(
			"%s was replayed, but not deleted: %w; replay it again within the stream's duplicate window (two minutes by default) to avoid a second event",
			letterName(letter.Info),
			err,
		)
	default:
		return deadDone{}, fmt.Errorf("%s: %w", letterName(letter.Info), err)
	}
}

// deadReplayLine is a line of -json.
type deadReplayLine struct {
	deadLetterLine
	Outcome   string `json:"outcome"` // "put_back" or "left"
	Why       string `json:"why,omitempty"`
	NewStream string `json:"new_stream,omitempty"`
	NewSeq    uint64 `json:"new_stream_seq,omitempty"`
	Duplicate bool   `json:"duplicate,omitempty"` // it had been replayed before
}

// replayed reports a letter. If why is empty, the letter was published.
func replayed(letter *letters.Letter, receipt letters.Receipt, why string) deadDone {
	line := deadReplayLine{
		deadLetterLine: newDeadLetterLine(letter.Info), Outcome: "put_back", Why: why,
		NewStream: receipt.Stream, NewSeq: receipt.Seq, Duplicate: receipt.Duplicate,
	}
	if why != "" {
		line.Outcome = "left"
	}
	return deadDone{line: line, left: why}
}
