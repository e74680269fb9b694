package consume

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// Headers of a dead letter, beside those of the event itself.
const (
	HeaderEventID   = "Notifier-Event-Id"
	HeaderReason    = "Notifier-Reason"
	HeaderDetail    = "Notifier-Detail"
	HeaderSubject   = "Notifier-Subject"
	HeaderStreamSeq = "Notifier-Stream-Seq"
	HeaderTime      = "Notifier-Time" // RFC 3339, when it was given up
)

// noCategory takes the category's place in the subject of an event that has none that could stand there.
const noCategory = "_invalid"

// bury puts events that can never be sent into the dead-letter stream. It returns only when they are kept there, or
// with an error when ctx ends: an event is given up at one place only after it is safe at the other.
func (w *Worker) bury(ctx context.Context, dead []Settled) error {
	if len(dead) == 0 {
		return nil
	}
	letters := make([]*nats.Msg, len(dead))
	for i := range dead {
		letters[i] = w.letter(&dead[i])
	}
	for {
		err := w.source.bury(ctx, letters)
		if err == nil {
			w.waits.end(waitDeadLetter)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		w.waits.begin(waitDeadLetter, err)
		w.stamp()
		if !sleep(ctx, jitter(retryPause)) {
			return ctx.Err()
		}
	}
}

func (w *Worker) letter(s *Settled) *nats.Msg {
	d := s.delivery
	category := s.Event.Category
	if category == "" {
		category = noCategory
	}
	letter := nats.NewMsg(w.deadLetter + "." + category)
	for name, values := range d.Header {
		if !controlsPublishing(name) {
			letter.Header[name] = values
		}
	}
	letter.Data = d.Data
	// The message's place in its stream makes a letter that is published twice one letter.
	letter.Header.Set(nats.MsgIdHdr, "dead."+d.FallbackID)
	letter.Header.Set(HeaderEventID, s.Event.ID)
	letter.Header.Set(HeaderReason, s.Reason)
	if s.Detail != "" {
		letter.Header.Set(HeaderDetail, s.Detail)
	}
	letter.Header.Set(HeaderSubject, d.Subject)
	if d.streamSeq > 0 {
		letter.Header.Set(HeaderStreamSeq, strconv.FormatUint(d.streamSeq, 10))
	}
	letter.Header.Set(HeaderTime, time.Now().UTC().Format(time.RFC3339Nano))
	return letter
}

// controlsPublishing tells the headers that the server acts upon when a message is published ("expect the last
// sequence to be ...", "roll up"): copied from an event they could make the dead-letter stream refuse it, or wipe it.
func controlsPublishing(name string) bool {
	const reserved = "Nats-"
	return len(name) >= len(reserved) && name[:len(reserved)] == reserved
}
