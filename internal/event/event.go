// Package event decodes NATS messages of publishers: a message becomes an Event, or a Rejection with the
// reason why it can never be sent.
//
// Decode reads the bytes and headers of a message once, in one of three forms: plain text, a JSON object, or
// a CloudEvent (structured JSON or binary headers). It returns either an Event in which every field is within
// its bounds, or a Rejection with one of four reasons; the rest of the program never looks at a payload
// again.
//
// The category is taken from the subject alone, so that no payload can charge another category's budget.
//
// The package knows payload formats and subjects. It does not know limits, Slack or how messages arrive.
package event

import (
	"encoding/json"
	"time"
)

// Event is one notification to be sent: decoded and validated, not yet decided.
type Event struct {
	// unique per event, never empty: the Notifier-Event-Id header, else Nats-Msg-Id, else the payload's id, else
	// Message.FallbackID
	ID string
	// the source of the CloudEvent that set ID, of any length; the two together identify the event. If empty,
	// ID identifies it alone.
	IDSource string
	// the publisher's unverified claim about the origin: one printable line of up to 128 bytes without
	// secrets. Empty if unknown.
	Source string
	// the part of the subject that the pattern's last wildcard matches; 1 to 128 bytes of UTF-8
	Category string
	Subject  string // the whole subject it was published to
	// the message as the publisher wrote it, valid UTF-8; may be empty if there are Blocks or Attachments
	Text        string
	Blocks      json.RawMessage // an array of 1 to 50 objects as the publisher wrote it, or nil
	Attachments json.RawMessage // an array of one object or more as the publisher wrote it, or nil
	// the channel named by the payload, one of the allowed ones. If empty, the category's channel applies.
	Channel   string
	ThreadTS  string    // the timestamp of the message to reply to; empty outside a thread
	Cost      int       // how many slots it takes, 1 or more
	Time      time.Time // when it happened: the payload's time in UTC, else Published
	Published time.Time // when the stream stored it (or, without a stream, when it was received)
}

// Message is one NATS message, not validated yet.
type Message struct {
	Subject string
	Header  map[string][]string // as in nats.Header: names as the publisher spelled them, not canonicalised
	Data    []byte              // the payload, or its beginning
	// length of the payload where Data is only its beginning; 0: Data is all of it
	DataBytes int
	// the id when neither a header nor the payload has one; not empty, the same at each delivery
	FallbackID string
	Published  time.Time // see Event.Published
}

// KeptOfTooLarge bounds the part of an oversized payload that its dead letter keeps, in bytes. It is enough
// to recognise the event. Whole payloads would displace all other letters.
const KeptOfTooLarge = 4 << 10

// Rules bound the events that Decode accepts.
type Rules struct {
	Pattern  Pattern // which part of a subject is the category
	MaxBytes int     // largest payload in bytes
	// whether a payload may name this channel; if nil, it may name no channel
	ChannelAllowed func(channel string) bool
	// describes a cost above 1 that is not allowed: "expected 1 to 10, ..."; if nil, any cost is
	CheckCost func(category string, cost int) error
}

// Rejection explains why a message cannot be sent, or is no event. Detail is logged: it names the field and
// the expected value, and quotes only short names from the payload (a field, a type, a channel).
type Rejection struct {
	Reason string // outcome.Malformed, TooLarge or Unroutable; Reply if the message is no event
	Detail string
}

// Error makes a Rejection usable as an error.
func (r *Rejection) Error() string { return r.Reason + ": " + r.Detail }
