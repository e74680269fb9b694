package feed

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/internal/testkit"
)

const testBudget = 2 << 20

// bounded is a pull with a budget of 2 MiB, of which a request reserves 256 KiB.
func bounded(p *pull) { p.inflight.budget = testBudget }

// deliverLarge gives the pull a message of so many bytes.
func (c *fakeConsumer) deliverLarge(request pullRequest, size int) {
	c.next++
	m := ackable(c.next)
	m.Data = []byte(strings.Repeat("x", size-m.Size()))
	c.pull.receive(request.inbox(), m)
}

func (c *fakeConsumer) exceeds(request pullRequest) {
	c.Helper()
	c.status(request, "409", "Message Size Exceeds MaxBytes")
}

// expectBudget checks the account of bytes. A request is with the server before it has reserved its bytes, and both are done
// under the pull's lock.
func (p *pull) expectBudget(t *testing.T, inFlight, reserved int64) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inflight.mu.Lock()
	defer p.inflight.mu.Unlock()
	if p.inflight.bytes != inFlight || p.inflight.reserved != reserved || p.inflight.peak > testBudget {
		t.Errorf("%d bytes in flight and %d reserved, at most %d; expected %d and %d, at most %d",
			p.inflight.bytes, p.inflight.reserved, p.inflight.peak, inFlight, reserved, testBudget)
	}
}

const share = testBudget / mostRequests

func TestARequestReservesWhatItMayBring(t *testing.T) {
	c, p := pulling(t, 8, always, bounded)
	first := c.request(8)
	if want := int64(share - 8*perMessage); first.MaxBytes != want {
		t.Errorf("asked for %d bytes, expected %d", first.MaxBytes, want)
	}
	p.expectBudget(t, 0, share)
	c.deliverLarge(first, 100_000)
	p.expectBudget(t, 100_000+perMessage, share-100_000-perMessage)
	c.fill(first, 6)
	c.deliverLarge(first, 1000)
	p.settle(t, 8)
	c.request(8)
	p.expectBudget(t, 0, share) // nothing is left of the first
}

// What is in flight and what is requested never exceed the budget together, whatever there is room for by number.
func TestNothingIsRequestedThatTheBudgetHasNoRoomFor(t *testing.T) {
	c, p := pulling(t, 160, always, bounded) // one request at a time
	const size = 100_000
	rounds := int64(testBudget-share)/(size+perMessage) + 1 // the last one begins with just room for a share
	for range rounds {
		request := c.request(128)
		c.deliverLarge(request, size)
		c.exceeds(request)
	}
	c.noRequest("with less than a share free")
	p.expectBudget(t, rounds*(size+perMessage), 0)
	p.settle(t, 2)
	c.request(128)
	p.expectBudget(t, (rounds-2)*(size+perMessage), share)
}

// The server ends a request that has brought exactly what it may bring, and does not report that.
func TestARequestEndsWithItsLastByte(t *testing.T) {
	c, p := pulling(t, 160, always, bounded) // one request at a time
	first := c.request(128)
	c.sameInboxes(first)
	c.deliverLarge(first, share-128*perMessage)
	c.sameInboxes(c.request(128))
	p.expectBudget(t, share-127*perMessage, share)
}

// sameInboxes checks that a request was not made only because the server has been silent, which renews all inboxes.
func (c *fakeConsumer) sameInboxes(request pullRequest) {
	c.Helper()
	c.pull.mu.Lock()
	defer c.pull.mu.Unlock()
	if c.inboxes != "" && c.inboxes != c.pull.requests[0].inbox {
		c.Errorf("the request to %s came only with new inboxes, after the server had been silent", request.inbox())
	}
	c.inboxes = c.pull.requests[0].inbox
}

// A message that no request with a bound can bring is asked for alone, without one; then the others follow.
func TestAMessageThatExceedsARequestIsAskedForAlone(t *testing.T) {
	c, p := pulling(t, 8, always, func(p *pull) { p.inflight.budget = 4 * testBudget })
	blocked := c.request(8)
	c.exceeds(blocked)
	alone := c.request(1)
	if alone.MaxBytes != 0 {
		t.Errorf("asked for at most %d bytes, expected no bound", alone.MaxBytes)
	}
	c.noRequest("beside the one for the large message")
	c.deliverLarge(alone, 900_000)
	if next := c.request(7); next.MaxBytes == 0 {
		t.Error("asked without a bound of bytes")
	}
	p.inflight.mu.Lock()
	defer p.inflight.mu.Unlock()
	if p.inflight.bytes != 900_000+perMessage || p.inflight.reserved != 4*share {
		t.Errorf("%d bytes in flight and %d reserved, expected the message's and %d", p.inflight.bytes, p.inflight.reserved, 4*share)
	}
}

// fillBudget has n messages in flight, and then a request refused that had its whole share.
func (c *fakeConsumer) fillBudget(n, size int) {
	c.Helper()
	for range n {
		request := c.request(128)
		c.deliverLarge(request, size)
		c.exceeds(request)
	}
	c.exceeds(c.request(128))
}

// It reserves what the largest message of the server takes.
func TestALargeMessageReservesRoom(t *testing.T) {
	c, p := pulling(t, 160, always, bounded) // one request at a time
	c.fillBudget(10, 100_000)
	c.request(1)
	p.expectBudget(t, 10*(100_000+perMessage), c.pull.connection.MaxPayload()+longestNames+perMessage)
}

