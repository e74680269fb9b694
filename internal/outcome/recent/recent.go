// Package recent keeps the records of settled events for a day, so that an operator can look up a
// notification that did not arrive.
//
// The log has every record, but few people can search it at night. Workers therefore also publish records,
// without payloads, to a JetStream stream; "events", "why", "publish -wait" and the admin server read it.
// No decision depends on this stream. It may lose records, and recording must not slow a worker down.
//
// A Recorder takes records without blocking and stores them from one goroutine. A rate limit for each
// category and reason keeps a storm from displacing all other records, unless it spreads over hundreds of
// categories. The next record of the same kind counts the records that were left out. If none follows within
// seconds, the last event that was left out is recorded for that.
//
// The subject of a record holds a hash of the event id, so one direct request finds all records of an event.
// Reading needs a single permission and creates no consumer.
//
// A publisher can store messages in the stream: it names one of its subjects as the reply subject of an
// event, and the server's acknowledgement ends up there. Readers skip every message that is not a record or
// that is on the wrong subject. This includes the records of v0.2.0. Enough of these messages displace
// records; the log keeps all.
package recent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/denial"
	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/term"
)

// Settings of the stream, if a worker creates it. An existing stream is used as it is.
const (
	// MaxAge is the age at which a record is deleted.
	MaxAge = 24 * time.Hour
	// MinBytes is the smallest size of the stream. An account without room for 64 MiB gets less.
	MinBytes       = 1 << 20
	maxBytes       = 64 << 20
	maxMessageSize = 32 << 10 // fits every record
	// Publishers may reuse one id for all events. Readers get the newest records of an id.
	maxOfID = 100
)

// Bounds of the texts in a record, in bytes. Escaped as JSON, all texts together stay below maxMessageSize.
const (
	maxText = 512
	maxName = 256
)

// Place names the stream of records and its subjects.
type Place struct {
	Stream  string // <NATS_STREAM>_EVENTS
	Subject string // records go to <Subject>.<hash of the event id>.<category>
	pattern event.Pattern
}

// NewPlace returns the place for the records of the events in a stream, which workers read by a pattern. It
// returns an error if workers would read records as events.
func NewPlace(events string, pattern event.Pattern) (p Place, err error) {
	p = Place{Stream: StreamName(events), Subject: SubjectPrefix(events)}
	if event.Overlap(pattern.String(), p.all()) {
		return Place{}, fmt.Errorf("NATS_SUBJECT %s matches the subjects of outcomes, %s; "+
			"set NATS_STREAM or NATS_SUBJECT to another name", pattern, p.all())
	}
	p.pattern, err = event.ParsePattern(p.all())
	return p, err
}

// StreamName returns the name of the stream of records that belongs to a stream of events.
func StreamName(events string) string { return events + "_EVENTS" }

// SubjectPrefix returns the prefix of the subjects of records that belong to a stream of events.
func SubjectPrefix(events string) string { return strings.ToLower(events) + "-events" }

// DirectGet returns the subject of requests for single messages of the stream.
func (p Place) DirectGet() string { return "$JS.API.DIRECT.GET." + p.Stream }

// all matches the subjects of all records.
func (p Place) all() string { return p.Subject + ".>" }

// subject returns the subject of a category's records. hash may be "*" for any event.
func (p Place) subject(hash, category string) string {
	if _, err := p.pattern.Subject(category); err != nil {
		category = "_invalid" // it has wildcards, white space or control characters
	}
	return p.Subject + "." + hash + "." + category
}

// hash returns the token for an event id in a subject. Ids may hold any characters.
func hash(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

// Config returns the configuration for a new stream.
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

		MaxMsgsPerSubject: maxOfID,
	}
}

// mismatch explains why an existing stream cannot be used. It returns "" if the stream is usable.
func (p Place) mismatch(config jetstream.StreamConfig) string {
	covers := func(subject string) bool { return event.Covers(subject, p.all()) }
	if slices.ContainsFunc(config.Subjects, covers) {
		return ""
	}
	return fmt.Sprintf("stream %s takes %q, expected %s", p.Stream, strings.Join(config.Subjects, ", "), p.all())
}

// decode reads a stored message. It returns false if the message is not a record that belongs on this
// subject.
func (p Place) decode(subject string, data []byte) (r outcome.Record, ok bool) {
	if len(data) > maxMessageSize || json.Unmarshal(data, &r) != nil {
		return outcome.Record{}, false
	}
	complete := r.EventID != "" && !r.Time.IsZero() && slices.Contains(outcome.Outcomes(), r.Outcome)
	if !complete || p.subject(hash(r.EventID), r.Category) != subject {
		return outcome.Record{}, false
	}
	return bounded(r), true
}

// bounded cuts the texts of a record to their bounds and makes them valid UTF-8.
func bounded(r outcome.Record) outcome.Record {
	for _, text := range []*string{&r.EventID, &r.Detail, &r.MuteReason} {
		*text = short(*text, maxText)
	}
	for _, name := range []*string{
		&r.Category, &r.Source, &r.Group, &r.Reason, &r.Limit, &r.Mute, &r.MutedBy,
		&r.Channel, &r.SlackTS, &r.Subject,
	} {
		*name = short(*name, maxName)
	}
	return r
}

// short makes a text valid UTF-8 and cuts it to a number of bytes, on a rune boundary.
func short(text string, maxLength int) string {
	return term.Cut(strings.ToValidUTF8(text, "\uFFFD"), maxLength)
}

const requestTimeout = 5 * time.Second

var errTimeout = errors.New("NATS did not respond in time")

// begin returns a context for one request. It ends with a denial or after requestTimeout.
func begin(ctx context.Context, watch *denial.Watch) (context.Context, context.CancelFunc) {
	ctx, end := watch.Context(ctx)
	ctx, stop := context.WithTimeoutCause(ctx, requestTimeout, errTimeout)
	return ctx, func() {
		stop()
		end()
	}
}
