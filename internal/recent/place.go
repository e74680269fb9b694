// Package recent keeps what became of events for a day, and answers questions about it: why did this alert not arrive?
//
// Workers record outcomes in a JetStream stream of their own (recorder.go), within a budget (budget.go): a storm is recorded in
// parts, and what is left out is counted. Commands and the admin server read it (reader.go, tail.go).
//
// The package knows the stream and the form of its records. A record has no payload. It is a help for people, and nothing is
// decided from it: a worker goes on without it, and it may be lost.
//
// Reading order: place.go (where), outcome.go (what), budget.go and recorder.go (writing), pages.go, reader.go and tail.go
// (reading).
package recent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/event"
)

// What the stream is created with. One that exists is used as it is.
const (
	// MaxAge is how long an outcome is kept at most.
	MaxAge         = 24 * time.Hour
	maxBytes       = 64 << 20
	maxOfCategory  = 1000
	maxMessageSize = 16 << 10 // a record is smaller; others cannot put large messages among them
)

// noCategory stands in the subject for a category that a subject cannot have.
const noCategory = "_invalid"

// longestCategory is the longest category that an event may have, in bytes.
const longestCategory = 128

// Place is where outcomes are kept.
type Place struct {
	Stream  string // <NATS_STREAM>_EVENTS
	Subject string // an outcome goes to <Subject>.<category>
}

// NewPlace is the place for the outcomes of the events in a stream, which workers read by a pattern. The error says why there can
// be none: what is recorded would be read as an event.
func NewPlace(events string, pattern event.Pattern) (Place, error) {
	p := Place{Stream: events + "_EVENTS", Subject: strings.ToLower(events) + "-events"}
	if event.Overlap(pattern.String(), p.all()) {
		return Place{}, fmt.Errorf("NATS_SUBJECT %s matches the subjects of outcomes, %s; set NATS_STREAM or NATS_SUBJECT to another name", pattern, p.all())
	}
	return p, nil
}

// all are the subjects of all outcomes.
func (p Place) all() string { return p.Subject + ".>" }

// subject is where an outcome of a category goes, and where to look for it.
func (p Place) subject(category string) string {
	category = short(category, longestName) // as the record has it
	if !fits(category) {
		category = noCategory
	}
	return p.Subject + "." + category
}

// fits reports whether a category can stand in a subject as it is.
func fits(category string) bool {
	if len(category) > longestCategory || strings.ContainsAny(category, " \t\r\n\f\v\x00") {
		return false
	}
	for token := range strings.SplitSeq(category, ".") {
		if token == "" || token == "*" || token == ">" {
			return false
		}
	}
	return true
}

// Config is how the stream is created.
func (p Place) Config() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        p.Stream,
		Description: "what became of the events that notifier settled, for a day",
		Subjects:    []string{p.all()},
		MaxAge:      MaxAge,
		MaxBytes:    maxBytes,
		MaxMsgSize:  maxMessageSize,
		Discard:     jetstream.DiscardOld,
		Storage:     jetstream.FileStorage,
		AllowDirect: true,

		MaxMsgsPerSubject: maxOfCategory, // one category cannot displace the outcomes of all others
	}
}

// Mismatch is why a stream of this name cannot be used; empty: it can.
func (p Place) Mismatch(config jetstream.StreamConfig) string {
	takes := func(s string) bool { return event.Covers(s, p.all()) }
	switch {
	case config.Mirror != nil || len(config.Sources) > 0:
		return fmt.Sprintf("stream %s is a copy of others, expected one that takes %s", p.Stream, p.all())
	case !slices.ContainsFunc(config.Subjects, takes):
		return fmt.Sprintf("stream %s takes %s, expected %s", p.Stream, strings.Join(config.Subjects, ", "), p.all())
	}
	return ""
}
