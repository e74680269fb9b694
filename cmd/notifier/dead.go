package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/internal/consume/letters"
	"notifier/internal/settings"
)

func deadCommand() *cli.Command {
	return &cli.Command{
		Name:  "dead",
		Usage: "list the events that could never be sent, show one, replay or delete them",
		Description: `Such events are kept as dead letters in the stream <NATS_STREAM>_DEAD, each with the reason. Fix the cause first: an event
that is replayed is decided like any other, and can become a dead letter again. Without a command it lists the newest.

Example:
   notifier dead list`,
		Commands: []*cli.Command{deadListCommand(), deadShowCommand(), deadReplayCommand(), deadDeleteCommand()},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return cmdline.Usage(cmd, cmdline.UnknownCommand(cmd, cmd.Args().First()))
			}
			list := deadList{most: listedLetters, out: cmd.Root().Writer, errOut: cmd.Root().ErrWriter}
			return withDeadLetters(ctx, "notifier dead", list.run)
		},
	}
}

// listedLetters is the default limit of dead list.
const listedLetters = 100

func deadListCommand() *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "show dead letters, the newest last",
		Description: `Each line shows when the event was dead-lettered, its category, the reason with its detail, the event's id and the
sequence of the letter in the stream <NATS_STREAM>_DEAD. No payload is shown.

Example:
   notifier dead list -reason unroutable -category deploys`,
		Flags: append(deadFlags(),
			&cli.IntFlag{Name: "n", Value: listedLetters, Usage: "show the newest `N`"},
			&cli.BoolFlag{Name: "json", Usage: "write each letter as a line of JSON instead of the table"}),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := cmdline.NoArguments(cmd); err != nil {
				return err
			}
			filter, err := parseDead(cmd)
			if err != nil {
				return err
			}
			list := deadList{
				filter: filter,
				most:   cmd.Int("n"),
				json:   cmd.Bool("json"),
				out:    cmd.Root().Writer,
				errOut: cmd.Root().ErrWriter,
			}
			return withDeadLetters(ctx, "notifier dead list", list.run)
		},
	}
}

// endOnDenial cancels a command's context if the server denies an operation. NATS reports a denial in a
// separate message, not in its reply to the request.
func endOnDenial(cancel context.CancelCauseFunc) nats.Option {
	return nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			cancel(err)
		}
	})
}

// withDeadLetters opens the dead-letter stream and calls do. If the stream does not exist yet, do receives
// nil. A denial by the server cancels the context of do.
func withDeadLetters(
	ctx context.Context,
	name string,
	do func(ctx context.Context, s settings.NATS, stream *letters.Stream) error,
) error {
	loaded, err := settings.Load(settings.GroupNATS)
	if err != nil {
		return err
	}
	s := loaded.NATS
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	connection, err := s.Connect(s.URL, append(s.OperatorOptions(name), endOnDenial(cancel))...)
	if err != nil {
		return fmt.Errorf("NATS_URL: no connection to %s: %w", s.Servers(), err)
	}
	defer connection.Close()
	stream, err := letters.Open(ctx, connection, s.Stream, s.Pattern)
	if err == nil || errors.Is(err, letters.ErrNoStream) {
		err = do(ctx, s, stream)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted")
	case errors.Is(err, nats.ErrPermissionViolation):
		return fmt.Errorf(
			"%w; docs/security.md has the permissions of an operator, and under compose docker compose run --rm cli has them",
			err,
		)
	}
	return err
}

// deadProgress writes once a second to standard error how far it is.
type deadProgress struct {
	out      io.Writer
	what     string
	reported time.Time
}

func newDeadProgress(out io.Writer, what string) *deadProgress {
	return &deadProgress{out: out, what: what, reported: time.Now()}
}

func (p *deadProgress) report(n int) error {
	now := time.Now()
	if now.Sub(p.reported) < time.Second {
		return nil
	}
	p.reported = now
	_, err := fmt.Fprintf(p.out, "%d %s so far\n", n, p.what)
	return err
}

// lastLine returns the summary that ends a command's output. If none is set, the stream does not exist. If
// stopped is set, the command reached its limit of most letters.
func (f deadFilter) lastLine(counts string, none, stopped bool, most int) string {
	line := counts
	if f.isSet() {
		line += " of those that match" // there may be others
	}
	if none {
		line = "no dead letters: the stream for them does not exist yet"
	}
	if stopped {
		line += fmt.Sprintf("; stopped after %d, later letters were not examined", most)
	}
	return line
}
