package consume

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/internal/outcome"
)

// noCategory replaces the category in the subject where the event has none that a subject can have.
const noCategory = "_invalid"

// letterTimeout is how long one attempt to store letters may take. A letter that is stored after it is tried again, and
// is no second letter, because of its message id.
const letterTimeout = 2 * time.Second

// errUnconnected is why no letter is published while there is no connection: the client would only queue it.
var errUnconnected = errors.New("no connection to NATS")

// storeLetters puts events that can never be sent into the dead-letter stream, with one error for each, and returns within
// letterTimeout.
func (w *Worker) storeLetters(ctx context.Context, dead []Settled) []error {
	ctx, cancel := context.WithTimeout(ctx, letterTimeout)
	defer cancel()
	if reason := unreachable(ctx, w.settings.JetStream.Connection, w.settings.JetStream.Why); reason != "" {
		return slices.Repeat([]error{errUnconnected}, len(dead))
	}
	letters := make([]*nats.Msg, len(dead))
	for i := range dead {
		letters[i] = w.letter(w.settings.JetStream.DeadLetter, &dead[i])
	}
	errs := make([]error, len(dead))
	for i, letter := range w.source.publishDeadLetters(ctx, letters) {
		dead[i].LetterSeq, errs[i] = letter.seq, letter.err
	}
	return errs
}

// letter is the event as it is published to <subject>.<category>, with its own headers and notifier's.
func (w *Worker) letter(subject string, s *Settled) *nats.Msg {
	d := s.delivery
	letter := nats.NewMsg(subject + "." + letterCategory(s))
	for name, values := range d.Header {
		if !reserved(name) && publishable(name) {
			letter.Header[name] = values
		}
	}
	letter.Data = d.Data
	w.describe(letter, s)
	if d.DataBytes > len(d.Data) { // see keep
		letter.Header.Set(outcome.HeaderShortened, strconv.Itoa(d.DataBytes))
	}
	w.shorten(letter, s)
	return letter
}

// letterCategory is the category as it stands in the subject of the event's letter.
func letterCategory(s *Settled) string {
	if !literal(s.Event.Category) {
		return noCategory
	}
	return s.Event.Category
}

// describe sets notifier's own headers.
func (w *Worker) describe(letter *nats.Msg, s *Settled) {
	d := s.delivery
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
	if d.streamSeq > 0 {
		letter.Header.Set(outcome.HeaderStreamSeq, strconv.FormatUint(d.streamSeq, 10))
	}
	ended := s.ended
	if ended.IsZero() {
		ended = time.Now()
	}
	letter.Header.Set(outcome.HeaderTime, ended.UTC().Format(time.RFC3339Nano))
}

const (
	// longestHeaders is what JetStream takes as all headers of a message together, in bytes.
	longestHeaders = 1<<16 - 1
	// keptOfTooLarge is how much of a payload that is too large its letter keeps, in bytes: enough to see what it was. The
	// letters of large events would displace all others.
	keptOfTooLarge = 4096
)

// shorten cuts a letter to what it may keep, and to what the server takes in one message: an event may fill one to the last
// byte, and its letter has more headers. The publisher's headers stay unless they are what is too long.
func (w *Worker) shorten(letter *nats.Msg, s *Settled) {
	most, largest := len(letter.Data), int(w.settings.JetStream.Connection.MaxPayload())
	if largest <= 0 {
		largest = math.MaxInt32 // not known yet
	}
	if s.Reason == outcome.TooLarge {
		most = min(most, keptOfTooLarge)
	}
	headers := func() int { return letter.Size() - len(letter.Subject) - len(letter.Data) }
	if headers() <= longestHeaders && headers()+len(letter.Data) <= largest && len(letter.Data) == most {
		return
	}
	was := strconv.Itoa(max(len(letter.Data), s.delivery.DataBytes))
	letter.Header.Set(outcome.HeaderShortened, was)
	if headers() > min(longestHeaders, largest) {
		letter.Header = nats.Header{outcome.HeaderShortened: {was}}
		w.describe(letter, s)
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

// reserved reports whether a header is not the publisher's to set on a dead letter. Those of NATS are instructions to the
// server when a message is published ("expect the last sequence to be ...", "roll up"): copied from an event they could
// make the dead-letter stream refuse it, or wipe it.
func reserved(name string) bool {
	const server, own = "Nats-", outcome.HeaderPrefix
	return strings.HasPrefix(name, server) || (len(name) >= len(own) && strings.EqualFold(name[:len(own)], own))
}

// publishable reports whether nats.go publishes a header of this name. It receives more than that.
func publishable(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`"()/,:;<=>?@[\]{}`, r)
	})
}
