package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v3"

	"notifier/internal/deadletter"
	"notifier/internal/term"
)

// mostFailures is how many failures in a row end a replay: then the letters are not the cause.
const mostFailures = 10

func deadReplayCommand() *cli.Command {
	return &cli.Command{
		Name:  "replay",
		Usage: "publish dead letters again to where they came from, the oldest first",
		Description: `Each event is published as it was, to the subject it came from, and its letter is deleted once the stream has the
event. If a replay is cut off, by a crash for example, run it again: events keep their ids and are not duplicated.

Letters that were shortened, or whose subject is unknown, are left and reported on standard error. The exit code is 1 if
an event could not be published. Letters that arrive during a replay are not touched, so that none is replayed twice.

Examples:
   notifier dead replay -seq 17
   notifier dead replay -reason slack_rejected -category deploys -n 1`,
		Flags: append(deadFlags(),
			&cli.IntFlag{Name: "n", Usage: "replay at most `N`; by default all"},
			&cli.BoolFlag{Name: "json", Usage: "write a line of JSON for each letter, and one with the counts"}),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			filter, err := parseDead(cmd)
			if err != nil {
				return err
			}
			replay := deadReplay{filter: filter, most: cmd.Int("n"), json: cmd.Bool("json"), out: cmd.Root().Writer, errOut: cmd.Root().ErrWriter}
			// An interrupt ends it between two letters: one that was published is also deleted.
			return withDeadLetters(context.WithoutCancel(ctx), "notifier dead replay", func(work context.Context, letters *deadletter.Stream) error {
				return replay.run(ctx, work, letters)
			})
		},
	}
}

// deadReplay is one run of the command.
type deadReplay struct {
	filter deadFilter
	most   int // letters replayed; 0: all
	json   bool
	out    io.Writer
	errOut io.Writer

	replayed int
	left     int
	failed   int // of those left
	inARow   int // failures since the last success
	progress *deadProgress
}

// errEnough ends a replay that has replayed as many letters as it should.
var errEnough = errors.New("enough")

// run checks between two letters whether ctx has ended; what it does with a letter ends with work.
func (r *deadReplay) run(ctx, work context.Context, letters *deadletter.Stream) error {
	err := error(nil)
	if letters == nil {
		if err = r.filter.noStream(); err != nil {
			return err
		}
	} else {
		reading, stop := context.WithCancelCause(work)
		defer stop(nil)
		defer context.AfterFunc(ctx, func() { stop(context.Canceled) })()
		r.progress = newDeadProgress(r.errOut, "replayed")
		err = r.filter.each(reading, letters, letters.Each, func(letter *deadletter.Letter) error {
			if !r.filter.matches(letter) {
				return ctx.Err()
			}
			if err := r.one(work, letters, letter); err != nil {
				return err
			}
			if r.most > 0 && r.replayed == r.most {
				return errEnough
			}
			return ctx.Err()
		})
	}
	stopped := errors.Is(err, errEnough)
	if stopped {
		err = nil
	}
	if err == nil && r.failed > 0 {
		err = fmt.Errorf("%s could not be published", term.Count(r.failed, "event"))
	}
	return errors.Join(err, r.finish(letters == nil, stopped))
}

// one replays one letter, or reports why it stays.
func (r *deadReplay) one(ctx context.Context, letters *deadletter.Stream, letter *deadletter.Letter) error {
	receipt, err := letters.Replay(ctx, letter)
	left, failed := (*deadletter.NotReplayableError)(nil), (*deadletter.PublishError)(nil)
	switch {
	case err == nil:
		r.replayed++
		r.inARow = 0
		return errors.Join(r.report(letter, receipt, ""), r.progress.report(r.replayed))
	case errors.As(err, &left):
		return r.leave(letter, left.Why)
	case errors.As(err, &failed):
		r.failed++
		r.inARow++
		if err := r.leave(letter, failed.Why); err != nil {
			return err
		}
		if r.inARow == mostFailures {
			return fmt.Errorf("%d letters in a row could not be published, the others were not tried", mostFailures)
		}
		return nil
	case receipt.Stream != "":
		return fmt.Errorf("%s was replayed, but not deleted: %w; replay it again within the stream's duplicate window (two minutes by default) to avoid a second event", letterName(letter.Info), err)
	default:
		return fmt.Errorf("%s: %w", letterName(letter.Info), err)
	}
}

func (r *deadReplay) leave(letter *deadletter.Letter, why string) error {
	r.left++
	_, err := fmt.Fprintf(r.errOut, "%s was left: %s\n", letterName(letter.Info), term.Printable(why))
	return errors.Join(err, r.report(letter, deadletter.Receipt{}, why))
}

// deadReplayLine is a line of -json: the letter, and what became of it.
type deadReplayLine struct {
	deadLetterLine
	Outcome   string `json:"outcome"` // "put_back" or "left"
	Why       string `json:"why,omitempty"`
	NewStream string `json:"new_stream,omitempty"`
	NewSeq    uint64 `json:"new_stream_seq,omitempty"`
	Duplicate bool   `json:"duplicate,omitempty"` // it had been replayed before
}

func (r *deadReplay) report(letter *deadletter.Letter, receipt deadletter.Receipt, why string) error {
	if !r.json {
		return nil
	}
	line := deadReplayLine{
		deadLetterLine: newDeadLetterLine(letter.Info), Outcome: "put_back", Why: why,
		NewStream: receipt.Stream, NewSeq: receipt.Seq, Duplicate: receipt.Duplicate,
	}
	if why != "" {
		line.Outcome = "left"
	}
	encoder := term.NewJSON(r.out)
	return encoder.Encode(line)
}

// finish writes the last line.
func (r *deadReplay) finish(none, stopped bool) error {
	if r.json {
		_, err := fmt.Fprintf(r.out, "{\"put_back\":%d,\"left\":%d}\n", r.replayed, r.left)
		return err
	}
	_, err := fmt.Fprintln(r.out, r.filter.lastLine(fmt.Sprintf("%d replayed, %d left", r.replayed, r.left), none, stopped, r.most))
	return err
}
