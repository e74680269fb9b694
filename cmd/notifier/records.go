package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"notifier/internal/denial"
	"notifier/internal/outcome"
	"notifier/internal/outcome/recent"
	"notifier/internal/settings"
	"notifier/internal/term"
)

// recordSource is an open connection to the recorded outcomes.
type recordSource struct {
	reader     *recent.Reader
	place      recent.Place
	connection *nats.Conn
	settings   settings.NATS
}

// readRecords connects to NATS and calls read. The context of read also ends if the server denies a request.
func readRecords(
	ctx context.Context, s settings.NATS, name string, read func(context.Context, recordSource) error,
) error {
	place, err := recent.NewPlace(s.Stream, s.Pattern)
	if err != nil {
		return fmt.Errorf("outcomes are not recorded: %w", err)
	}
	attempt := func(options []nats.Option) error {
		return connected(ctx, s, options, func(ctx context.Context, connection *nats.Conn) error {
			return read(ctx, recordSource{recent.NewReader(connection, place), place, connection, s})
		})
	}
	err = attempt(s.OperatorOptions(name))
	if errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), "Subscription") {
		err = attempt(s.WorkerOptions(name)) // a worker's user may receive replies below its own inbox alone
	}
	return err
}

// connected connects to NATS and calls do. If the server denies a request, the context of do ends with that
// as its cause.
func connected(
	ctx context.Context,
	s settings.NATS,
	options []nats.Option,
	do func(context.Context, *nats.Conn) error,
) error {
	watch := denial.NewWatch()
	ctx, end := watch.Context(ctx)
	defer end()
	connection, err := connectNATS(s, append(options, watch.Option()))
	if err != nil {
		return err
	}
	defer connection.Close()
	return interrupted(do(ctx, connection))
}

// connectNATS connects to NATS. Its error names the setting and the servers.
func connectNATS(s settings.NATS, options []nats.Option) (*nats.Conn, error) {
	connection, err := s.Connect(s.URL, options...)
	if err != nil {
		return nil, fmt.Errorf("NATS_URL: no connection to %s: %w", s.Servers(), err)
	}
	return connection, nil
}

// writeRecords writes records as a table.
func writeRecords(out io.Writer, records []outcome.Record) error {
	columns := len(recent.Columns)
	if !slices.ContainsFunc(records, func(r outcome.Record) bool { return r.Source != "" }) {
		columns-- // SOURCE is the last
	}
	table := term.NewTable(out)
	row := func(cells []string) {
		shown := make([]any, columns)
		for i := range shown {
			shown[i] = term.Cell(cells[i])
		}
		table.Row(shown...)
	}
	row(recent.Columns)
	for _, r := range records {
		row(recent.Row(r))
	}
	return table.Flush()
}

// writeJSON writes values as lines of JSON.
func writeJSON[T any](out io.Writer, values []T) error {
	buffered := bufio.NewWriter(out)
	encoder := term.NewJSON(buffered)
	for _, value := range values {
		if err := encoder.Encode(value); err != nil {
			return err
		}
	}
	return buffered.Flush()
}
