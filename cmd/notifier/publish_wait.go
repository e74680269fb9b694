package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/internal/outcome"
	"notifier/internal/outcome/recent"
	"notifier/internal/settings"
	"notifier/internal/term"
)

// maxAwaited bounds the events of -wait. In a storm workers record about as many outcomes of a category.
const maxAwaited = 100

// The pause between two reads of the outcomes grows from minPoll to maxPoll.
const (
	minPoll = 100 * time.Millisecond
	maxPoll = 2 * time.Second
)

// outcomeSource reads the outcomes that workers record.
type outcomeSource struct {
	reader *recent.Reader
	stream string
}

// openOutcomes reads once, so that nothing is published without permission to read. The stream may be absent:
// the first outcome creates it.
func openOutcomes(ctx context.Context, connection *nats.Conn, s settings.NATS) (outcomeSource, error) {
	place, err := recent.NewPlace(s.Stream, s.Pattern)
	if err != nil {
		return outcomeSource{}, fmt.Errorf("-wait: no outcomes are recorded: %w; nothing was published", err)
	}
	o := outcomeSource{recent.NewReader(connection, place), place.Stream}
	if _, err := o.reader.Of(ctx, "none", ""); err != nil && !errors.Is(err, recent.ErrNoStream) {
		return o, fmt.Errorf("%w; nothing was published", o.unreadable(ctx, err))
	}
	return o, nil
}

// unreadable explains why outcomes cannot be read. The cause of ctx, such as a denial, explains more than
// err.
func (o outcomeSource) unreadable(ctx context.Context, err error) error {
	err = cmp.Or(context.Cause(ctx), err)
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted")
	case errors.Is(err, nats.ErrPermissionViolation):
		return fmt.Errorf("-wait may not read stream %s: %w; docs/publishing.md names the permission",
			o.stream, err)
	}
	return fmt.Errorf("-wait cannot read stream %s: %w", o.stream, err)
}

// showOutcomes waits for the outcomes of events and writes those that are known in time, in the order of
// publication.
func showOutcomes(ctx context.Context, o outcomeSource, events []publishedEvent, cmd *cli.Command) error {
	timeout := cmd.Duration("timeout")
	end := time.Now().Add(timeout)
	var records []outcome.Record
	var missing []string
	var failed error
	unsent := false
	for _, e := range events {
		record, found, err := o.await(ctx, e, end)
		if failed = err; failed != nil {
			break
		}
		if !found {
			missing = append(missing, e.EventID)
			continue
		}
		records = append(records, record)
		unsent = unsent || record.Outcome != outcome.Sent
	}
	if len(missing) > 0 && failed == nil {
		failed = fmt.Errorf(
			"no outcome of %s after %s: still waiting, or not recorded; try \"notifier why %s\"",
			term.Count(len(missing), "event"), timeout, term.Printable(missing[0]))
	}
	write := writeRecords
	if cmd.Bool("json") {
		write = writeJSON[outcome.Record]
	}
	if len(records) > 0 {
		failed = errors.Join(failed, write(cmd.Root().Writer, records))
	}
	if !unsent {
		return failed
	}
	if failed != nil {
		cmdline.Warn(cmd, failed)
	}
	return cli.Exit("", exitUnsent)
}

// await reads the outcome of an event until it is recorded or the time is up. It reads at least once.
func (o outcomeSource) await(
	ctx context.Context, e publishedEvent, end time.Time,
) (record outcome.Record, found bool, err error) {
	for pause := minPoll; ; pause = min(pause*3/2, maxPoll) {
		record, found, err = o.find(ctx, e)
		left := time.Until(end)
		switch {
		case found:
			return record, true, nil
		case ctx.Err() != nil || left <= 0 && err != nil:
			return record, false, o.unreadable(ctx, err)
		case left <= 0:
			return record, false, nil
		}
		select {
		case <-time.After(min(pause, left)):
		case <-ctx.Done():
		}
	}
}

// find returns the outcome of an event, if it is recorded. A redelivered event may have two: the second is a
// duplicate of the first.
func (o outcomeSource) find(
	ctx context.Context, e publishedEvent,
) (found outcome.Record, ok bool, err error) {
	records, err := o.reader.Of(ctx, e.EventID, e.Category)
	for _, r := range records {
		if r.StreamSeq == e.StreamSeq && (!ok || found.Reason == outcome.Duplicate) {
			found, ok = r, true
		}
	}
	return found, ok, err
}
