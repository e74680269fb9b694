package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v3"

	"notifier/internal/consume/letters"
	"notifier/internal/term"
)

// deadWork is shared by "dead replay" and "dead delete": both work on each matching letter and report it.
type deadWork struct {
	filter deadFilter
	most   int // limits the letters worked on; 0 means no limit
	json   bool
	out    io.Writer
	errOut io.Writer
	verb   string // "replayed", as the last line has it
	count  string // "put_back", as the last line has it with json

	done int
	left int
}

// newDeadWork reads the flags of a command.
func newDeadWork(cmd *cli.Command, filter deadFilter, verb, count string) deadWork {
	return deadWork{
		filter: filter, most: cmd.Int("n"), json: cmd.Bool("json"),
		out: cmd.Root().Writer, errOut: cmd.Root().ErrWriter,
		verb: verb, count: count,
	}
}

// deadDone reports one letter. The zero value reports nothing.
type deadDone struct {
	line any    // of -json
	left string // why the letter stays; empty if the work is done
}

// errEnough ends a walk when as many letters are done as should be.
var errEnough = errors.New("enough")

// run gives the letters that match to do, one after the other, and writes a last line. It stops between two
// letters when until ends, and where do fails. stream is nil where there is no stream of them.
func (w *deadWork) run(
	ctx, until context.Context,
	stream *letters.Stream,
	do func(*letters.Letter) (deadDone, error),
) error {
	if stream == nil {
		if err := w.filter.noStream(); err != nil {
			return err
		}
		return w.finish(true, false)
	}
	progress := newDeadProgress(w.errOut, w.verb)
	err := w.filter.each(ctx, stream, func(letter *letters.Letter) error {
		if !w.filter.matches(letter) {
			return until.Err()
		}
		result, err := do(letter)
		if result.line != nil { // also where no other letter is to be tried
			if failed := w.report(letter, result, progress); err == nil {
				err = failed
			}
		}
		switch {
		case err != nil:
			return err
		case w.most > 0 && w.done == w.most:
			return errEnough
		}
		return until.Err()
	})
	stopped := errors.Is(err, errEnough)
	if stopped {
		err = nil
	}
	return errors.Join(err, w.finish(false, stopped))
}

// report counts a letter and writes its line.
func (w *deadWork) report(letter *letters.Letter, result deadDone, progress *deadProgress) error {
	var err error
	if result.left == "" {
		w.done++
		err = progress.report(w.done)
	} else {
		w.left++
		_, err = fmt.Fprintf(w.errOut, "%s was left: %s\n", letterName(letter.Info), term.Printable(result.left))
	}
	if w.json {
		err = errors.Join(err, term.NewJSON(w.out).Encode(result.line))
	}
	return err
}

// finish writes the last line. none: there is no stream of letters; stopped: at the most letters that should
// be done.
func (w *deadWork) finish(none, stopped bool) error {
	if w.json {
		_, err := fmt.Fprintf(w.out, "{\"%s\":%d,\"left\":%d}\n", w.count, w.done, w.left)
		return err
	}
	_, err := fmt.Fprintln(
		w.out,
		w.filter.lastLine(fmt.Sprintf("%d %s, %d left", w.done, w.verb, w.left), none, stopped, w.most),
	)
	return err
}
