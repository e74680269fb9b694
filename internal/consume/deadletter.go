package consume

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/internal/outcome"
)

// noCategory replaces the category in the subject where the event has none that a subject can have.
const noCategory = "_invalid"

// publishDeadLetters puts events that can never be sent into the dead-letter stream. It returns only when they are stored
// there, or with an error when ctx ends: an event leaves one stream only after it is safe in the other.
func (w *Worker) publishDeadLetters(ctx context.Context, dead []Settled) error {
	if len(dead) == 0 {
		return nil
	}
	letters := make([]*nats.Msg, len(dead))
	for i := range dead {
		letters[i] = w.letter(w.deadLetterSubject, &dead[i])
	}
	return w.hold(ctx, deadLetterStream, func() error { return w.source.publishDeadLetters(ctx, letters) })
}

// letter is the event as it is published to <subject>.<category>, with its own headers and notifier's.
func (w *Worker) letter(subject string, s *Settled) *nats.Msg {
	d := s.delivery
	category := s.Event.Category
	if !literal(category) {
		category = noCategory
	}
	letter := nats.NewMsg(subject + "." + category)
	for name, values := range d.Header {
		if !reserved(name) && publishable(name) {
			letter.Header[name] = values
		}
	}
	letter.Data = d.Data
	w.describe(letter, s)
	if largest := int(w.connection().MaxPayload()); largest > 0 {
		w.shorten(letter, s, largest)
	}
	return letter
}

// describe sets notifier's own headers.
func (w *Worker) describe(letter *nats.Msg, s *Settled) {
	d := s.delivery
	// The message's place in its stream makes a letter that is published twice one letter.
	letter.Header.Set(outcome.HeaderMsgID, s.Outcome+"."+d.FallbackID)
	letter.Header.Set(outcome.HeaderEventID, s.Event.ID)
	letter.Header.Set(outcome.HeaderReason, s.Reason)
	if s.Detail != "" {
		letter.Header.Set(outcome.HeaderDetail, s.Detail)
	}
	letter.Header.Set(outcome.HeaderSubject, d.Subject)
	if d.streamSeq > 0 {
		letter.Header.Set(outcome.HeaderStreamSeq, strconv.FormatUint(d.streamSeq, 10))
	}
	letter.Header.Set(outcome.HeaderTime, time.Now().UTC().Format(time.RFC3339Nano))
}

// longestHeaders is what JetStream takes as all headers of a message together, in bytes.
const longestHeaders = 1<<16 - 1

// shorten cuts a letter to what the server takes in one message: an event may fill one to the last byte, and its letter has
// more headers. The publisher's headers stay unless they are what is too long.
func (w *Worker) shorten(letter *nats.Msg, s *Settled, largest int) {
	headers := func() int { return letter.Size() - len(letter.Subject) - len(letter.Data) }
	if headers() <= longestHeaders && headers()+len(letter.Data) <= largest {
		return
	}
	was := strconv.Itoa(len(letter.Data))
	letter.Header.Set(outcome.HeaderShortened, was)
	if headers() > min(longestHeaders, largest) {
		letter.Header = nats.Header{outcome.HeaderShortened: {was}}
		w.describe(letter, s)
	}
	letter.Data = letter.Data[:min(len(letter.Data), max(0, largest-headers()))]
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
