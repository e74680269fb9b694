package simulate

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"notifier/internal/term"
)

// longestLine bounds one line in bytes. Lines of the worker's log have a few hundred.
const longestLine = 1 << 20

// Event is one event of the input.
type Event struct {
	Category string // 1 to 128 bytes
	ID       string // at most 256 bytes; an event without an ID is never a duplicate
	Cost     int    // slots it takes, 1 or more
	Line     int    // its line number in the input, from 1
	micros   int64  // since 1970
}

// Time returns when the event arrived, or in a worker's log when it was settled; UTC, to the microsecond.
func (e Event) Time() time.Time { return time.UnixMicro(e.micros).UTC() }

// Input holds the parsed events and counts the skipped lines.
type Input struct {
	Events     []Event // in the order of their times; of two with the same time the earlier line comes first
	Other      int     // lines of JSON that are not about an event
	Undecided  int     // lines of the worker's log about events that no limit decides: dead or expired
	OutOfOrder int     // events that come after a later one in the input
	Bad        int     // lines that could not be read, if they are skipped
	FirstBad   error   // the problem with the first of them
}

// Read reads events, one per line: JSON objects with time (RFC 3339) and category, optionally with cost and
// id, or the worker's own log. Blank lines are ignored; other JSON objects are counted and skipped. It holds
// all events in memory, about 100 bytes plus the id for each.
//
// An invalid line is an error, which names the line and the expected form, unless skipBad is set. Input
// without any event is an error too.
func Read(ctx context.Context, in io.Reader, skipBad bool) (Input, error) {
	var input Input
	categories := map[string]string{} // one copy of each name
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, longestLine)
	number := 0
	for scanner.Scan() {
		number++
		if err := ctx.Err(); err != nil {
			return Input{}, err
		}
		line := scanner.Bytes()
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\uFEFF")) // some editors put it at the start of a file
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		event, is, err := parseLine(line)
		if err != nil {
			err = fmt.Errorf("line %d: %w", number, err)
			if !skipBad {
				return Input{}, err
			}
			if input.Bad++; input.Bad == 1 {
				input.FirstBad = err
			}
			continue
		}
		switch is {
		case isOther:
			input.Other++
		case isUndecided:
			input.Undecided++
		case isEvent:
			if _, known := categories[event.Category]; !known {
				categories[event.Category] = event.Category
			}
			event.Category, event.Line = categories[event.Category], number
			input.Events = append(input.Events, event)
		}
	}
	if err := scanner.Err(); errors.Is(err, bufio.ErrTooLong) {
		return Input{}, fmt.Errorf("line %d: has more than %d bytes", number+1, longestLine)
	} else if err != nil {
		return Input{}, fmt.Errorf("line %d: %w", number+1, err)
	}
	if len(input.Events) == 0 {
		return Input{}, fmt.Errorf(
			`no event in %s, expected lines such as {"time":"2026-11-20T04:39:01Z","category":"errors"} or a worker's log`,
			term.Count(number, "line"),
		)
	}
	input.sort()
	return input, nil
}

// sort sorts the events by time: the logs of several replicas are often concatenated.
func (i *Input) sort() {
	latest := i.Events[0].micros
	for _, event := range i.Events {
		if event.micros < latest {
			i.OutOfOrder++
		}
		latest = max(latest, event.micros)
	}
	if i.OutOfOrder > 0 {
		slices.SortStableFunc(i.Events, func(a, b Event) int { return cmp.Compare(a.micros, b.micros) })
	}
}
