package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"notifier/internal/consume/letters"
	"notifier/internal/outcome"
	"notifier/internal/settings"
	"notifier/internal/term"
)

// deadList is one run of the command. It keeps the newest letters, without their payloads, and counts the
// others.
type deadList struct {
	filter deadFilter
	most   int // letters shown; 1 or more
	json   bool
	out    io.Writer
	errOut io.Writer

	read    int
	matched int
	reasons map[string]int // how many of those that match
	newest  []letters.Info // at most twice most
}

func (l *deadList) run(ctx context.Context, _ settings.NATS, stream *letters.Stream) error {
	if stream == nil {
		if err := l.filter.noStream(); err != nil {
			return err
		}
		return l.note("no dead letters: the stream for them does not exist yet")
	}
	l.reasons = map[string]int{}
	progress := newDeadProgress(l.errOut, "letters read")
	failure := l.filter.each(ctx, stream, func(letter *letters.Letter) error {
		l.read++
		if l.filter.matches(letter) {
			l.add(letter.Info)
		}
		return progress.report(l.read)
	})
	if failure != nil && (l.filter.seqs == nil || l.matched == 0) {
		return failure
	}
	l.newest = l.newest[max(0, len(l.newest)-l.most):]
	return errors.Join(l.write(), failure)
}

// write writes the list.
func (l *deadList) write() error {
	switch {
	case l.read == 0:
		return l.note("no dead letters")
	case l.matched == 0:
		return l.note("no match among " + term.Count(l.read, "dead letter"))
	case l.json:
		return l.writeJSON()
	default:
		return l.writeTable()
	}
}

// add keeps a letter, and from time to time forgets the oldest.
func (l *deadList) add(letter letters.Info) {
	l.matched++
	reason := letter.Reason
	if !slices.Contains(outcome.DeadReasons(), reason) {
		reason = "other"
	}
	l.reasons[reason]++
	l.newest = append(l.newest, letter)
	if len(l.newest)-l.most >= l.most {
		l.newest = slices.Delete(l.newest, 0, len(l.newest)-l.most)
	}
}

// note is for people: with -json it goes to standard error.
func (l *deadList) note(text string) error {
	out := l.out
	if l.json {
		out = l.errOut
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

func (l *deadList) writeTable() error {
	table := term.NewTable(l.out)
	head := []any{"when", "category", "reason", "detail", "event id", "seq"}
	sources := slices.ContainsFunc(l.newest, func(letter letters.Info) bool { return letter.Source != "" })
	if sources {
		head = append(head, "source")
	}
	table.Row(head...)
	for _, letter := range l.newest {
		row := []any{
			letter.Time.Format(time.RFC3339),
			term.Cell(letter.Category),
			term.Cell(letter.Reason),
			term.Cell(letter.Detail),
			term.Cell(letter.EventID),
			letter.Seq,
		}
		if sources {
			row = append(row, term.Cell(letter.Source))
		}
		table.Row(row...)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(l.out, "\n%s\n", l.summary())
	return err
}

// summary is "3 dead letters: 2 malformed, 1 unroutable".
func (l *deadList) summary() string {
	var parts []string
	for _, reason := range append(outcome.DeadReasons(), "other") {
		if n := l.reasons[reason]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, reason))
		}
	}
	return fmt.Sprintf("%s: %s%s", term.Count(l.matched, "dead letter"), strings.Join(parts, ", "), l.omitted())
}

// omitted counts the letters that are not shown.
func (l *deadList) omitted() string {
	if older := l.matched - len(l.newest); older > 0 {
		return fmt.Sprintf("; %s not shown, see -n", term.Count(older, "older one"))
	}
	return ""
}

// deadLetterLine is a letter in the lines of -json. It names fields as the log does.
type deadLetterLine struct {
	Time      string `json:"time"`
	Category  string `json:"category"`
	Reason    string `json:"reason"`
	Detail    string `json:"detail,omitempty"`
	EventID   string `json:"event_id"`
	Source    string `json:"source,omitempty"`
	Subject   string `json:"subject"`
	StreamSeq uint64 `json:"stream_seq,omitempty"`
	Bytes     int    `json:"bytes"`
	Shortened *int   `json:"shortened,omitempty"`
	Seq       uint64 `json:"seq"`
}

func newDeadLetterLine(letter letters.Info) deadLetterLine {
	line := deadLetterLine{
		Time:      letter.Time.Format(time.RFC3339Nano),
		Category:  letter.Category,
		Reason:    letter.Reason,
		Detail:    letter.Detail,
		EventID:   letter.EventID,
		Source:    letter.Source,
		Subject:   letter.Subject,
		StreamSeq: letter.StreamSeq,
		Bytes:     letter.Bytes,
		Seq:       letter.Seq,
	}
	if letter.Shortened >= 0 {
		line.Shortened = &letter.Shortened
	}
	return line
}

func (l *deadList) writeJSON() error {
	buffered := bufio.NewWriter(l.out)
	encoder := term.NewJSON(buffered)
	for _, letter := range l.newest {
		if err := encoder.Encode(newDeadLetterLine(letter)); err != nil {
			return err
		}
	}
	if err := buffered.Flush(); err != nil || l.omitted() == "" {
		return err
	}
	return l.note(l.summary())
}

// letterName names a letter in a message.
func letterName(letter letters.Info) string {
	return "letter " + strconv.FormatUint(letter.Seq, 10) + " (" + term.Cell(letter.EventID) + ")"
}
