package feed

import (
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/internal/event"
)

// Delivery is one message that this worker holds, from its arrival until it has ended. Feed.Ack, Term and
// Later end it. Each of them may be called by one goroutine, once; after Later has returned false the
// delivery has not ended.
type Delivery struct {
	event.Message
	Token       string // names the stream message, the same at each redelivery; see ratelimit.Request
	Seq         uint64 // its sequence in the stream
	Redelivered bool   // it was delivered before, to this worker or to another
	Cost        int64  // the memory that it takes until it has ended, in bytes; see keep

	feed *Feed

	reply      string    // where to acknowledge; empty: nowhere. Guarded by inflight.mu
	touched    time.Time // when the server was last informed that it is in progress. Guarded by inflight.mu
	generation int       // inflight.generation when it was delivered last. Guarded by inflight.mu

	// Deliveries in flight form a list, oldest first, so that removing one costs nothing. Guarded by
	// inflight.mu
	previous, next *Delivery
}

// delivery is what a message of the consumer is here; it is not in flight yet.
func (s *Feed) delivery(message *nats.Msg, meta metadata, now time.Time) *Delivery {
	// A stream that lost data can use a sequence again: the time makes it unique.
	var buffer [128]byte // most names fit
	name := append(append(buffer[:0], s.Stream...), '.')
	name = append(strconv.AppendUint(name, meta.sequence, 10), '.')
	name = strconv.AppendInt(name, meta.published.UnixNano(), 36)
	id := string(name)
	kept, cost := keep(message, s.MostPayload)
	kept.FallbackID, kept.Published = id, meta.published
	return &Delivery{
		Message:     kept,
		Token:       id[len(s.Stream)+1:],
		Seq:         meta.sequence,
		Redelivered: meta.delivered > 1,
		Cost:        cost,
		feed:        s,
		reply:       message.Reply,
		touched:     now,
	}
}

// The acknowledgements of the JetStream protocol.
var (
	ackDone     = []byte("+ACK")
	ackProgress = []byte("+WPI")
	ackRetry    = []byte("-NAK")
	ackTerm     = "+TERM "
)

// Ack ends deliveries whose events are settled: the server does not deliver them again. An error means that
// the connection has not taken all acknowledgements, so that some of the events are delivered again; the
// deliveries have ended all the same.
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
	for _, reply := range s.inflight.repliesOf(deliveries) {
		if err := s.Connection.Publish(reply, word); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Later hands the event back to the server, which delivers it again after the delay: to any replica, marked
// as redelivered. It reports whether the delivery has ended; if not, the server may not keep it now (see
// Feed.WhyNotLater).
func (d *Delivery) Later(delay time.Duration) bool { return d.feed.handBack(d, delay) }
