package event

import (
	"bytes"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"notifier/internal/outcome"
	"notifier/internal/pattern"
	"notifier/internal/term"
)

const (
	maxCategoryBytes = pattern.Longest
	maxIDBytes       = 256
	maxNameBytes     = 80 // of a channel name that a Rejection quotes
)

// Decode decodes m in the form that its headers and its first byte indicate, and validates it against r.
//
// The forms are tried in this order:
//   - a structured CloudEvent, when the Content-Type header is application/cloudevents or
//     application/cloudevents+json;
//   - a binary CloudEvent, when there is a ce-specversion header;
//   - a JSON object, when the first byte that is not whitespace is "{" and the Content-Type is not text/plain;
//     with a string "specversion" in it, it is a structured CloudEvent;
//   - plain text.
//
// The fields of a JSON object are text, blocks (up to 50 objects), attachments (objects), id (up to 256 bytes),
// channel, thread_ts (as in "1234567890.123456"), cost (digits only, 1 or more, see Rules.CheckCost) and time
// (RFC 3339, years 1970 to 9999 in UTC). Names are case-sensitive, unknown ones are ignored, and of duplicate
// names the last one counts. A field that is null, an empty string or an empty array counts as absent. A
// CloudEvent's data is read in the same way, except that id and time are the CloudEvent's own.
//
// The source is a CloudEvent's own, or else the Notifier-Source header. It is shown but decides nothing, so a
// bad source never causes a Rejection.
//
// The Rejection is nil if and only if the Event can be sent: ID is not empty, Category has 1 to 128 bytes,
// Cost is 1 or more, and there is a Text with a visible character, or Blocks or Attachments. With a Rejection
// the Event holds the fields decoded so far, for the log and the dead letter: always Subject and Published,
// the best ID available, and Category unless the category itself is invalid (then it is empty).
//
// The Event shares no memory with m.Data. Decode is deterministic and safe for concurrent use.
func Decode(m Message, r Rules) (Event, *Rejection) {
	d := decoding{
		Event: Event{ID: m.FallbackID, Subject: m.Subject, Cost: 1, Time: m.Published, Published: m.Published},
		rules: r,
	}
	// Set first, because a message that is rejected for its size or its category is still logged with its id and
	// category.
	badID := d.setHeaderID(m.Header)
	d.setHeaderSource(m.Header)
	badCategory := d.setCategory(m.Subject)
	reply := replyRejection(m)
	switch {
	case m.payloadBytes() > r.MaxBytes:
		return d.Event, &Rejection{
			outcome.TooLarge,
			fmt.Sprintf("payload has %d bytes, expected at most %d", m.payloadBytes(), r.MaxBytes),
		}
	case m.payloadBytes() > len(m.Data): // it was cut under other rules
		return d.Event, malformed("payload is incomplete")
	case reply != nil:
		return d.Event, reply
	case badCategory != nil:
		return d.Event, badCategory
	case badID != nil:
		return d.Event, badID
	case !utf8.Valid(m.Data):
		return d.Event, malformed("payload is not valid UTF-8")
	}
	if rejection := d.readPayload(m); rejection != nil {
		return d.Event, rejection
	}
	if d.ID == "" {
		// An empty id would make all such events duplicates of one another.
		return d.Event, malformed(
			"event has no id, expected one in %s, the payload or from the stream",
			outcome.HeaderMsgID,
		)
	}
	return d.Event, nil
}

// payloadBytes is the length of the payload as it was published.
func (m Message) payloadBytes() int { return max(len(m.Data), m.DataBytes) }

// decoding is the state of one call of Decode: the event as far as it is decoded, and the rules that it has
// to meet.
type decoding struct {
	Event
	rules        Rules
	hasHeaderID  bool // the id came from a header, which takes precedence over the payload's
	inCloudEvent bool // id and time come from the attributes, even if its data has fields of these names
}

func (d *decoding) readPayload(m Message) *Rejection {
	data := withoutMark(m.Data)
	contentType := ""
	if len(m.Header) > 0 {
		value, _ := HeaderValue(m.Header, "content-type")
		contentType = parseMediaType(value)
		if isStructured, rejection := structuredCloudEvent(contentType); rejection != nil {
			return rejection
		} else if isStructured {
			return d.readStructured(data)
		}
		if _, ok := HeaderValue(m.Header, "ce-specversion"); ok {
			return d.readBinary(m.Header, data, contentType)
		}
	}
	return d.readBody("", data, contentType)
}

// withoutMark is a payload without the byte-order mark that some editors and shells put in front of it.
func withoutMark(data []byte) []byte { return bytes.TrimPrefix(data, []byte("\uFEFF")) }

