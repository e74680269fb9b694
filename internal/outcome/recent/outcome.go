package recent

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"notifier/internal/outcome"
)

// Outcome is the outcome of one event, with the fields of its log line. Fields that do not apply are empty.
type Outcome struct {
	Time     time.Time `json:"time"` // when it was settled, by the worker's clock
	EventID  string    `json:"event_id"`
	Category string    `json:"category"`
	Source   string    `json:"source,omitempty"` // who caused it, as the publisher says
	Outcome  string    `json:"outcome"`          // one of package outcome's
	Reason   string    `json:"reason,omitempty"` // one of package outcome's
	Detail   string    `json:"detail,omitempty"` // dead: what was wrong, or Slack's code

	// Dropped by a limit: the tier that refused it.
	Limit      string  `json:"limit,omitempty"`
	RetryAfter float64 `json:"retry_after_s,omitempty"`        // in how many seconds there was room again
	AtLeast    bool    `json:"retry_after_at_least,omitempty"` // or later; see ratelimit.Decision
	AboveLimit bool    `json:"above_limit,omitempty"`          // never: its cost is above a temporary limit
	Reserved   int     `json:"reserved,omitempty"`             // slots of the tier kept for other categories

	// Dropped as muted: by which mute, until when, whose and why.
	Mute       string     `json:"mute,omitempty"`
	MutedUntil *time.Time `json:"muted_until,omitempty"`
	MutedBy    string     `json:"muted_by,omitempty"`
	MuteReason string     `json:"mute_reason,omitempty"`

	// Dropped as expired: how old it was, and how old it could become.
	Age    float64 `json:"age_s,omitempty"`
	MaxAge float64 `json:"max_age_s,omitempty"`

	Channel   string `json:"channel,omitempty"` // as the settings name it
	SlackTS   string `json:"slack_ts,omitempty"`
	Attempts  int    `json:"attempts,omitempty"`
	Ambiguous bool   `json:"ambiguous,omitempty"` // it may have been posted twice
	// Found: an earlier attempt's message was found in the channel, and it was not posted again.
	Found bool `json:"found_in_channel,omitempty"`

	NoLetter  bool   `json:"no_letter,omitempty"`  // dead: it has no dead letter
	LetterSeq uint64 `json:"letter_seq,omitempty"` // dead: the letter's sequence in its stream, if known

	Subject   string `json:"subject,omitempty"`
	StreamSeq uint64 `json:"stream_seq,omitempty"`
	Worker    string `json:"worker,omitempty"` // the host that settled it

	// LeftOut is how many outcomes of this category and reason that worker has not recorded since the one
	// before. LeftOutOthers counts those of categories that it has no room to count by themselves.
	LeftOut       uint64 `json:"left_out,omitempty"`
	LeftOutOthers uint64 `json:"left_out_others,omitempty"`

	Seq uint64 `json:"seq,omitempty"` // of the record in its stream; set by a reader
}

// Bounds of the texts in a record, in bytes. Together, and escaped as JSON, they are below maxMessageSize.
const (
	longestText = 512
	longestName = 256
)

// Outcomes lists the outcomes that an event can have.
func Outcomes() []string { return []string{outcome.Sent, outcome.Dropped, outcome.Dead} }

// bounded returns the outcome as a record has it: with texts that are not too long, and valid.
func (o Outcome) bounded() Outcome {
	o.EventID = short(o.EventID, longestText)
	o.Detail = short(o.Detail, longestText)
	o.MuteReason = short(o.MuteReason, longestText)
	for _, name := range []*string{
		&o.Category, &o.Source, &o.Reason, &o.Limit, &o.Mute, &o.MutedBy,
		&o.Channel, &o.SlackTS, &o.Subject, &o.Worker,
	} {
		*name = short(*name, longestName)
	}
	return o
}

// short cuts a text to a number of bytes, on a rune boundary.
func short(text string, most int) string {
	const mark = "…"
	if len(text) > most {
		end := most - len(mark)
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end] + mark
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// decode reads a record. Anybody may have published it: ok is false for what is not one.
func (p Place) decode(subject string, data []byte) (o Outcome, ok bool) {
	if len(data) > maxMessageSize || json.Unmarshal(data, &o) != nil {
		return Outcome{}, false
	}
	known := o.EventID != "" && !o.Time.IsZero() && slices.Contains(Outcomes(), o.Outcome)
	if !known || p.subject(o.Category) != subject {
		return Outcome{}, false
	}
	return o.bounded(), true
}
