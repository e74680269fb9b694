package letters

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/event"
	"notifier/internal/outcome"
)

// Info describes a letter without its payload. Its fields come from the letter's headers, which are not
// validated: anyone who may publish to the dead-letter stream can forge them.
type Info struct {
	Seq       uint64    // in the dead-letter stream
	Time      time.Time // when the event died, or when the letter was stored if no header has the time
	Category  string    // empty if Subject does not match the pattern
	Reason    string    // one of outcome.DeadReasons, unless forged
	Detail    string
	Source    string // the event's origin according to its publisher
	EventID   string
	Subject   string // where the event was published
	StreamSeq uint64 // the event's sequence in its stream, 0 if unknown
	Bytes     int    // length of the payload in the letter
	Shortened int    // length of the whole payload if the letter has only its beginning, else -1
}

// Letter is one message of the dead-letter stream.
type Letter struct {
	Info
	stored time.Time
	kept   string // the subject of the letter itself
	header nats.Header
	data   []byte
}

func readLetter(message *jetstream.RawStreamMsg, pattern event.Pattern) *Letter {
	header := message.Header
	l := &Letter{
		Info: Info{
			Seq:     message.Sequence,
			Time:    message.Time.UTC(),
			Reason:  header.Get(outcome.HeaderReason),
			Detail:  header.Get(outcome.HeaderDetail),
			Source:  header.Get(outcome.HeaderSource),
			EventID: header.Get(outcome.HeaderEventID),
			Subject: header.Get(outcome.HeaderSubject),
			Bytes:   len(message.Data), Shortened: -1,
		},
		stored: message.Time.UTC(), kept: message.Subject, header: header, data: message.Data,
	}
	if died, err := time.Parse(time.RFC3339, header.Get(outcome.HeaderTime)); err == nil {
		l.Time = died.UTC()
	}
	l.Category, _ = pattern.Category(l.Subject)
	l.StreamSeq, _ = strconv.ParseUint(header.Get(outcome.HeaderStreamSeq), 10, 64)
	if values := header[outcome.HeaderShortened]; len(values) > 0 {
		l.Shortened, _ = strconv.Atoi(values[0]) // 0 if invalid: the letter is shortened all the same
	}
	return l
}

// Payload returns the payload of the event, or its beginning if the letter was shortened. It may have any
// bytes and should be shown only on request.
func (l *Letter) Payload() []byte { return l.data }

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
// Others may publish to the stream too, and delete their messages themselves.
func (l *Letter) foreign(subject string) string {
	switch {
	case !strings.HasPrefix(l.kept, subject+"."):
		return fmt.Sprintf("it is no dead letter: its subject %.80q is not below %s", l.kept, subject)
	case !slices.Contains(outcome.DeadReasons(), l.Reason):
		return fmt.Sprintf("it is no dead letter: its %s is %.80q, which is no reason of one",
			outcome.HeaderReason, l.Reason)
	case l.header.Get(outcome.HeaderTime) == "":
		return "it is no dead letter: it has no " + outcome.HeaderTime
	}
	return ""
}

// maxSubject bounds a subject to publish to, in bytes. A server closes the connection if a protocol line is
// longer than 4096 bytes, and that line has the reply subject as well.
const maxSubject = 2048

// obstacle explains why the letter can never be replayed. It returns "" if it can. The subject must match the
// pattern: no worker reads any other, and a forged letter must not reach the API of the server ($JS.API...).
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

// publishable reports whether a client may publish to a subject. Publishers can store wildcards in a subject,
// where only subscriptions may have them.
func publishable(subject string) bool {
	return len(subject) <= maxSubject && subject[0] != '$' && literal(subject) &&
		!strings.ContainsFunc(subject, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
}

// message returns the event as it was published, with three headers of its own: a message ID by which the
// stream detects a second replay, the event's ID, and the source without secrets.
func (l *Letter) message() *nats.Msg {
	message := nats.NewMsg(l.Subject)
	message.Header = l.Headers()
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
