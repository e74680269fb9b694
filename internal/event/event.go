// Package event decodes what publishers send: a NATS message becomes an Event, or a Rejection with the reason
// why it can never be sent.
//
// An event comes in as the bytes and headers of one NATS message. Decode reads them once, in one of three
// forms: plain text, a JSON object, or a CloudEvent (structured JSON or binary headers). What comes out is
// either an Event in which every field is within its bounds, or a Rejection with one of four reasons; the
// rest of the program never looks at a payload again.
//
// The category is taken from the subject alone, so that no payload can charge another category's budget.
//
// The package knows payload formats and subjects. It does not know limits, Slack or how messages arrive.
//
// Reading order: event.go (the types), decode.go (Decode), parse.go (JSON), object.go (the fields of an
// event), cloudevents.go (CloudEvents), source.go (who has caused it), reply.go (what is no event),
// pattern.go (categories in subjects).
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
	// the source of the CloudEvent whose own id ID is, of any length: it counts together with that; empty: ID
	// counts alone
	IDSource string
	// who has caused it, as the publisher says and nobody has checked: one printable line of up to 128 bytes
	// without secrets; empty: not known
	Source string
	// the part of the subject that the pattern's last wildcard matches; 1 to 128 bytes of UTF-8
	Category string
	Subject  string // the whole subject it was published to
	// the message as the publisher wrote it, valid UTF-8; may be empty when Blocks is set
	Text   string
	Blocks json.RawMessage // a Block Kit array of 1 to 50 blocks, as the publisher wrote it, or nil
	// the channel that the payload asks for, one of the allowed ones; empty: the category's
	Channel   string
	ThreadTS  string    // the timestamp of the message whose thread it belongs to; empty: none
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

// KeptOfTooLarge is how much of a payload above Rules.MaxBytes is kept, in bytes: enough to see in its dead
// letter what it was. It is never decoded, and whole ones would displace all other letters.
const KeptOfTooLarge = 4 << 10

// Rules bound what Decode accepts.
type Rules struct {
	Pattern  Pattern // which part of a subject is the category
	MaxBytes int     // largest payload in bytes
	// whether a payload may name this channel; nil: none may be named
	ChannelAllowed func(channel string) bool
	// what is wrong with a cost above 1: "expected 1 to 10, ..."; nil: anything goes
	CheckCost func(category string, cost int) error
	// what is wrong with blocks, quoting nothing but short names of them; nil: anything goes
	CheckBlocks func(json.RawMessage) error
}

// Rejection is why an event can never be sent, or why a message is no event. Detail is for people; it names
// the field and what was expected, and quotes nothing of the payload but short names (a field, a type, a
// channel), because it is logged.
type Rejection struct {
	Reason string // outcome.Malformed, TooLarge, Unroutable, or Reply for what is no event
	Detail string
}

// Error makes a Rejection usable as an error.
func (r *Rejection) Error() string { return r.Reason + ": " + r.Detail }
