package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"notifier/internal/outcome"
)

// line is a line of a worker's log, as far as the account needs it.
type line struct {
	life *life

	Time        time.Time `json:"ts"`
	Message     string    `json:"msg"`
	Addr        string    `json:"addr"`
	EventID     string    `json:"event_id"`
	Category    string    `json:"category"`
	Outcome     string    `json:"outcome"`
	Reason      string    `json:"reason"`
	Detail      string    `json:"detail"`
	Attempts    int       `json:"attempts"`
	Limit       string    `json:"limit"`
	RetryAfter  *float64  `json:"retry_after_s"`
	StreamSeq   uint64    `json:"stream_seq"`
	Ambiguous   bool      `json:"ambiguous"`
	Redelivered bool      `json:"redelivered"`
	Letter      *bool     `json:"letter"`
	MutedBy     string    `json:"muted_by"`
}

func (l *line) String() string {
	text := fmt.Sprintf("%s %s %s %s seq %d", l.Time.Format("15:04:05.000000"), l.life.name, l.Outcome, l.Reason, l.StreamSeq)
	if l.Ambiguous {
		text += " ambiguous"
	}
	if l.Redelivered {
		text += " redelivered"
	}
	return text
}

// hasNoLetter reports whether the line says that the event has no dead letter. Only what cannot be decoded may have none.
func (l *line) hasNoLetter() bool { return l.Letter != nil && !*l.Letter && l.Reason == "malformed" }

// refusedByLimit reports whether the script has refused the event.
func (l *line) refusedByLimit() bool {
	return l.Outcome == outcome.Dropped && slices.Contains(outcome.LimitReasons(), l.Reason)
}

// rejected reports whether Slack has rejected the event with this code.
func (l *line) rejected(code string) bool {
	return l.Outcome == outcome.Dead && l.Reason == outcome.SlackRejected && l.Detail == code
}

// muted reports whether an operator has muted the event.
func (l *line) muted() bool { return l.Outcome == outcome.Dropped && l.Reason == outcome.Muted }

// journal is the log of one process.
type journal struct {
	lines  []*line
	broken []string // lines that are no JSON
}

// readLog reads what a process has logged so far. What comes after the last line end was being written.
func readLog(l *life) journal {
	text, err := os.ReadFile(l.log)
	if err != nil {
		return journal{broken: []string{err.Error()}}
	}
	var j journal
	for complete := range bytes.Lines(text) {
		if !bytes.HasSuffix(complete, []byte("\n")) {
			break
		}
		entry := &line{life: l}
		if err := json.Unmarshal(complete, entry); err != nil {
			j.broken = append(j.broken, fmt.Sprintf("%s: %v: %s", l.name, err, complete))
			continue
		}
		j.lines = append(j.lines, entry)
	}
	return j
}