// readBody reads data as a JSON object if it begins like one, else as text. A Rejection prefixes field names
// with path.
func (d *decoding) readBody(path string, data []byte, contentType string) *Rejection {
	if contentType == "text/plain" || !beginsObject(data) {
		if len(bytes.TrimSpace(data)) == 0 {
			return malformed("payload is empty, expected text or a JSON object")
		}
		return d.readText(string(data))
	}
	o, rejection := parseObject(path, data)
	if rejection != nil {
		return rejection
	}
	if !d.inCloudEvent && o.has("specversion", jsonString) {
		return d.readCloudEvent(&o)
	}
	return d.readObject(&o)
}

func nothingToShow() *Rejection {
	return malformed("event has nothing to show, expected text, blocks or attachments")
}

func (d *decoding) readText(text string) *Rejection {
	if blank(text) {
		return nothingToShow()
	}
	d.Text = text
	return nil
}

func (d *decoding) setCategory(subject string) *Rejection {
	category, ok := d.rules.Pattern.Category(subject)
	switch {
	case !ok:
		return malformed("subject does not match %s, expected one that does", d.rules.Pattern)
	case len(category) > maxCategoryBytes:
		return malformed("category has %d bytes, expected at most %d", len(category), maxCategoryBytes)
	case !utf8.ValidString(category):
		return malformed("category is not valid UTF-8")
	case strings.ContainsFunc(category, unicode.IsControl):
		return malformed("category has a control character, expected none")
	case pattern.HasWildcard(category): // a mute of this category would be one of others, too
		return malformed("category has a wildcard (* or >), expected none")
	}
	d.Category = category
	return nil
}

// setHeaderID takes the id from the first of the two headers that has one. Notifier's own takes precedence: a
// replayed dead letter needs a new Nats-Msg-Id and has to remain the same event. Both are validated, so that
// precedence does not affect the validity of a message. Header names are compared byte by byte, as JetStream
// does: a different spelling is not an id to the server and must not be one here.
func (d *decoding) setHeaderID(header map[string][]string) *Rejection {
	for _, name := range [...]string{outcome.HeaderEventID, outcome.HeaderMsgID} {
		values := header[name]
		if len(values) == 0 || values[0] == "" {
			continue
		}
		if rejection := checkID(name, values[0]); rejection != nil {
			return rejection
		}
		if !d.hasHeaderID {
			d.ID, d.hasHeaderID = values[0], true
		}
	}
	return nil
}

// setPayloadID takes the id from the payload. It is validated even where a header takes precedence, so that a
// payload is valid or not regardless of its headers.
func (d *decoding) setPayloadID(field, id string) *Rejection {
	if id == "" {
		return nil
	}
	if rejection := checkID(field, id); rejection != nil {
		return rejection
	}
	if !d.hasHeaderID {
		d.ID = id
	}
	return nil
}

// checkID validates an id, because it is copied into logs, keys, headers and terminals.
func checkID(field, id string) *Rejection {
	switch {
	case len(id) > maxIDBytes:
		return malformed("%s has %d bytes, expected at most %d", field, len(id), maxIDBytes)
	case !utf8.ValidString(id):
		return malformed("%s is not valid UTF-8", field)
	case strings.ContainsFunc(id, unicode.IsControl):
		return malformed("%s has a control character, expected none", field)
	}
	return nil
}

func (d *decoding) setTime(field, value string) *Rejection {
	if value == "" {
		return nil
	}
	t, err := time.Parse(time.RFC3339, value)
	// Parse accepts a one-digit hour and a comma before the fraction, which RFC 3339 does not.
	if err != nil || value[len("2026-11-20T04")] != ':' || strings.Contains(value, ",") {
		return malformed("%s is not a time, expected RFC 3339 such as 2026-11-20T04:39:01Z", field)
	}
	t = t.UTC()
	if y := t.Year(); y < 1970 || y > 9999 {
		return malformed("%s is not within the years 1970 to 9999 UTC", field)
	}
	d.Time = t
	return nil
}

// malformed builds the most common Rejection. No argument may be a text or any long value from the payload.
func malformed(format string, args ...any) *Rejection {
	return &Rejection{outcome.Malformed, fmt.Sprintf(format, args...)}
}

// blank reports whether text shows nothing: it has only white space, control and formatting characters, and
// sequences for terminals.
func blank(text string) bool {
	return !strings.ContainsFunc(term.Message(text), func(r rune) bool {
		return !unicode.In(r, unicode.White_Space, unicode.Cc, unicode.Cf)
	})
}
