package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"notifier/internal/outcome/recent"
	"notifier/internal/settings"
)

// noOutcomesError is why a deployment keeps no outcomes at all.
type noOutcomesError struct{ Why string }

func (e *noOutcomesError) Error() string { return "outcomes are not recorded: " + e.Why }

// outcomeSource is where outcomes are read from.
type outcomeSource struct {
	reader     *recent.Reader
	place      recent.Place
	connection *nats.Conn
	settings   settings.NATS
}

// readOutcomes connects to NATS and has read use what workers have recorded. The error is a
// *settings.Problems, a *noOutcomesError, that of the connection, or that of read, whose context also ends
// when the server denies something.
func readOutcomes(ctx context.Context, name string, read func(context.Context, outcomeSource) error) error {
	s, err := settings.LoadNATS()
	if err != nil {
		return err
	}
	place, err := recent.NewPlace(s.Stream, s.Pattern)
	if err != nil {
		return &noOutcomesError{err.Error()}
	}
	attempt := func(options []nats.Option) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		connection, err := nats.Connect(s.URL, append(options, endOnDenial(cancel))...)
		if err != nil {
			return fmt.Errorf("NATS_URL: no connection to %s: %w", s.Servers(), err)
		}
		defer connection.Close()
		err = read(ctx, outcomeSource{recent.NewReader(connection, place), place, connection, s})
		if errors.Is(err, context.Canceled) {
			return errors.New("interrupted")
		}
		return err
	}
	err = attempt(s.OperatorOptions(name))
	if errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), "Subscription") {
		err = attempt(s.WorkerOptions(name)) // whoever has the worker's user may read, too, below its own inbox
	}
	return err
}
