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

// Info describes a letter without its payload. It comes from the letter's headers, which have not been
// validated.
type Info struct {
	Seq       uint64    // its sequence in the dead-letter stream
	Time      time.Time // when the event was dead-lettered; without such a header when the letter was stored
	Category  string    // the event's; empty if Subject does not match the pattern
	Reason    string    // one of outcome.DeadReasons, unless it is forged
	Detail    string    // may be empty
	Source    string    // who has caused the event, as its publisher says; may be empty
	EventID   string    // may be empty
	Subject   string    // the subject that the event was published to; empty: the letter does not name it
	StreamSeq uint64    // the event's sequence in its stream; 0: it had none
	Bytes     int       // length of the payload in the letter, in bytes
	Shortened int       // length of the whole payload in bytes, if the letter has only a part; else -1
}

// Letter is one message of the dead-letter stream.
type Letter struct {
	Info
	stored time.Time
	kept   string // the subject under which the stream keeps it
	header nats.Header
	data   []byte
}

// Payload is the event's payload, or its beginning where Info.Shortened has its length: any bytes, to be
// shown only on request.
func (l *Letter) Payload() []byte { return l.data }

// Headers are the event's own headers, as its publisher set them. Their values can hold secrets and any
// characters.
func (l *Letter) Headers() map[string][]string {
	headers := map[string][]string{}
	for name, values := range l.header {
		if !outcome.OwnHeader(name) {
			headers[name] = values
		}
	}
	return headers
}

// describe sets Info from the letter's own headers.
func (l *Letter) describe(pattern event.Pattern) {
	l.Info = Info{
		Seq:     l.Seq,
		Time:    l.stored,
		Reason:  l.header.Get(outcome.HeaderReason),
		Detail:  l.header.Get(outcome.HeaderDetail),
		Source:  l.header.Get(outcome.HeaderSource),
		EventID: l.header.Get(outcome.HeaderEventID),
		Subject: l.header.Get(outcome.HeaderSubject),
		Bytes:   len(l.data), Shortened: -1,
	}
	if given, err := time.Parse(time.RFC3339, l.header.Get(outcome.HeaderTime)); err == nil {
		l.Time = given.UTC()
	}
	l.Category, _ = pattern.Category(l.Subject)
	l.StreamSeq, _ = strconv.ParseUint(l.header.Get(outcome.HeaderStreamSeq), 10, 64)
	if values := l.header[outcome.HeaderShortened]; len(values) > 0 {
		l.Shortened, _ = strconv.Atoi(values[0]) // an invalid number gives 0: the letter is shortened all the same
	}
}

// longestSubject bounds a subject to publish to, in bytes. A server closes the connection if a protocol line
// is longer than 4096 bytes, and that line has the reply subject as well.
const longestSubject = 2048

// obstacle returns why the letter can never be replayed; empty: it can. Its subject has to match the pattern:
// no worker reads any other subject, and a forged letter must not publish to the subjects of NATS itself
// ($JS.API...).
func (l *Letter) obstacle(pattern event.Pattern) string {
	_, matches := pattern.Category(l.Subject)
	switch {
	case l.Shortened >= 0:
		return fmt.Sprintf("it was shortened: %d of the payload's %d bytes are kept", l.Bytes, l.Shortened)
	case l.Subject == "":
		return "it does not name its subject (" + outcome.HeaderSubject + ")"
	case !publishable(l.Subject):
		return fmt.Sprintf("its subject %.80q cannot be published to", l.Subject)
	case !matches:
		return fmt.Sprintf("its subject %.80q does not match NATS_SUBJECT %q", l.Subject, pattern)
	}
	return ""
}

// publishable reports whether a message may be published to subject. A publisher can put a wildcard into the
// subject of a message, where only subscriptions may have one.
func publishable(subject string) bool {
	wildcard := func(token string) bool { return token == "*" || token == ">" }
	return len(subject) <= longestSubject && subject[0] != '$' &&
		!strings.ContainsFunc(subject, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) &&
		!slices.ContainsFunc(strings.Split(subject, "."), wildcard)
}

// message returns the event as it was published, except for three headers: a message id by which the stream
// detects a letter that is replayed twice, the id that the event had, and who has caused it, without the
// secrets that the publisher may have put there.
func (l *Letter) message() *nats.Msg {
	message := nats.NewMsg(l.Subject)
	for name, values := range l.header {
		if !outcome.OwnHeader(name) {
			message.Header[name] = values
		}
	}
	message.Header.Set(nats.MsgIdHdr, fmt.Sprintf("replay.%d.%d", l.Seq, l.stored.UnixNano()))
	if l.EventID != "" {
		message.Header.Set(outcome.HeaderEventID, l.EventID)
	}
	if l.Source != "" {
		message.Header.Set(outcome.HeaderSource, l.Source)
	}
	message.Data = l.data
	return message
}
