package simulate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"notifier/internal/outcome"
	"notifier/internal/pattern"
	"notifier/internal/term"
)

// maxLine bounds one line in bytes. Lines of the worker's log have a few hundred.
const maxLine = 1 << 20

// Bounds of the fields of a line, the same as for a published event. After maxYear microseconds are no longer
// exact in the script's numbers.
const (
	maxCategoryBytes = 128
	maxIDBytes       = 256
	minYear, maxYear = 1970, 2200
)

// maxBad bounds the unreadable lines that Input.Bad names.
const maxBad = 5

// composePrefix is the start of a line of `docker compose logs`, with the time of -t and with colours.
var composePrefix = regexp.MustCompile(
	`^(\x1b\[[0-9;]*m)*[A-Za-z0-9][\w.-]* +\| (\x1b\[[0-9;]*m)*(\d{4}-\d\d-\d\dT\S+ )?`,
)

// Event is one event of the input.
type Event struct {
	Time     time.Time // UTC, in whole microseconds; in a worker's log the time of its outcome
	Category string    // 1 to 128 bytes
	ID       string    // at most 256 bytes; an event without an ID is never a duplicate
	Source   string    // the two together identify the event; empty if unknown
	Cost     int       // slots it takes, 1 or more
	Line     int       // its line number in the input, from 1
}

// Input holds the events of a file and counts its other lines.
type Input struct {
	Events    []Event // in the order of their times; of two with the same time the earlier line comes first
	Other     int     // lines that are not about an event
	Undecided int     // events of a worker's log that no limit decided: dead or expired
	Unread    int     // lines that could not be read
	Bad       []error // the problems with the first five of them, each with its line number
}

// Read reads events, one per line: JSON objects with time (RFC 3339) and category, optionally with cost, id
// and source, or a worker's log, also with the prefixes of `docker compose logs`. It holds all events in
// memory.
//
// A line that cannot be read is skipped and named in Bad. Returns an error if the input has no event, or if
// reading fails or ctx is done.
func Read(ctx context.Context, in io.Reader) (Input, error) {
	var input Input
	lines := bufio.NewReaderSize(in, maxLine)
	number := 0
	for {
		line, err := lines.ReadSlice('\n')
		tooLong := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return Input{}, err
		}
		if ctx.Err() != nil {
			return Input{}, ctx.Err()
		}
		if len(line) > 0 {
			number++
			input.add(line, number, tooLong)
		}
		if err != nil {
			break
		}
	}
	if len(input.Events) == 0 {
		expected := `expected lines such as {"time":"2026-11-20T04:39:01Z","category":"errors"} or a worker's log`
		if input.Unread > 0 {
			expected += fmt.Sprintf(" (LOG_FORMAT=json); %v", input.Bad[0])
		}
		return Input{}, fmt.Errorf("no event in %s, %s", term.Count(number, "line"), expected)
	}
	// The logs of several workers are often concatenated.
	slices.SortStableFunc(input.Events, func(a, b Event) int { return a.Time.Compare(b.Time) })
	return input, nil
}

func (i *Input) add(line []byte, number int, tooLong bool) {
	if number == 1 {
		line = bytes.TrimPrefix(line, []byte("\uFEFF")) // some editors put it at the start of a file
	}
	prefix := composePrefix.Find(line)
	line = bytes.TrimSpace(line[len(prefix):])
	if len(line) == 0 {
		return
	}
	if len(prefix) > 0 && line[0] != '{' { // another service's, or a worker's before it has a log
		i.Other++
		return
	}
	err := fmt.Errorf("has more than %d bytes", maxLine)
	if !tooLong {
		err = i.parse(line, number)
	}
	if err == nil {
		return
	}
	i.Unread++
	if len(i.Bad) < maxBad {
		i.Bad = append(i.Bad, fmt.Errorf("line %d: %w", number, err))
	}
}

// fields are the fields of a line that matter. They stay raw until the kind of the line is known, because
// other programs may use the same names with other types.
type fields struct {
	Time     json.RawMessage `json:"time"`
	Category json.RawMessage `json:"category"`
	Cost     json.RawMessage `json:"cost"`
	ID       json.RawMessage `json:"id"`
	Source   json.RawMessage `json:"source"`

	// Of the worker's log.
	TS      json.RawMessage `json:"ts"`
	Msg     json.RawMessage `json:"msg"`
	EventID json.RawMessage `json:"event_id"`
	Outcome json.RawMessage `json:"outcome"`
	Reason  json.RawMessage `json:"reason"`
}

