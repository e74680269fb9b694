// Package deadletter reads the stream that keeps the events that could never be sent, and puts them back.
//
// consume writes that stream: a letter is the event's payload and its publisher's headers, with notifier's own headers
// beside them that say what was wrong. Here nothing is decided about an event; putting back means to publish it as it
// was, to the subject it came from.
package deadletter

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

// Info is what a letter says without its payload. Whatever stands in its headers was checked by nobody.
type Info struct {
	Seq       uint64    // its place in the dead-letter stream
	Time      time.Time // when the event was given up; when the letter was stored, if it does not say
	Category  string    // the event's; empty when the pattern finds none in Subject
	Reason    string    // one of outcome.DeadReasons, if nobody has forged it
	Detail    string    // may be empty
	EventID   string    // may be empty
	Subject   string    // what the event was published to; empty: the letter does not say
	StreamSeq uint64    // the event's place in its stream; 0: it had none
	Bytes     int       // length of the payload, as far as the letter has it
	Shortened int       // length of the whole payload in bytes, when the letter has only a part; else -1
}

// Letter is one message of the dead-letter stream.
type Letter struct {
	Info
	stored time.Time
	header nats.Header
	data   []byte
}

// describe reads the letter's own headers.
func (l *Letter) describe(pattern event.Pattern) {
	l.Info = Info{
		Seq:     l.Seq,
		Time:    l.stored,
		Reason:  l.header.Get(outcome.HeaderReason),
		Detail:  l.header.Get(outcome.HeaderDetail),
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
		l.Shortened, _ = strconv.Atoi(values[0]) // a number that cannot be read: 0, and shortened all the same
	}
}

// longestSubject bounds a subject that is published to, in bytes. A server closes the connection over a line of
// protocol of more than 4096, in which the subject stands beside the one for the answer.
const longestSubject = 2048

// obstacle says why the letter cannot be put back, whoever tries; empty: it can. A subject has to be one that the
// pattern matches: no worker reads another one, and a forged letter must not publish to NATS' own ($JS.API...).
func (l *Letter) obstacle(pattern event.Pattern) string {
	_, matches := pattern.Category(l.Subject)
	switch {
	case l.Shortened >= 0:
		return fmt.Sprintf("it was shortened: %d of the payload's %d bytes are kept", l.Bytes, l.Shortened)
	case l.Subject == "":
		return "it does not say where it came from (" + outcome.HeaderSubject + ")"
	case !publishable(l.Subject):
		return fmt.Sprintf("its subject %.80q cannot be published to", l.Subject)
	case !matches:
		return fmt.Sprintf("its subject %.80q is none of NATS_SUBJECT %q", l.Subject, pattern)
	}
	return ""
}

// publishable reports whether a message can be published to a subject: a publisher can name a wildcard where no
// subscriber could.
func publishable(subject string) bool {
	wildcard := func(token string) bool { return token == "*" || token == ">" }
	return len(subject) <= longestSubject && subject[0] != '$' &&
		!strings.ContainsFunc(subject, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) &&
		!slices.ContainsFunc(strings.Split(subject, "."), wildcard)
}

// message is the event as it was published, but for two headers: a message id by which the stream knows a letter that
// is put back twice, and the id that the event had.
func (l *Letter) message() *nats.Msg {
	message := nats.NewMsg(l.Subject)
	for name, values := range l.header {
		if !reserved(name) {
			message.Header[name] = values
		}
	}
	message.Header.Set(nats.MsgIdHdr, fmt.Sprintf("replay.%d.%d", l.Seq, l.stored.UnixNano()))
	if l.EventID != "" {
		message.Header.Set(outcome.HeaderEventID, l.EventID)
	}
	message.Data = l.data
	return message
}

// reserved tells the headers of a letter that are not its publisher's: notifier's, and the letter's own of NATS. (consume
// keeps no publisher's Nats- header: they are orders to the server, which were carried out when the event was stored.)
func reserved(name string) bool {
	return strings.HasPrefix(name, "Nats-") || strings.HasPrefix(strings.ToLower(name), "notifier-")
}
