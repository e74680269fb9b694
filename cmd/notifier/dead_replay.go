package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v3"

	"notifier/internal/deadletter"
)

// mostFailures in a row end a replay: then the cause is not in the letters.
const mostFailures = 10

func deadReplayCommand() *cli.Command {
	return &cli.Command{
		Name:  "replay",
		Usage: "put dead letters back to where they came from, the oldest first",
		Description: `Each event is published as it was, to the subject it came from, and its letter is deleted when the stream has the
event. Ended in between, by a crash say, replay it again: the event keeps its id, and is not doubled.

Letters that were shortened, or that do not say where they came from, are left and told on standard error. The exit
code is 1 when an event could not be published. Letters that come in meanwhile are not touched, so that none is put
back twice in one go.

Example:
   notifier dead replay -reason slack_rejected -category deploys -n 1`,
		Flags: append(deadFlags(),
			&cli.IntFlag{Name: "n", Usage: "put back at most `N`; without it all"},
			&cli.BoolFlag{Name: "json", Usage: "write a line of JSON for each letter, and one with the counts"}),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			filter, err := parseDead(cmd)
			if err != nil {
				return err
			}
			replay := deadReplay{filter: filter, most: cmd.Int("n"), json: cmd.Bool("json"), out: cmd.Root().Writer, errOut: cmd.Root().ErrWriter}
			// An interrupt ends it between two letters: one that was published is deleted, too.
			return withDeadLetters(context.WithoutCancel(ctx), "notifier dead replay", func(work context.Context, letters *deadletter.Stream) error {
				return replay.run(ctx, work, letters)
			})
		},
	}
}

// deadReplay is one run of the command.
type deadReplay struct {
	filter deadFilter
	most   int // letters put back; 0: all
	json   bool
	out    io.Writer
	errOut io.Writer

	put      int
	left     int
	failed   int // of those left
	inARow   int // failures since the last success
	progress *deadProgress
}

// errEnough ends a replay that has put back as many as it should.
var errEnough = errors.New("enough")

// run looks between two letters whether ctx has ended; what it does with a letter ends with work.
func (r *deadReplay) run(ctx, work context.Context, letters *deadletter.Stream) error {
	var err error
	if letters != nil {
		reading, stop := context.WithCancelCause(work)
		defer stop(nil)
		defer context.AfterFunc(ctx, func() { stop(context.Canceled) })()
		r.progress = newDeadProgress(r.errOut, "put back")
		err = letters.Each(reading, func(letter *deadletter.Letter) error {
			if !r.filter.matches(letter) {
				return ctx.Err()
			}
			if err := r.one(work, letters, letter); err != nil {
				return err
			}
			if r.most > 0 && r.put == r.most {
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
		err = fmt.Errorf("%s could not be published", counted(r.failed, "event"))
	}
	return errors.Join(err, r.finish(letters == nil, stopped))
}

// one puts one letter back, or tells why it stays.
func (r *deadReplay) one(ctx context.Context, letters *deadletter.Stream, letter *deadletter.Letter) error {
	receipt, err := letters.PutBack(ctx, letter)
	left, failed := (*deadletter.Left)(nil), (*deadletter.Failed)(nil)
	switch {
	case err == nil:
		r.put++
		r.inARow = 0
		return errors.Join(r.tell(letter, receipt, ""), r.progress.tell(r.put))
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
		return fmt.Errorf("%s is put back, but: %w; replay it again within the stream's duplicate window (two minutes, if nobody has set it), and there is no second event", letterName(letter.Info), err)
	default:
		return fmt.Errorf("%s: %w", letterName(letter.Info), err)
	}
}

func (r *deadReplay) leave(letter *deadletter.Letter, why string) error {
	r.left++
	_, err := fmt.Fprintf(r.errOut, "%s is left: %s\n", letterName(letter.Info), plain(why))
	return errors.Join(err, r.tell(letter, deadletter.Receipt{}, why))
}

// deadReplayLine is a line of -json: the letter, and what became of it.
type deadReplayLine struct {
	deadLetterLine
	Outcome   string `json:"outcome"` // "put_back" or "left"
	Why       string `json:"why,omitempty"`
	NewStream string `json:"new_stream,omitempty"`
	NewSeq    uint64 `json:"new_stream_seq,omitempty"`
	Duplicate bool   `json:"duplicate,omitempty"` // it had been put back before
}

func (r *deadReplay) tell(letter *deadletter.Letter, receipt deadletter.Receipt, why string) error {
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
	encoder := json.NewEncoder(r.out)
	encoder.SetEscapeHTML(false) // as the log
	return encoder.Encode(line)
}

// finish writes the last line.
func (r *deadReplay) finish(none, stopped bool) error {
	if r.json {
		_, err := fmt.Fprintf(r.out, "{\"put_back\":%d,\"left\":%d}\n", r.put, r.left)
		return err
	}
	line := fmt.Sprintf("%d put back, %d left", r.put, r.left)
	if r.filter != (deadFilter{}) {
		line += " of those chosen" // others may be there
	}
	if none {
		line = "no dead letters: the stream that keeps them is not there yet"
	}
	if stopped {
		line += fmt.Sprintf("; those behind the first %d were not looked at", r.most)
	}
	_, err := fmt.Fprintln(r.out, line)
	return err
}
