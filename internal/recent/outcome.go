package recent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"notifier/internal/outcome"
)

// Outcome is what became of one event, as the log line has it. Fields that do not apply are empty.
type Outcome struct {
	Time     time.Time `json:"time"` // when it was settled, by the worker's clock
	EventID  string    `json:"event_id"`
	Category string    `json:"category"`
	Source   string    `json:"source,omitempty"` // who caused it, as the publisher says
	Outcome  string    `json:"outcome"`          // one of package outcome's
	Reason   string    `json:"reason,omitempty"` // one of package outcome's
	Detail   string    `json:"detail,omitempty"` // dead: what was wrong, or Slack's code

	Limit      string  `json:"limit,omitempty"`                // dropped by a limit: the tier that refused
	RetryAfter float64 `json:"retry_after_s,omitempty"`        // dropped by a limit: in how many seconds there was room again
	AtLeast    bool    `json:"retry_after_at_least,omitempty"` // ... or later: slots are kept for others, or in buckets
	AboveLimit bool    `json:"above_limit,omitempty"`          // dropped by a limit for a while that is below its cost

	Mute       string     `json:"mute,omitempty"` // dropped as muted: by which mute, until when, and whose
	MutedUntil *time.Time `json:"muted_until,omitempty"`
	MutedBy    string     `json:"muted_by,omitempty"`

	Channel   string `json:"channel,omitempty"`
	SlackTS   string `json:"slack_ts,omitempty"`
	Attempts  int    `json:"attempts,omitempty"`
	Ambiguous bool   `json:"ambiguous,omitempty"` // it may have been posted twice

	NoLetter  bool   `json:"no_letter,omitempty"`  // dead: it has no dead letter
	LetterSeq uint64 `json:"letter_seq,omitempty"` // dead: the letter's sequence in the dead-letter stream, if it is known

	Subject   string `json:"subject,omitempty"`
	StreamSeq uint64 `json:"stream_seq,omitempty"`
	Worker    string `json:"worker,omitempty"` // the host that settled it

	// LeftOut is how many outcomes of this category and reason that worker has not recorded since the one before.
	// LeftOutOthers is the same for categories of which it has recorded nothing.
	LeftOut       uint64 `json:"left_out,omitempty"`
	LeftOutOthers uint64 `json:"left_out_others,omitempty"`

	Seq uint64 `json:"seq,omitempty"` // of the record in its stream; set by a reader
}

// Bounds of the texts in a record, in bytes. Together, and escaped as JSON, they are below maxMessageSize.
const (
	longestText = 512
	longestName = 256
)

// outcomes are the values of Outcome.Outcome.
var outcomes = []string{outcome.Sent, outcome.Dropped, outcome.Dead}

// Outcomes lists the outcomes that an event can have.
func Outcomes() []string { return slices.Clone(outcomes) }

// Bounded returns the outcome as a record has it: with texts that are not too long, and valid.
func (o Outcome) bounded() Outcome {
	o.EventID = shortID(o.EventID)
	o.Detail = short(o.Detail, longestText)
	for _, name := range []*string{&o.Category, &o.Source, &o.Reason, &o.Limit, &o.Mute, &o.MutedBy, &o.Channel, &o.SlackTS, &o.Subject, &o.Worker} {
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

// shortID is the id in a record: the id itself, or of a very long one the beginning and a hash, so that two ids never look the
// same.
func shortID(id string) string {
	if len(id) <= longestText && utf8.ValidString(id) {
		return id
	}
	hash := sha256.Sum256([]byte(id))
	return short(id, longestName) + hex.EncodeToString(hash[:])
}

// encode is the payload of a record.
func (o Outcome) encode() ([]byte, error) {
	o.Seq = 0
	return json.Marshal(o.bounded())
}

// decode reads a record. Anybody may have written it: ok is false for whatever is none of ours.
func (p Place) decode(subject string, data []byte) (o Outcome, ok bool) {
	if len(data) > maxMessageSize || json.Unmarshal(data, &o) != nil {
		return Outcome{}, false
	}
	known := slices.Contains(outcomes, o.Outcome) && o.EventID != "" && !o.Time.IsZero()
	if !known || p.subject(o.Category) != subject {
		return Outcome{}, false
	}
	return o.bounded(), true
}
