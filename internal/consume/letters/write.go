package letters

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/consume/result"
	"notifier/internal/event"
	"notifier/internal/outcome"
)

// noCategory replaces a category that cannot be part of a subject.
const noCategory = "_invalid"

// maxHeaders is JetStream's limit for all headers of a message together, in bytes.
const maxHeaders = 1<<16 - 1

// Write makes the message about a dead or dropped event, for <subject>.<category>. Only the given stream may
// store it, or any stream if that is empty. A message longer than maxBytes is cut. Zero cuts none, because
// the server's limit is not known yet.
func Write(subject, stream string, r *result.Result, maxBytes int64) *nats.Msg {
	d := r.Delivery
	letter := nats.NewMsg(subject + "." + letterCategory(r))
	for name, values := range d.Message.Header {
		if keepsHeader(name) {
			letter.Header[name] = values
		}
	}
	letter.Data = d.Message.Data
	describe(letter, stream, r)
	if d.Message.DataBytes > len(d.Message.Data) { // the feed has cut the payload
		letter.Header.Set(outcome.HeaderShortened, strconv.Itoa(d.Message.DataBytes))
	}
	shorten(letter, stream, r, maxBytes)
	return letter
}

// keepsHeader reports whether a letter has the publisher's header of this name. Clients take an empty message
// with a Status header for a message of the server, and would skip the letter or stop reading.
func keepsHeader(name string) bool {
	return !outcome.OwnHeader(name) && outcome.PublishableHeader(name) &&
		!strings.EqualFold(name, "Status") && !strings.EqualFold(name, "Description")
}

// letterCategory returns the category as part of a subject.
func letterCategory(r *result.Result) string {
	if !literal(r.Event.Category) {
		return noCategory
	}
	return r.Event.Category
}

// literal reports whether text can be part of a subject to publish to. A publisher can send a wildcard.
func literal(text string) bool {
	for token := range strings.SplitSeq(text, ".") {
		if token == "" || token == "*" || token == ">" {
			return false
		}
	}
	return true
}

// describe sets notifier's own headers.
func describe(letter *nats.Msg, stream string, r *result.Result) {
	set := func(name, value string) {
		if value != "" {
			letter.Header.Set(name, value)
		}
	}
	record := r.Record()
	set(jetstream.ExpectedStreamHeader, stream)
	// FallbackID is the event's place in its stream: a letter that is published twice is stored once.
	set(outcome.HeaderMsgID, record.Outcome+"."+r.Delivery.Message.FallbackID)
	set(outcome.HeaderEventID, record.EventID)
	set(outcome.HeaderSource, record.Source)
	set(outcome.HeaderReason, record.Reason)
	set(outcome.HeaderDetail, record.Detail)
	set(outcome.HeaderSubject, record.Subject)
	set(outcome.HeaderTime, record.Time.Format(time.RFC3339Nano))
	if record.StreamSeq > 0 {
		set(outcome.HeaderStreamSeq, strconv.FormatUint(record.StreamSeq, 10))
	}
}

// shorten cuts a letter to the bytes that a letter keeps and that the server accepts in one message: an event
// may fill a message to the last byte, and its letter has more headers. The publisher's headers are dropped
// only if they are too long without any payload; otherwise the payload is cut.
func shorten(letter *nats.Msg, stream string, r *result.Result, maxBytes int64) {
	whole := len(letter.Data)
	kept, limit := whole, int(maxBytes)
	if limit <= 0 {
		limit = math.MaxInt32
	}
	if r.Reason == outcome.TooLarge {
		kept = min(kept, event.KeptOfTooLarge)
	}
	headers := func() int { return letter.Size() - len(letter.Subject) - len(letter.Data) }
	if headers() <= maxHeaders && headers()+whole <= limit && kept == whole {
		return
	}
	was := strconv.Itoa(max(whole, r.Delivery.Message.DataBytes))
	letter.Header.Set(outcome.HeaderShortened, was)
	if headers() > min(maxHeaders, limit) {
		letter.Header = nats.Header{outcome.HeaderShortened: {was}}
		describe(letter, stream, r)
	}
	letter.Data = letter.Data[:min(kept, max(0, limit-headers()))]
}