// Slow channels may keep three quarters of the budget for long. A large message at the head of the stream does not wait for
// them: nothing behind it would be delivered.
func TestALargeMessageDoesNotWaitForSlowChannels(t *testing.T) {
	c, p := pulling(t, 160, always, bounded) // one request at a time
	const n, size = 16, testBudget * 3 / 4 / 16
	c.fillBudget(n, size-perMessage)
	alone := c.request(1)
	p.expectBudget(t, n*size, testBudget/4)
	if alone.MaxBytes != 0 {
		t.Errorf("asked for at most %d bytes, expected no bound", alone.MaxBytes)
	}
	const large = 900_000
	c.deliverLarge(alone, large)
	c.noRequest("with the budget exceeded by one message")
	p.inflight.mu.Lock()
	defer p.inflight.mu.Unlock()
	if most := int64(n*size + large + perMessage); p.inflight.peak != most || p.inflight.reserved != 0 {
		t.Errorf("at most %d bytes in flight and %d reserved, expected %d and none", p.inflight.peak, p.inflight.reserved, most)
	}
}

// With less than a share free nothing is asked for, whatever its size.
func TestALargeMessageWaitsForRoom(t *testing.T) {
	c, p := pulling(t, 160, always, bounded) // one request at a time
	c.fillBudget(17, 100_000)
	request := c.request(1)
	c.deliverLarge(request, 200_000)
	c.noRequest("with less than a share free")
	p.settle(t, 1)
	c.request(128)
	p.expectBudget(t, 16*(100_000+perMessage)+200_000+perMessage, share)
}

// Another replica may be faster.
func TestALargeMessageThatAnotherReplicaTakesIsForgotten(t *testing.T) {
	c, _ := pulling(t, 8, always, bounded)
	c.exceeds(c.request(8))
	c.status(c.request(1), "408", "Request Timeout", "Nats-Pending-Messages", "1")
	if again := c.request(8); again.MaxBytes == 0 {
		t.Error("asked without a bound of bytes")
	}
}

// A request that has brought something is refused because it is full, whatever comes next.
func TestARequestThatIsFullIsFollowedByAnother(t *testing.T) {
	c, p := pulling(t, 8, always, bounded)
	request := c.request(8)
	c.deliverLarge(request, 200_000)
	c.exceeds(request)
	if again := c.request(7); again.MaxBytes == 0 {
		t.Error("asked without a bound of bytes")
	}
	p.expectBudget(t, 200_000+perMessage, share)
}

// The server reports each request with a bound of bytes that it has filled. That is no reason to pause.
func TestARequestThatIsFilledIsFollowedAtOnce(t *testing.T) {
	c, p := pulling(t, 8, always, bounded)
	request := c.request(8)
	c.fill(request, 8)
	c.status(request, "409", "Batch Completed", "Nats-Pending-Messages", "0", "Nats-Pending-Bytes", "253312")
	p.settle(t, 8)
	c.request(8)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.notBefore.IsZero() || p.inflight.generation != 1 {
		t.Errorf("no request before %s and generation %d, expected no pause and the first", p.notBefore, p.inflight.generation)
	}
}

func TestTheConsumersOwnBoundOfARequestIsKept(t *testing.T) {
	c, _ := pulling(t, 8, always, func(p *pull) { p.mostBytes = 1000 })
	if request := c.request(8); request.MaxBytes != 1000 {
		t.Errorf("asked for %d bytes, expected the consumer's 1000", request.MaxBytes)
	}
}

// A status that comes late is about a request that counts no more.
func TestAStatusOfAnEarlierRequestEndsNoOther(t *testing.T) {
	c, p := pulling(t, 8, always, bounded)
	var last pullRequest
	seen := map[string]pullRequest{}
	for { // until a place is used again
		last = c.request(8)
		earlier, again := seen[last.inbox()]
		if again {
			c.status(earlier, "408", "Request Timeout", "Nats-Pending-Messages", "8")
			break
		}
		seen[last.inbox()] = last
		c.status(last, "408", "Request Timeout", "Nats-Pending-Messages", "8")
	}
	c.noRequest("while one is pending")
	p.expectBudget(t, 0, share)
}

// A request whose end was never reported is given up when the server has ended it.
func TestARequestThatHasExpiredUnseenIsGivenUp(t *testing.T) {
	c, p := pulling(t, 8, always, bounded)
	c.sameInboxes(c.request(8))
	p.mu.Lock()
	for i := range p.requests {
		p.requests[i].ends = time.Now().Add(-time.Second)
	}
	p.mu.Unlock()
	signal(p.wake)
	c.sameInboxes(c.request(8))
	p.expectBudget(t, 0, share)
}

// After a reconnection nothing is reserved for what will not come.
func TestAReconnectionGivesBackWhatWasReserved(t *testing.T) {
	c, p := pulling(t, 8, always, bounded)
	c.request(8)
	testkit.Check(t, p.connection.ForceReconnect())
	c.request(8)
	p.expectBudget(t, 0, share)
}

// ackable is the nth message of the fake consumer.
func ackable(n int) *nats.Msg {
	m := nats.NewMsg("notify.errors")
	m.Sub = &nats.Subscription{}
	m.Reply = acknowledgement(n)
	return m
}
