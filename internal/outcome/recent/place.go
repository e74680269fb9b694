// Package recent keeps the outcomes of events for a day, to answer the question that every alert that did not
// arrive raises: what happened to it?
//
// The log knows, but few people can search it at night. So workers also write each outcome, without its
// payload, to a JetStream stream of their own, and commands and the admin server read that. It is for people:
// nothing is decided from it, it may lose records, and it may not cost a worker anything. Three rules follow.
//
// A worker never waits. It hands an outcome over and goes on (recorder.go). A goroutine of its own stores one
// record at a time, and what it cannot store is left out and counted.
//
// A storm is recorded in parts (limiter.go). Thousands of refusals a second would push everything else out of
// the stream, and the first and the last of them with a count say as much.
//
// Nothing in the stream is trusted (reader.go). A publisher can have acknowledgements stored there by naming
// a reply subject, so whatever is not a record is skipped. There is one way to read: batches of direct reads,
// the newest first. They need one permission and leave no consumer behind. tail.go shares readings among the
// clients of the admin server.
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

// Place is where outcomes are kept.
type Place struct {
	Stream  string // <NATS_STREAM>_EVENTS
	Subject string // an outcome goes to <Subject>.<category>
	pattern event.Pattern
}

// NewPlace is the place for the outcomes of the events in a stream, which workers read by a pattern. It fails
// where records would be read as events.
func NewPlace(events string, pattern event.Pattern) (p Place, err error) {
	p = Place{Stream: events + "_EVENTS", Subject: strings.ToLower(events) + "-events"}
	if event.Overlap(pattern.String(), p.all()) {
		return Place{}, fmt.Errorf("NATS_SUBJECT %s matches the subjects of outcomes, %s; "+
			"set NATS_STREAM or NATS_SUBJECT to another name", pattern, p.all())
	}
	p.pattern, err = event.ParsePattern(p.all())
	return p, err
}

// all are the subjects of all outcomes.
func (p Place) all() string { return p.Subject + ".>" }

// subject is where an outcome of a category goes, and where to look for it.
func (p Place) subject(category string) string {
	subject, err := p.pattern.Subject(short(category, longestName))
	if err != nil { // with wildcards or control characters, which a message's subject can have all the same
		return p.Subject + "._invalid"
	}
	return subject
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

		MaxMsgsPerSubject: maxOfCategory, // so that a category cannot displace the outcomes of all others
	}
}

// Mismatch is why a stream of this name cannot be used; empty: it can.
func (p Place) Mismatch(config jetstream.StreamConfig) string {
	takes := func(s string) bool { return event.Covers(s, p.all()) }
	if slices.ContainsFunc(config.Subjects, takes) {
		return ""
	}
	return fmt.Sprintf("stream %s takes %q, expected %s", p.Stream, strings.Join(config.Subjects, ", "), p.all())
}
