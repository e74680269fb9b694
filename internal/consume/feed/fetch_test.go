package feed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"notifier/internal/consume/availability"
	"notifier/test/kit"
)

// fakeConsumer is the server's side of the pull protocol, under the test's control.
type fakeConsumer struct {
	*testing.T
	pull     *pull
	requests chan pullRequest
	ended    chan error
	next     int
	cancel   func()

	mu      sync.Mutex
	inboxes map[string]chan *nats.Msg // those that were ever listened to
}

type pullRequest struct {
	Batch     int           `json:"batch"`
	MaxBytes  int64         `json:"max_bytes"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
	reply     string
}

// inbox is where the answers to the request go, with the request's size after it.
func (r pullRequest) inbox() string { return r.reply[:strings.LastIndex(r.reply, ".")] }

// pulling starts a pull for so many messages against a fake consumer.
func pulling(t *testing.T, capacity int, mayPull func() bool, changes ...func(*pull)) (*fakeConsumer, *pull) {
	t.Helper()
	t.Parallel()
	server := kit.NATSServer(t, &natsserver.Options{})
	connect := func() *nats.Conn {
		connection, err := nats.Connect(server.ClientURL(), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(connection.Close)
		return connection
	}
	c := &fakeConsumer{T: t, requests: make(chan pullRequest, 100), ended: make(chan error, 1), inboxes: map[string]chan *nats.Msg{}}
	consumer := connect()
	_, err := consumer.Subscribe("$JS.API.CONSUMER.MSG.NEXT.S.C", func(message *nats.Msg) {
		request := pullRequest{reply: message.Reply}
		if err := json.Unmarshal(message.Data, &request); err != nil {
			t.Error(err)
		}
		c.requests <- request
	})
	kit.Check(t, err)
	kit.Check(t, consumer.Flush())
	settings := Settings{
		Connection: Connection{Conn: connect()}, Stream: "S", Capacity: capacity, MayFetch: mayPull, Tracker: quiet(), Log: zap.NewNop(),
	}
	p := (&Feed{Settings: settings, inflight: newInflight(capacity, DefaultBudget)}).newPull(&jetstream.ConsumerInfo{Stream: "S", Name: "C"})
	p.check = func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	p.patience = time.Hour // no request is made only because the server has been silent
	listen := p.listen
	p.listen = func(subject string, arrivals chan *nats.Msg) (*nats.Subscription, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.inboxes[strings.TrimSuffix(subject, ".*")] = arrivals
		return listen(subject, arrivals)
	}
	for _, change := range changes {
		change(p)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c.pull, c.cancel = p, cancel
	go func() {
		c.ended <- p.run(ctx)
		close(c.ended)
	}()
	t.Cleanup(func() {
		cancel()
		for err := range c.ended {
			if err != nil {
				t.Errorf("the pull ends with %v", err)
			}
		}
	})
	return c, p
}

func always() bool { return true }

// request is the next request, which must be for so many messages.
func (c *fakeConsumer) request(batch int) pullRequest {
	c.Helper()
	select {
	case request := <-c.requests:
		if request.Batch != batch {
			c.Fatalf("asked for %d, expected %d", request.Batch, batch)
		}
		return request
	case <-time.After(kit.Patience):
		c.Fatalf("no request, expected one for %d", batch)
		return pullRequest{}
	}
}

// noRequest checks that the pull has made no request, and may make none now.
func (c *fakeConsumer) noRequest(why string) {
	c.Helper()
	c.read()
	time.Sleep(50 * time.Millisecond)
	if r := c.pull.claim(); r != nil || len(c.requests) > 0 {
		c.Fatalf("%d requests are unread and %+v would be the next, expected no request %s", len(c.requests), r, why)
	}
}

// read waits until the pull has read all that was sent to it.
func (c *fakeConsumer) read() {
	c.Helper()
	kit.Eventually(c, "all that has arrived is read", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, arrivals := range c.inboxes {
			if len(arrivals) > 0 {
				return false
			}
		}
		return true
	})
}

// opened is how many inboxes the pull has listened to.
func (c *fakeConsumer) opened() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.inboxes)
}

// send gives the pull a message as its subscription would.
func (c *fakeConsumer) send(request pullRequest, message *nats.Msg) {
	c.mu.Lock()
	defer c.mu.Unlock()
	message.Sub = &nats.Subscription{}
	c.inboxes[request.inbox()] <- message
}

// fill delivers n messages for a request.
func (c *fakeConsumer) fill(request pullRequest, n int) {
	for range n {
		c.next++
		c.deliver(request, nats.Header{})
	}
}

// deliver gives the pull a message of the consumer: only the server can send one with an acknowledgement
// subject.
func (c *fakeConsumer) deliver(request pullRequest, header nats.Header) {
	c.send(request, &nats.Msg{Subject: "notify.errors", Header: header, Reply: acknowledgement(c.next)})
}

// acknowledgement is where the nth message of the fake consumer is acknowledged.
func acknowledgement(n int) string {
	return fmt.Sprintf("$JS.ACK.S.C.1.%d.%d.1700000000000000000.0", n, n)
}

// status gives the pull a status; pairs are further headers.
func (c *fakeConsumer) status(request pullRequest, code, description string, pairs ...string) {
	c.Helper()
	message := nats.NewMsg(request.reply)
	message.Header.Set("Status", code)
	message.Header.Set("Description", description)
	for i := 0; i < len(pairs); i += 2 {
		message.Header.Set(pairs[i], pairs[i+1])
	}
	c.send(request, message)
}

// settle waits until n deliveries have arrived, and releases them together.
func (p *pull) settle(t *testing.T, n int) {
	t.Helper()
	kit.Eventually(t, fmt.Sprint(n, " deliveries are queued"), func() bool {
		p.inflight.mu.Lock()
		defer p.inflight.mu.Unlock()
		return len(p.inflight.queue) >= n
	})
	taken, err := p.inflight.take(t.Context(), n, kit.Patience)
	kit.Check(t, err)
	p.inflight.release(taken...)
}

// requested is for how many messages requests are pending.
func (p *pull) requested() int {
	_, requested := p.inflight.free()
	return requested
}

func TestNothingIsRequestedThatThereIsNoRoomFor(t *testing.T) {
	c, p := pulling(t, 8, always)
	first := c.request(8)
	if first.Expires != pullExpires || first.Heartbeat != pullHeartbeat {
		t.Errorf("request %+v, expected %s with a heartbeat every %s", first, pullExpires, pullHeartbeat)
	}
	c.fill(first, 8)
	c.noRequest("with a full worker")
	p.settle(t, 3)
	c.request(3)
	p.settle(t, 5)
	c.request(5)
}

func TestSmallRequestsWaitForLargerOnes(t *testing.T) {
	c, p := pulling(t, 8, always)
	first := c.request(8)
	c.fill(first, 1)
	p.settle(t, 1)
	c.noRequest("for one message while seven are to come")
	c.fill(first, 1)
	p.settle(t, 1)
	c.request(2)
}

func TestNothingIsRequestedDuringAPause(t *testing.T) {
	var mayPull atomic.Bool
	c, _ := pulling(t, 8, mayPull.Load)
	c.noRequest("during a pause")
	mayPull.Store(true)
	c.request(8)
}

// One of an earlier request waits behind the last of this one.
func TestALateMessageIsNotPartOfAFilledRequest(t *testing.T) {
	const capacity = 4
	c, p := pulling(t, capacity, always)
	for range 100 {
		request := c.request(capacity)
		c.fill(request, capacity+1)
		p.settle(t, capacity+1)
	}
	c.request(capacity)
	if got := p.requested(); got != capacity {
		t.Errorf("room for %d messages is reserved, expected %d", got, capacity)
	}
}

// Of two requests that are pending, only the one that the server refuses has ended.
func TestARefusedRequestIsTheOnlyOneThatEnds(t *testing.T) {
	c, p := pulling(t, 8, always)
	first := c.request(8)
	c.fill(first, 4)
	p.settle(t, 4)
	second := c.request(4)
	c.status(second, "409", "Exceeded MaxWaiting")
	c.request(4)
	c.fill(first, 4)
	p.settle(t, 4)
	c.request(4)
}

// eventuallyUnavailable waits until the pull reports the consumer as unavailable, or no longer does.
func (p *pull) eventuallyUnavailable(t *testing.T, want bool) {
	t.Helper()
	kit.Eventually(t, fmt.Sprintf("the consumer is unavailable: %t", want), func() bool {
		return p.Tracker.Unavailable(availability.Consumer) == want
	})
}

// The server sends its acknowledgement to whatever reply subject a publisher names: it is not about a
// request.
func TestPublishAckEndsNoRequest(t *testing.T) {
	c, p := pulling(t, 8, always)
	request := c.request(8)
	c.send(request, &nats.Msg{Subject: request.reply, Data: []byte(`{"stream":"S","seq":1}`)})
	c.noRequest("because of an acknowledgement")
	if requested := p.requested(); requested != 8 {
		t.Errorf("%d messages are requested, expected 8 as before", requested)
	}
	c.fill(request, 8)
	p.settle(t, 8)
	c.request(8) // without a pause
}

func TestMissedHeartbeatsRepeatTheRequest(t *testing.T) {
	c, p := pulling(t, 8, always, func(p *pull) { p.patience = 3 * time.Second })
	lost := c.request(8)
	again := c.request(8)
	if again.inbox() == lost.inbox() {
		t.Error("the same inbox is used again, so the server may answer both requests")
	}
	p.eventuallyUnavailable(t, true)
	if waits := p.Tracker.Waits(); len(waits) != 1 || !strings.Contains(waits[0].Reason, "has not answered a request") {
		t.Errorf("waits %+v, expected one for the answer to a request", waits)
	}
	c.status(again, "100", "Idle Heartbeat")
	p.eventuallyUnavailable(t, false)
	c.noRequest("while heartbeats come")
}

func TestReconnectionRepeatsTheRequest(t *testing.T) {
	c, p := pulling(t, 8, always)
	lost := c.request(8)
	c.fill(lost, 2)
	kit.Check(t, p.Connection.ForceReconnect())
	again := c.request(6)
	if again.inbox() == lost.inbox() {
		t.Error("the same inbox is used again, so the server may answer both requests")
	}
	c.fill(again, 6)
	p.settle(t, 8)
	c.request(8)
}

// What has arrived is in flight when an inbox is closed, why ever that is.
func TestNothingThatHasArrivedIsLostWithItsInbox(t *testing.T) {
	c, p := pulling(t, 8, func() bool { return false })
	for i, reason := range []error{errInterrupted, errConsumerGone, nil} {
		ctx, cancel := context.WithCancelCause(t.Context())
		in := &inbox{pull: p, subject: "x", arrivals: make(chan *nats.Msg, 10)}
		subscription, err := p.listen(in.subject+".*", in.arrivals)
		kit.Check(t, err)
		for range 2 {
			c.next++
			c.deliver(pullRequest{reply: in.subject + ".1"}, nil)
		}
		cancel(reason)
		in.close(ctx, subscription)
		if size := p.inflight.size(); size != 2*(i+1) {
			t.Errorf("%d deliveries are in flight after the inbox was closed because of %v, expected %d", size, reason, 2*(i+1))
		}
		if subscription.IsValid() {
			t.Error("the inbox is still listened to")
		}
	}
}

// A request cannot be cancelled: what the server delivers for it while the feed ends is in flight, too.
func TestARequestIsLeftToBeFilledAtTheEnd(t *testing.T) {
	c, p := pulling(t, 8, always, func(p *pull) { p.quiet = kit.Patience })
	request := c.request(8)
	c.cancel()
	time.Sleep(50 * time.Millisecond)
	c.fill(request, 8)
	select {
	case <-c.ended:
	case <-time.After(kit.Patience / 2):
		t.Fatal("the pull does not end with its last request")
	}
	if size := p.inflight.size(); size != 8 {
		t.Errorf("%d deliveries are in flight, expected 8", size)
	}
}

func TestAConsumerThatIsGoneEndsThePull(t *testing.T) {
	t.Parallel()
	for _, status := range [][2]string{{"409", "Consumer Deleted"}, {"409", "Consumer is push based"}} {
		t.Run(status[0]+" "+status[1], func(t *testing.T) {
			c, _ := pulling(t, 8, always)
			c.status(c.request(8), status[0], status[1])
			select {
			case err := <-c.ended:
				if !errors.Is(err, errConsumerGone) {
					t.Errorf("the pull ends with %v, expected that the consumer is gone", err)
				}
			case <-time.After(kit.Patience):
				t.Error("the pull goes on")
			}
		})
	}
}

func TestOtherStatusesOfTheServerAreWaitedOut(t *testing.T) {
	c, _ := pulling(t, 8, always)
	for _, test := range []struct {
		code, description string
		pause             time.Duration
	}{
		{"409", "Leadership Change", leaderRetry}, {"409", "Server Shutdown", leaderRetry}, {"503", "", leaderRetry}, {"409", "Something New", pullRetry},
	} {
		request := c.request(8)
		sent := time.Now()
		c.status(request, test.code, test.description, "Nats-Pending-Messages", "8")
		select {
		case again := <-c.requests:
			if waited := time.Since(sent); waited < test.pause/2 {
				t.Errorf("asked again %s after %s %q, expected a pause", waited, test.code, test.description)
			}
			c.requests <- again
		case <-time.After(kit.Patience):
			t.Fatalf("no request after %s %q", test.code, test.description)
		}
	}
}

// The server refuses each request for events of a consumer with priority groups: that is reported, until it
// takes them.
func TestAConsumerThatRefusesRequestsIsReported(t *testing.T) {
	t.Parallel()
	for code, description := range map[string]string{"400": "Bad Request - Priority Group missing", "423": "Nats-Pin-Id mismatch"} {
		t.Run(code, func(t *testing.T) {
			c, p := pulling(t, 8, always)
			c.status(c.request(8), code, description)
			p.eventuallyUnavailable(t, true)
			if waits := p.Tracker.Waits(); len(waits) != 1 || !strings.Contains(waits[0].Reason, code+" "+description) {
				t.Errorf("waits %+v, expected one with %s %s", waits, code, description)
			}
			c.status(c.request(8), "100", "Idle Heartbeat")
			p.eventuallyUnavailable(t, false)
		})
	}
}

// While there is no leader the known consumer is asked again and again, and looked up beside that.
func TestLeaderlessConsumerIsAskedAgain(t *testing.T) {
	answers := make(chan error, 10)
	c, p := pulling(t, 8, always, func(p *pull) {
		p.check = func(ctx context.Context) error {
			select {
			case err := <-answers:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	for range 5 { // more often than a look-up takes
		c.status(c.request(8), "503", "")
	}
	p.eventuallyUnavailable(t, true)
	answers <- errors.New("no answer")
	request := c.request(8)
	c.fill(request, 8)
	p.settle(t, 8)
	c.request(8)
	p.eventuallyUnavailable(t, false)
	select {
	case err := <-c.ended:
		t.Fatalf("the pull ends with %v", err)
	default:
	}
	answers <- fmt.Errorf("%w: it was created again", errConsumerGone)
	select {
	case err := <-c.ended:
		if !errors.Is(err, errConsumerGone) {
			t.Errorf("the pull ends with %v, expected that the consumer is gone", err)
		}
	case <-time.After(kit.Patience):
		t.Error("the pull goes on with another consumer")
	}
}

// A message is a message by its acknowledgement subject, whatever a publisher has put into its headers.
func TestAMessageWithAStatusHeaderIsAMessage(t *testing.T) {
	c, p := pulling(t, 2, always)
	request := c.request(2)
	c.next++
	c.deliver(request, nats.Header{"Status": {"409"}, "Description": {"Consumer Deleted"}})
	taken, err := p.inflight.take(t.Context(), 1, kit.Patience)
	if err != nil || len(taken) != 1 {
		t.Fatalf("took %v, %v, expected the message", taken, err)
	}
	d := taken[0]
	if d.Header["Status"][0] != "409" || d.Seq != 1 || d.Redelivered || d.Published.UnixNano() != 1700000000000000000 {
		t.Errorf("delivery %+v", d)
	}
	if d.FallbackID != "S."+d.Token {
		t.Errorf("id %q and token %q, expected the stream before the token", d.FallbackID, d.Token)
	}
}
