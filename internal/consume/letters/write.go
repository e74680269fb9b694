package letters

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/internal/consume/result"
	"notifier/internal/event"
	"notifier/internal/outcome"
)

// noCategory replaces the category in the subject where the event has none that a subject can have.
const noCategory = "_invalid"

// Write makes the message in which an event is kept at <subject>.<category>, with its own headers and
// notifier's. It fits into one message of at most largest bytes, or of any size if that is 0: what is too
// long is cut.
func Write(subject string, s *result.Result, largest int64) *nats.Msg {
	d := s.Delivery
	letter := nats.NewMsg(subject + "." + letterCategory(s))
	for name, values := range d.Header {
		if !outcome.OwnHeader(name) && outcome.PublishableHeader(name) {
			letter.Header[name] = values
		}
	}
	letter.Data = d.Data
	describe(letter, s)
	if d.DataBytes > len(d.Data) { // see feed
		letter.Header.Set(outcome.HeaderShortened, strconv.Itoa(d.DataBytes))
	}
	shorten(letter, s, largest)
	return letter
}

// letterCategory is the category as it stands in the subject of the event's letter.
func letterCategory(s *result.Result) string {
	if !literal(s.Event.Category) {
		return noCategory
	}
	return s.Event.Category
}

// describe sets notifier's own headers.
func describe(letter *nats.Msg, s *result.Result) {
	d := s.Delivery
	// The message's place in its stream makes a letter that is published twice one letter.
	letter.Header.Set(outcome.HeaderMsgID, s.Outcome+"."+d.FallbackID)
	letter.Header.Set(outcome.HeaderEventID, s.Event.ID)
	if s.Event.Source != "" {
		letter.Header.Set(outcome.HeaderSource, s.Event.Source)
	}
	letter.Header.Set(outcome.HeaderReason, s.Reason)
	if s.Detail != "" {
		letter.Header.Set(outcome.HeaderDetail, s.Detail)
	}
	letter.Header.Set(outcome.HeaderSubject, d.Subject)
	if d.Seq > 0 {
		letter.Header.Set(outcome.HeaderStreamSeq, strconv.FormatUint(d.Seq, 10))
	}
	ended := s.Ended
	if ended.IsZero() {
		ended = time.Now()
	}
	letter.Header.Set(outcome.HeaderTime, ended.UTC().Format(time.RFC3339Nano))
}

// longestHeaders is what JetStream takes as all headers of a message together, in bytes.
const longestHeaders = 1<<16 - 1

// shorten cuts a letter to what it may keep, and to what the server takes in one message: an event may fill
// one to the last byte, and its letter has more headers. The publisher's headers stay unless they are what is
// too long.
func shorten(letter *nats.Msg, s *result.Result, atMost int64) {
	most, largest := len(letter.Data), int(atMost)
	if largest <= 0 {
		largest = math.MaxInt32 // not known yet
	}
	if s.Reason == outcome.TooLarge {
		most = min(most, event.KeptOfTooLarge)
	}
	headers := func() int { return letter.Size() - len(letter.Subject) - len(letter.Data) }
	if headers() <= longestHeaders && headers()+len(letter.Data) <= largest && len(letter.Data) == most {
		return
	}
	was := strconv.Itoa(max(len(letter.Data), s.Delivery.DataBytes))
	letter.Header.Set(outcome.HeaderShortened, was)
	if headers() > min(longestHeaders, largest) {
		letter.Header = nats.Header{outcome.HeaderShortened: {was}}
		describe(letter, s)
	}
	letter.Data = letter.Data[:min(most, max(0, largest-headers()))]
}

// literal reports whether a category can be part of a subject: a publisher can send a wildcard in its place.
func literal(category string) bool {
	for token := range strings.SplitSeq(category, ".") {
		if token == "" || token == "*" || token == ">" {
			return false
		}
	}
	return true
}
