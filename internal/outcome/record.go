package outcome

import "time"

// Record describes the end of one event. A worker makes it when it settles the event. The log line, the
// recorded outcome and all commands show these fields under these names; the line has no time of its own
// besides its ts. Fields that do not apply are empty and left out.
type Record struct {
	Time     time.Time `json:"time"` // by the worker's clock
	EventID  string    `json:"event_id"`
	Category string    `json:"category"`
	Source   string    `json:"source,omitempty"` // as the publisher says
	Outcome  string    `json:"outcome"`
	Reason   string    `json:"reason,omitempty"`
	Detail   string    `json:"detail,omitempty"` // dead: the fault, or Slack's code and explanation

	Group      string  `json:"group,omitempty"` // of the category, if the group has a limit
	Limit      string  `json:"limit,omitempty"` // the tier that refused the event
	RetryAfter float64 `json:"retry_after_s,omitempty"`
	AtLeast    bool    `json:"retry_after_at_least,omitempty"`
	AboveLimit bool    `json:"above_limit,omitempty"` // the cost exceeds a temporary limit
	Reserved   int     `json:"reserved,omitempty"`    // slots of the tier kept for other categories

	Mute       string    `json:"mute,omitempty"`
	MutedUntil time.Time `json:"muted_until,omitzero"`
	MutedBy    string    `json:"muted_by,omitempty"`
	MuteReason string    `json:"mute_reason,omitempty"`

	Age    float64 `json:"age_s,omitempty"` // expired: when it was dropped
	MaxAge float64 `json:"max_age_s,omitempty"`

	Letter    *bool  `json:"letter,omitempty"` // false if a dead event has no letter, else nil
	LetterSeq uint64 `json:"letter_seq,omitempty"`

	Channel     string  `json:"channel,omitempty"` // as the settings name it
	SlackTS     string  `json:"slack_ts,omitempty"`
	Attempts    int     `json:"attempts,omitempty"`
	Latency     float64 `json:"latency_ms,omitempty"` // sent: from publication until Slack replied
	Ambiguous   bool    `json:"ambiguous,omitempty"`  // an earlier post may have arrived too
	Found       bool    `json:"found_in_channel,omitempty"`
	Redelivered bool    `json:"redelivered,omitempty"`
	Subject     string  `json:"subject,omitempty"`
	StreamSeq   uint64  `json:"stream_seq,omitempty"`

	// The stream of recorded outcomes adds these fields; a worker leaves them empty.
	LeftOut uint64 `json:"left_out,omitempty"` // unrecorded outcomes since the last one with the same rate limit
	Seq     uint64 `json:"seq,omitempty"`      // in that stream
}

// HasNoLetter reports whether the event is dead without a letter.
func (r Record) HasNoLetter() bool { return r.Letter != nil && !*r.Letter }

// RoomAt returns the time when the limit that refused the event had room again, in whole seconds.
func (r Record) RoomAt() time.Time {
	at := r.Time.Add(time.Duration(r.RetryAfter * float64(time.Second)))
	return at.Add(time.Second - 1).Truncate(time.Second).UTC()
}
