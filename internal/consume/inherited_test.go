package consume

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// numbered gives the pull a message at an inbox, with the number of its delivery and when it was published.
func (c *fakeConsumer) numbered(request pullRequest, number, seq int, published time.Time) {
	c.pull.receive(request.inbox(), &nats.Msg{
		Subject: "notify.errors", Header: nats.Header{}, Sub: &nats.Subscription{},
		Reply: fmt.Sprintf("$JS.ACK.S.C.1.%d.%d.%d.0", seq, number, published.UnixNano()),
	})
}

// inherited are those of what has arrived that an earlier consumer may have delivered, by their numbers in the stream.
func (c *fakeConsumer) inherited(n int) (found []uint64) {
	c.Helper()
	for n > 0 {
		ctx, cancel := context.WithTimeout(c.Context(), 10*time.Second)
		taken, err := c.pull.inflight.take(ctx, n, time.Second)
		cancel()
		if err != nil || len(taken) == 0 {
			c.Fatalf("took %d deliveries, %v", len(taken), err)
		}
		for _, d := range taken {
			if d.mayBeKnown() {
				found = append(found, d.streamSeq)
			}
		}
		n -= len(taken)
	}
	return found
}

// What is older than its consumer may have been delivered by one that was deleted since.
func TestWhatIsOlderThanItsConsumerMayBeKnown(t *testing.T) {
	created := time.Now()
	c, _ := pulling(t, 8, always, func(p *pull) { p.created = created })
	request := c.request(8)
	c.numbered(request, 1, 1, created.Add(-time.Second))
	c.numbered(request, 2, 2, created.Add(time.Second))
	if found := c.inherited(2); fmt.Sprint(found) != "[1]" {
		t.Errorf("the messages %v may be known, expected the first", found)
	}
}

// Where the numbers of deliveries begin again, the consumer was deleted and created again, and all that comes may be older than it.
// Those of two inboxes may arrive in any order.
func TestADeliveryThatIsCountedAgainMayBeKnown(t *testing.T) {
	now := time.Now()
	c, _ := pulling(t, 8, always)
	first := c.request(8)
	second := pullRequest{reply: c.pull.requests[1].inbox + ".1"}
	c.numbered(first, 41, 1, now)
	c.numbered(second, 40, 2, now)
	c.numbered(first, 42, 3, now)
	c.numbered(second, 3, 4, now)
	c.numbered(first, 50, 5, now)
	if found := c.inherited(5); fmt.Sprint(found) != "[4 5]" {
		t.Errorf("the messages %v may be known, expected all from the fourth on", found)
	}
}
