package simulate

import (
	"bytes"
	"io"

	"notifier/internal/term"
)

// verdictTime is the time format of the log.
const verdictTime = "2006-01-02T15:04:05.000000Z"

// verdictLine is one line of JSON. The names are the log's, except line, which says where the event was read.
type verdictLine struct {
	Line       int     `json:"line"`
	Time       string  `json:"time"`
	Category   string  `json:"category"`
	ID         string  `json:"id,omitempty"`
	Outcome    string  `json:"outcome"`
	Group      string  `json:"group,omitempty"`
	Reason     string  `json:"reason,omitempty"`
	Limit      string  `json:"limit,omitempty"`
	RetryAfter float64 `json:"retry_after_s,omitempty"`
	Reserved   int     `json:"reserved,omitempty"`
	AtLeast    bool    `json:"retry_after_at_least,omitempty"`
}

// Write writes the verdict as a line of JSON, in one call of out's Write. The error is out's.
func (v Verdict) Write(out io.Writer) error {
	line := verdictLine{
		Line: v.Line, Time: v.Time().Format(verdictTime), Category: v.Category, ID: v.ID,
		Outcome: v.Outcome, Group: v.Group, Reason: v.Reason, RetryAfter: term.Seconds(v.RetryAfter),
		Reserved: v.Reserved, AtLeast: v.AtLeast,
	}
	if v.Tier.Count > 0 {
		line.Limit = v.Tier.String()
	}
	var text bytes.Buffer
	if err := term.NewJSON(&text).Encode(line); err != nil {
		return err
	}
	_, err := out.Write(text.Bytes())
	return err
}
