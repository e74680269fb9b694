package chaos

import (
	"fmt"
	"slices"

	"notifier/internal/outcome"
	"notifier/test/kit"
)

// line is one line in the log of a process.
type line struct {
	kit.LogLine
	process *process
}

func (l *line) String() string {
	text := fmt.Sprintf("%s %s %s %s seq %d", clock(l.Time), l.process.name, l.Outcome, l.Reason, l.StreamSeq)
	if l.Ambiguous {
		text += " ambiguous"
	}
	if l.Redelivered {
		text += " redelivered"
	}
	return text
}

// hasNoLetter reports whether the line says that the event has no dead letter, which only a malformed
// event may lack.
func (l *line) hasNoLetter() bool {
	return l.Letter != nil && !*l.Letter && l.Reason == outcome.Malformed
}

// refusedByLimit reports whether a limit refused the event.
func (l *line) refusedByLimit() bool {
	return l.Outcome == outcome.Dropped && slices.Contains(outcome.LimitReasons(), l.Reason)
}

// rejected reports whether Slack rejected the event with this code.
func (l *line) rejected(code string) bool {
	return l.Outcome == outcome.Dead && l.Reason == outcome.SlackRejected && l.Detail == code
}

// muted reports whether a mute dropped the event.
func (l *line) muted() bool { return l.Outcome == outcome.Dropped && l.Reason == outcome.Muted }

// outcomes returns the outcome lines that the process has logged so far.
func (p *process) outcomes() (lines []*line) {
	logged, _ := p.Lines()
	for _, l := range logged {
		if l.IsOutcome() {
			lines = append(lines, &line{l, p})
		}
	}
	return lines
}
