package simulate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"notifier/internal/outcome"
	"notifier/internal/term"
)

// Bounds of the fields of a line, the same as for a published event. After maxYear microseconds are no longer
// exact in the script's numbers.
const (
	maxCategoryBytes = 128
	maxIDBytes       = 256
	minYear, maxYear = 1970, 2200
)

// kind is the kind of a line.
type kind int

const (
	isEvent     kind = iota + 1 // to be decided
	isOther                     // JSON that is not about an event
	isUndecided                 // the worker's line about an event that no limit decides: dead or expired
)

// fields are the fields of a line that matter; all others are ignored. They stay raw until the kind of the
// line is known, because the same names may have other types in the lines of other programs.
type fields struct {
	Time     json.RawMessage `json:"time"`
	Category json.RawMessage `json:"category"`
	Cost     json.RawMessage `json:"cost"`
	ID       json.RawMessage `json:"id"`

	// Of the worker's log.
	TS      json.RawMessage `json:"ts"`
	Msg     json.RawMessage `json:"msg"`
	EventID json.RawMessage `json:"event_id"`
	Outcome json.RawMessage `json:"outcome"`
	Reason  json.RawMessage `json:"reason"`
}

// parseLine parses one line that is not blank. The error names the invalid field and the expected value.
func parseLine(line []byte) (Event, kind, error) {
	var f fields
	switch {
	case !utf8.Valid(line):
		return Event{}, 0, errors.New("is not valid UTF-8")
	case line[0] != '{':
		return Event{}, 0, errors.New(
			"is not a JSON object, expected an event or a line of the worker's log (LOG_FORMAT=json)",
		)
	}
	if err := json.Unmarshal(line, &f); err != nil {
		return Event{}, 0, fmt.Errorf("is broken JSON: %w", err)
	}
	message := ""
	if present(f.Msg) {
		_ = json.Unmarshal(f.Msg, &message) // of another type: the line of another program
	}
	switch {
	case strings.HasPrefix(message, "notification ") && present(f.TS) && present(f.Outcome):
		return parseLogLine(f)
	case present(f.Time) && present(f.Category):
		return parseEvent(f.Time, f.Category, f.ID, f.Cost, "id")
	case present(f.Category) && !present(f.Msg):
		return Event{}, 0, errors.New("has a category but no time, expected both")
	default:
		return Event{}, isOther, nil
	}
}

// parseLogLine parses the worker's line about an event. The line has no cost, and its time is the time of the
// outcome.
func parseLogLine(f fields) (Event, kind, error) {
	var became, reason string
	if err := text(f.Outcome, "outcome", &became); err != nil {
		return Event{}, 0, err
	}
	if err := text(f.Reason, "reason", &reason); err != nil {
		return Event{}, 0, err
	}
	switch {
	case became == outcome.Dropped && reason == outcome.Reply:
		return Event{}, isOther, nil
	case became == outcome.Dead, reason == outcome.Expired:
		return Event{}, isUndecided, nil
	case became != outcome.Sent && became != outcome.Dropped:
		return Event{}, 0, fmt.Errorf("outcome %q, expected sent, dropped or dead", became)
	}
	return parseEvent(f.TS, f.Category, f.EventID, nil, "event_id")
}

func parseEvent(at, category, id, cost json.RawMessage, idName string) (Event, kind, error) {
	e := Event{Cost: 1}
	var when string
	if err := text(at, "time", &when); err != nil {
		return e, 0, err
	}
	t, err := time.Parse(time.RFC3339, when)
	if err != nil {
		return e, 0, fmt.Errorf("time %q, expected RFC 3339 such as 2026-11-20T04:39:01Z", when)
	}
	if t = t.UTC(); t.Year() < minYear || t.Year() > maxYear {
		return e, 0, fmt.Errorf("time %q, expected a year from %d to %d", when, minYear, maxYear)
	}
	e.micros = t.UnixMicro()
	if err := text(category, "category", &e.Category); err != nil {
		return e, 0, err
	}
	if e.Category == "" || len(e.Category) > maxCategoryBytes ||
		strings.ContainsFunc(e.Category, unicode.IsControl) {
		return e, 0, fmt.Errorf(
			"category of %s, expected 1 to %d without control characters",
			term.Count(len(e.Category), "byte"),
			maxCategoryBytes,
		)
	}
	if err := text(id, idName, &e.ID); err != nil {
		return e, 0, err
	}
	if len(e.ID) > maxIDBytes || strings.ContainsFunc(e.ID, unicode.IsControl) {
		return e, 0, fmt.Errorf(
			"%s of %s, expected at most %d without control characters",
			idName,
			term.Count(len(e.ID), "byte"),
			maxIDBytes,
		)
	}
	if present(cost) {
		if err := json.Unmarshal(cost, &e.Cost); err != nil || e.Cost < 1 {
			return e, 0, fmt.Errorf("cost %s, expected a whole number of 1 or more", shorten(cost))
		}
	}
	return e, isEvent, nil
}

// present reports whether a field is present; a null counts as absent.
func present(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] != 'n' }

// text decodes a string field; an absent one is empty.
func text(raw json.RawMessage, name string, into *string) error {
	if !present(raw) {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s %s, expected a string", name, shorten(raw))
	}
	return nil
}

// shorten truncates a quotation for an error.
func shorten(raw json.RawMessage) []byte {
	const most = 40
	if len(raw) <= most {
		return raw
	}
	return append(bytes.ToValidUTF8(raw[:most], nil), "..."...)
}
