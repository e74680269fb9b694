package feed

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/internal/event"
)

// Delivery is one message that this worker holds, from its arrival until Feed.Ack, Term or Later ends it.
// Only one goroutine may end it, and only once; if Later returns false, the delivery has not ended.
type Delivery struct {
	Message event.Message
	Token   string // names the stream message, the same at each redelivery; see ratelimit.Request
	Seq     uint64 // its sequence in the stream
	Bytes   int64  // of memory that it takes until it has ended; see keep

	// Redelivered is set if the event was delivered more than once, to this worker or to others. It may become
	// true while the delivery is held: during an outage another worker may get the event, and charge or post it.
	Redelivered atomic.Bool

	feed *Feed

	reply   string    // where to acknowledge; empty if the stream was deleted. Guarded by inflight.mu
	touched time.Time // when the server was last informed that it is in progress. Guarded by inflight.mu
}

// delivery makes a Delivery of a message that the consumer has delivered. It is not in flight yet.
func (s *Feed) delivery(message *nats.Msg, meta metadata, now time.Time) *Delivery {
	// A stream that lost data can use a sequence again: the time makes it unique.
	var buffer [128]byte // most names fit
	name := append(append(buffer[:0], s.settings.Stream...), '.')
	name = append(strconv.AppendUint(name, meta.sequence, 10), '.')
	name = strconv.AppendInt(name, meta.published.UnixNano(), 36)
	id := string(name)
	kept, size := keep(message, s.settings.MostPayload)
	kept.FallbackID, kept.Published = id, meta.published
	d := &Delivery{
		Message: kept,
		Token:   id[len(s.settings.Stream)+1:],
		Seq:     meta.sequence,
		Bytes:   size,
		feed:    s,
		reply:   message.Reply,
		touched: now,
	}
	d.Redelivered.Store(meta.delivered > 1)
	return d
}

// The acknowledgements of the JetStream protocol.
var (
	ackDone     = []byte("+ACK")
	ackProgress = []byte("+WPI")
	ackRetry    = []byte("-NAK")
	ackTerm     = "+TERM "
)

// Ack ends deliveries of settled events: the server does not deliver them again. After an error the connection
// has not taken all acknowledgements, so the server delivers some of the events again; the deliveries have ended
// all the same.
func (s *Feed) Ack(deliveries ...*Delivery) error {
	if err := s.end(ackDone, deliveries...); err != nil {
		return fmt.Errorf("nats: acknowledge: %w", err)
	}
	return nil
}

// Term ends a delivery as Feed.Ack does, for an event that could never be sent; the server reports the reason
// in an advisory.
func (d *Delivery) Term(reason string) error {
	if err := d.feed.end([]byte(ackTerm+reason), d); err != nil {
		return fmt.Errorf("nats: terminate: %w", err)
	}
	return nil
}

func (s *Feed) end(word []byte, deliveries ...*Delivery) error {
	defer s.inflight.release(deliveries...)
	var first error
	for _, reply := range s.inflight.repliesOf(deliveries...) {
		if err := s.settings.Connection.Publish(reply, word); err != nil && first == nil {
			first = err
		}
	}
	return first
}