// parse adds a line, or returns the problem: the invalid field and the expected value.
func (i *Input) parse(line []byte, number int) error {
	if !utf8.Valid(line) {
		return errors.New("is not valid UTF-8")
	}
	if line[0] != '{' {
		return errors.New("is not a JSON object, expected an event or a line of a worker's log (LOG_FORMAT=json)")
	}
	var f fields
	if err := json.Unmarshal(line, &f); err != nil {
		return fmt.Errorf("is broken JSON: %w", err)
	}
	var message string
	_ = json.Unmarshal(f.Msg, &message) // of another type: another program's line
	if strings.HasPrefix(message, "notification ") && present(f.TS) && present(f.Outcome) {
		return i.parseLog(f, number)
	}
	if present(f.Time) && present(f.Category) {
		return i.addEvent(f, number)
	}
	if present(f.Category) && !present(f.Msg) {
		return errors.New("has a category but no time, expected both")
	}
	i.Other++
	return nil
}

// parseLog adds a worker's line about an event. It has no cost. Its source is taken for that of a CloudEvent,
// although it can be a Notifier-Source, which is no part of an event's identity: the line does not say which,
// and publishers that share ids usually write CloudEvents.
func (i *Input) parseLog(f fields, number int) error {
	result, err := text("outcome", f.Outcome)
	if err != nil {
		return err
	}
	reason, err := text("reason", f.Reason)
	switch {
	case err != nil:
		return err
	case result == outcome.Dropped && reason == outcome.Reply:
		i.Other++
		return nil
	case result == outcome.Dead, reason == outcome.Expired:
		i.Undecided++
		return nil
	case result != outcome.Sent && result != outcome.Dropped:
		return fmt.Errorf("outcome %q, expected sent, dropped or dead", result)
	}
	return i.addEvent(fields{Time: f.TS, Category: f.Category, ID: f.EventID, Source: f.Source}, number)
}

func (i *Input) addEvent(f fields, number int) error {
	e := Event{Cost: 1, Line: number}
	when, err := text("time", f.Time)
	if err != nil {
		return err
	}
	e.Time, err = time.Parse(time.RFC3339, when)
	if err != nil {
		return fmt.Errorf("time %q, expected RFC 3339 such as 2026-11-20T04:39:01Z", when)
	}
	e.Time = e.Time.UTC().Truncate(time.Microsecond)
	if year := e.Time.Year(); year < minYear || year > maxYear {
		return fmt.Errorf("time %q, expected a year from %d to %d", when, minYear, maxYear)
	}
	if e.Category, err = text("category", f.Category); err != nil {
		return err
	}
	if e.Category == "" || len(e.Category) > maxCategoryBytes || hasControl(e.Category) ||
		pattern.HasWildcard(e.Category) {
		return fmt.Errorf("category of %s, expected 1 to %d without control characters and wildcards",
			term.Count(len(e.Category), "byte"), maxCategoryBytes)
	}
	if e.ID, err = text("id", f.ID); err != nil {
		return err
	}
	if len(e.ID) > maxIDBytes || hasControl(e.ID) {
		return fmt.Errorf("id of %s, expected at most %d without control characters",
			term.Count(len(e.ID), "byte"), maxIDBytes)
	}
	if e.Source, err = text("source", f.Source); err != nil {
		return err
	}
	if present(f.Cost) {
		if err := json.Unmarshal(f.Cost, &e.Cost); err != nil || e.Cost < 1 {
			return fmt.Errorf("cost %s, expected a whole number of 1 or more", shorten(f.Cost))
		}
	}
	i.Events = append(i.Events, e)
	return nil
}

func hasControl(s string) bool { return strings.ContainsFunc(s, unicode.IsControl) }

// present reports whether a field is present; a null counts as absent.
func present(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] != 'n' }

// text decodes a string field; an absent one is empty.
func text(name string, raw json.RawMessage) (s string, err error) {
	if !present(raw) {
		return "", nil
	}
	if json.Unmarshal(raw, &s) != nil {
		return "", fmt.Errorf("%s %s, expected a string", name, shorten(raw))
	}
	return s, nil
}

// shorten truncates a quotation for an error.
func shorten(raw json.RawMessage) []byte {
	const maxQuote = 40
	if len(raw) <= maxQuote {
		return raw
	}
	return append(bytes.ToValidUTF8(raw[:maxQuote], nil), "..."...)
}
