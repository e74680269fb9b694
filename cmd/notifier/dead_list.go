package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"notifier/internal/deadletter"
	"notifier/internal/outcome"
)

// deadList is one run of the command. It keeps the newest letters without their payloads, and counts the others.
type deadList struct {
	filter deadFilter
	most   int // letters shown; 1 or more
	json   bool
	out    io.Writer
	errOut io.Writer

	read    int
	matched int
	reasons map[string]int    // how many of those that match
	newest  []deadletter.Info // at most twice most
}

func (l *deadList) run(ctx context.Context, letters *deadletter.Stream) error {
	if letters == nil {
		return l.note("no dead letters: the stream that keeps them is not there yet")
	}
	l.reasons = map[string]int{}
	progress := newDeadProgress(l.errOut, "letters read")
	err := letters.Each(ctx, func(letter *deadletter.Letter) error {
		l.read++
		if l.filter.matches(letter) {
			l.add(letter.Info)
		}
		return progress.tell(l.read)
	})
	if err != nil {
		return err
	}
	l.newest = l.newest[max(0, len(l.newest)-l.most):]
	switch {
	case l.read == 0:
		return l.note("no dead letters")
	case l.matched == 0:
		return l.note(fmt.Sprintf("no dead letters match, of %d", l.read))
	case l.json:
		return l.writeJSON()
	default:
		return l.writeTable()
	}
}

// add keeps a letter, and now and then lets the oldest go.
func (l *deadList) add(letter deadletter.Info) {
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

// note is for people: beside JSON it goes to standard error.
func (l *deadList) note(text string) error {
	out := l.out
	if l.json {
		out = l.errOut
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

func (l *deadList) writeTable() error {
	table := tabwriter.NewWriter(l.out, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "when\tcategory\treason\tdetail\tevent id\tseq")
	for _, letter := range l.newest {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%d\n", letter.Time.Format(time.RFC3339),
			cell(letter.Category), cell(letter.Reason), cell(letter.Detail), cell(letter.EventID), letter.Seq)
	}
	if err := table.Flush(); err != nil { // errors of the lines above come back here
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
	return fmt.Sprintf("%s: %s%s", counted(l.matched, "dead letter"), strings.Join(parts, ", "), l.unseen())
}

// unseen says how many letters are not shown.
func (l *deadList) unseen() string {
	if older := l.matched - len(l.newest); older > 0 {
		return fmt.Sprintf("; %d older not shown, see -n", older)
	}
	return ""
}

// deadLetterLine is a letter in the lines of -json. The names are the log's where the log has them.
type deadLetterLine struct {
	Time      string `json:"time"`
	Category  string `json:"category"`
	Reason    string `json:"reason"`
	Detail    string `json:"detail,omitempty"`
	EventID   string `json:"event_id"`
	Subject   string `json:"subject"`
	StreamSeq uint64 `json:"stream_seq,omitempty"`
	Bytes     int    `json:"bytes"`
	Shortened *int   `json:"shortened,omitempty"`
	Seq       uint64 `json:"seq"`
}

func newDeadLetterLine(letter deadletter.Info) deadLetterLine {
	line := deadLetterLine{
		Time: letter.Time.Format(time.RFC3339Nano), Category: letter.Category, Reason: letter.Reason, Detail: letter.Detail,
		EventID: letter.EventID, Subject: letter.Subject, StreamSeq: letter.StreamSeq, Bytes: letter.Bytes, Seq: letter.Seq,
	}
	if letter.Shortened >= 0 {
		line.Shortened = &letter.Shortened
	}
	return line
}

func (l *deadList) writeJSON() error {
	buffered := bufio.NewWriter(l.out)
	encoder := json.NewEncoder(buffered)
	encoder.SetEscapeHTML(false) // as the log
	for _, letter := range l.newest {
		if err := encoder.Encode(newDeadLetterLine(letter)); err != nil {
			return err
		}
	}
	if err := buffered.Flush(); err != nil || l.unseen() == "" {
		return err
	}
	return l.note(l.summary())
}

// longestCell bounds a cell of the table, in characters; -json has the whole.
const longestCell = 100

// cell is a header's value as a terminal can show it: nobody has checked what a letter's headers hold.
func cell(value string) string {
	if value == "" {
		return "-"
	}
	runes := []rune(plain(value))
	if len(runes) > longestCell {
		runes = append(runes[:longestCell-1], '…')
	}
	return string(runes)
}

// plain puts a question mark for each character that a terminal might take for an order.
func plain(value string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, value)
}

// letterName names a letter in a message.
func letterName(letter deadletter.Info) string {
	return "letter " + strconv.FormatUint(letter.Seq, 10) + " (" + cell(letter.EventID) + ")"
}
