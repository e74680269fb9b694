package letters

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/nats-io/nats.go"

	"notifier/internal/event"
	"notifier/internal/outcome"
)

// Letter is one message of the dead-letter stream. Anyone who may publish to the stream can forge one.
type Letter struct {
	Record  outcome.Record // of the event; LetterSeq is the letter's own
	Payload []byte         // of the event, or its beginning; see Shortened
	header  nats.Header
	subject string // the letter's, not the event's
	stored  time.Time
}

// readLetter reads a message of the dead-letter stream. No header is trusted: a message without them has a
// Record without a reason.
func readLetter(m *nats.Msg, seq uint64, stored time.Time, pattern event.Pattern) *Letter {
	r := outcome.Record{
		Time:      stored.UTC(),
		EventID:   m.Header.Get(outcome.HeaderEventID),
		Source:    m.Header.Get(outcome.HeaderSource),
		Outcome:   outcome.Dead,
		Reason:    m.Header.Get(outcome.HeaderReason),
		Detail:    m.Header.Get(outcome.HeaderDetail),
		LetterSeq: seq,
		Subject:   m.Header.Get(outcome.HeaderSubject),
	}
	if died, err := time.Parse(time.RFC3339, m.Header.Get(outcome.HeaderTime)); err == nil {
		r.Time = died.UTC()
	}
	r.Category, _ = pattern.Category(r.Subject)
	r.StreamSeq, _ = strconv.ParseUint(m.Header.Get(outcome.HeaderStreamSeq), 10, 64)
	return &Letter{Record: r, Payload: m.Data, header: m.Header, subject: m.Subject, stored: stored}
}

// Shortened reports whether the letter lacks a part of the payload, or the publisher's headers. It returns
// the length of the whole payload in bytes, 0 if unknown.
func (l *Letter) Shortened() (whole int, shortened bool) {
	values := l.header[outcome.HeaderShortened]
	if len(values) == 0 {
		return 0, false
	}
	whole, _ = strconv.Atoi(values[0])
	return whole, true
}

// Headers returns the publisher's own headers. Their values may contain secrets and any characters.
func (l *Letter) Headers() map[string][]string {
	headers := map[string][]string{}
	for name, values := range l.header {
		if !outcome.OwnHeader(name) {
			headers[name] = values
		}
	}
	return headers
}

// foreign explains why no worker can have stored the message below subject. It returns "" for a letter.
func (l *Letter) foreign(subject string) string {
	switch {
	case !strings.HasPrefix(l.subject, subject+"."):
		return fmt.Sprintf("it is not a dead letter: its subject %.80q is not below %s", l.subject, subject)
	case !slices.Contains(outcome.DeadReasons(), l.Record.Reason):
		return fmt.Sprintf("it is not a dead letter: its %s is %.80q", outcome.HeaderReason, l.Record.Reason)
	case l.header.Get(outcome.HeaderTime) == "":
		return "it is not a dead letter: it has no " + outcome.HeaderTime
	}
	return ""
}

// maxSubject bounds a subject to publish to, in bytes. A server closes the connection if a protocol line is
// longer than 4096 bytes, and that line has the reply subject as well.
const maxSubject = 2048

// obstacle explains why the letter can never be replayed. It returns "" if it can. The subject must match the
// pattern: no worker reads any other, and a forged letter must not reach the API of the server ($JS.API...).
func (l *Letter) obstacle(pattern event.Pattern) string {
	subject := l.Record.Subject
	_, matches := pattern.Category(subject)
	whole, shortened := l.Shortened()
	switch {
	case shortened && whole == len(l.Payload):
		return "it was shortened: its headers are not kept"
	case shortened && whole == 0:
		return "it was shortened: only the beginning of its payload is kept"
	case shortened:
		return fmt.Sprintf("it was shortened: %d of the payload's %d bytes are kept", len(l.Payload), whole)
	case subject == "":
		return "it does not name its subject (" + outcome.HeaderSubject + ")"
	case !publishable(subject):
		return fmt.Sprintf("its subject %.80q cannot be published to", subject)
	case !matches:
		return fmt.Sprintf("its subject %.80q does not match NATS_SUBJECT %q", subject, pattern)
	}
	return ""
}

// publishable reports whether a client may publish to a subject. Publishers can store wildcards in a subject,
// where only subscriptions may have them.
func publishable(subject string) bool {
	return len(subject) <= maxSubject && !strings.HasPrefix(subject, "$") && literal(subject) &&
		!strings.ContainsFunc(subject, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
}

// message returns the event as it was published. In place of notifier's headers it has up to three: a message
// ID by which the stream detects a second replay, the event's ID, and the source as the letter shows it.
func (l *Letter) message() *nats.Msg {
	message := nats.NewMsg(l.Record.Subject)
	message.Header = l.Headers()
	message.Header.Set(nats.MsgIdHdr, fmt.Sprintf("replay.%d.%d", l.Record.LetterSeq, l.stored.UnixNano()))
	if l.Record.EventID != "" {
		message.Header.Set(outcome.HeaderEventID, l.Record.EventID)
	}
	if l.Record.Source != "" {
		message.Header.Set(outcome.HeaderSource, l.Record.Source)
	}
	message.Data = l.Payload
	return message
}
