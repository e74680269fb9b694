package feed

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/internal/consume/availability"
	"notifier/test/kit"
)

const testBudget = 2 << 20

// bounded is a pull with a budget of 2 MiB, of which a request reserves 256 KiB.
func bounded(p *pull) { p.inflight.budget = testBudget }

// deliverLarge gives the pull a message of so many bytes.
func (c *fakeConsumer) deliverLarge(request pullRequest, size int) {
	c.next++
	m := ackable(c.next)
	m.Data = []byte(strings.Repeat("x", size-m.Size()))
	c.send(request, m)
}

func (c *fakeConsumer) exceeds(request pullRequest) {
	c.Helper()
	c.status(request, "409", "Message Size Exceeds MaxBytes")
}

// expectBudget waits until the account of bytes is as expected, and checks that it never was beyond the
// budget.
func (p *pull) expectBudget(t *testing.T, inFlight, reserved int64) {
	t.Helper()
	var last [3]int64
	as := func() bool {
		p.inflight.mu.Lock()
		defer p.inflight.mu.Unlock()
		last = [3]int64{p.inflight.bytes, p.inflight.reserved.bytes, p.inflight.peak}
		return last[0] == inFlight && last[1] == reserved
	}
	if !kit.Within(kit.Patience/4, as) || last[2] > p.inflight.budget {
		t.Errorf("%d bytes in flight and %d reserved, at most %d; expected %d and %d, at most %d",
			last[0], last[1], last[2], inFlight, reserved, p.inflight.budget)
	}
}

const share = testBudget / places

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

// What is in flight and what is requested never exceed the budget together, whatever there is room for by
// number.
func TestRequestsStayWithinTheBudget(t *testing.T) {
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

// sameInboxes checks that no request was made only because the server has been silent, which needs a new
// inbox.
func (c *fakeConsumer) sameInboxes() {
	c.Helper()
	if n := c.opened(); n > places {
		c.Errorf("%d inboxes were listened to, expected %d at most", n, places)
	}
}

// A message that no request with a bound can bring is asked for alone, without one; then the others follow.
func TestLargeMessageIsRequestedAlone(t *testing.T) {
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
	p.expectBudget(t, 900_000+perMessage, 4*share)
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
	p.expectBudget(t, 10*(100_000+perMessage), p.Connection.MaxPayload()+longestNames+perMessage)
}

// Slow channels may keep three quarters of the budget for long. A large message at the head of the stream
// does not wait for them: nothing behind it would be delivered.
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
	if most := int64(n*size + large + perMessage); p.inflight.peak != most || p.inflight.reserved.bytes != 0 {
		t.Errorf("at most %d bytes in flight and %d reserved, expected %d and none", p.inflight.peak, p.inflight.reserved.bytes, most)
	}
}

// Another replica may be faster.
func TestLargeMessageTakenByAnotherReplica(t *testing.T) {
	c, _ := pulling(t, 8, always, bounded)
	c.exceeds(c.request(8))
	c.status(c.request(1), "408", "Request Timeout", "Nats-Pending-Messages", "1")
	if again := c.request(8); again.MaxBytes == 0 {
		t.Error("asked without a bound of bytes")
	}
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
	if !p.notBefore.IsZero() {
		t.Errorf("no request before %s, expected no pause", p.notBefore)
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

// A request whose end was never reported is given up when the server has ended it. That is no reason to
// suspect the server.
func TestARequestThatHasExpiredUnseenIsGivenUp(t *testing.T) {
	c, p := pulling(t, 8, always, bounded, func(p *pull) { p.expires, p.patience = 100*time.Millisecond, time.Second })
	c.request(8)
	c.request(8)
	c.sameInboxes()
	if p.Tracker.Unavailable(availability.Consumer) {
		t.Error("the consumer is reported as unavailable")
	}
	p.expectBudget(t, 0, share)
}

// A replicated consumer reports that a request is full before it has delivered all that it has chosen for it.
// Room stays reserved for that, and it is not taken for a request whose first message was too large.
func TestMessagesAfterTheEndOfARequest(t *testing.T) {
	c, p := pulling(t, 160, always, bounded) // one request at a time
	request := c.request(128)
	c.status(request, "409", "Message Size Exceeds MaxBytes", "Nats-Pending-Messages", "125", "Nats-Pending-Bytes", "5")
	second := c.request(128)
	if requested := p.requested(); requested != 3+128 {
		t.Errorf("%d messages are requested, expected the three that are under way and 128", requested)
	}
	p.expectBudget(t, 0, 2*share)
	for range 3 {
		c.deliverLarge(request, 40_000)
	}
	p.expectBudget(t, 3*(40_000+perMessage), share)
	if second.MaxBytes == 0 {
		t.Error("asked without a bound of bytes")
	}
	c.noRequest("while one is pending")
}

// ackable is the nth message of the fake consumer.
func ackable(n int) *nats.Msg {
	m := nats.NewMsg("notify.errors")
	m.Reply = acknowledgement(n)
	return m
}

// While nothing is requested nothing is heard of the consumer. It may have been created again meanwhile, and
// delivers what is in flight as if for the first time.
func TestInFlightIsRecognizedAfterALongPause(t *testing.T) {
	var mayPull atomic.Bool
	mayPull.Store(true)
	c, p := pulling(t, 8, mayPull.Load)
	first := c.request(8)
	c.fill(first, 1)
	mayPull.Store(false)
	c.status(first, "408", "Request Timeout", "Nats-Pending-Messages", "7")
	kit.Eventually(t, "the request has ended", func() bool { return p.requested() == 0 })
	p.mu.Lock()
	p.ended = p.ended.Add(-2 * p.patience)
	p.mu.Unlock()
	mayPull.Store(true)
	second := c.request(7)
	c.next = 0
	c.fill(second, 1)
	kit.Eventually(t, "it has arrived again", func() bool { return p.requested() == 6 })
	if n := p.inflight.size(); n != 1 {
		t.Errorf("%d deliveries are in flight, expected the one that was delivered twice", n)
	}
}
