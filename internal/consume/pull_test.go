package consume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
)

// fakeConsumer is the server's side of the pull protocol, under the test's control.
type fakeConsumer struct {
	*testing.T
	connection *nats.Conn
	pull       *pull
	requests   chan pullRequest
	ended      chan error
	next       int
}

type pullRequest struct {
	Batch     int           `json:"batch"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
	reply     string
}

// pulling starts a pull into a hand against a fake consumer.
func pulling(t *testing.T, capacity int, paused func() bool) (*fakeConsumer, *pull) {
	t.Helper()
	t.Parallel()
	server, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	server.Start()
	t.Cleanup(func() { server.Shutdown(); server.WaitForShutdown() })
	if !server.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not answer")
	}
	connect := func() *nats.Conn {
		connection, err := nats.Connect(server.ClientURL(), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(connection.Close)
		return connection
	}
	c := &fakeConsumer{T: t, connection: connect(), requests: make(chan pullRequest, 100), ended: make(chan error, 1)}
	_, err = c.connection.Subscribe("$JS.API.CONSUMER.MSG.NEXT.S.C", func(message *nats.Msg) {
		request := pullRequest{reply: message.Reply}
		if err := json.Unmarshal(message.Data, &request); err != nil {
			t.Error(err)
		}
		c.requests <- request
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.connection.Flush(); err != nil {
		t.Fatal(err)
	}
	h := newHand(capacity)
	p := newPull(connect(), &jetstream.ConsumerInfo{Stream: "S", Name: "C"}, apiPrefix, h, newWaits(zap.NewNop(), h.size), paused)
	c.pull = p
	ctx, cancel := context.WithCancel(t.Context())
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

func never() bool { return false }

// request is the next request, which must be for so many messages.
func (c *fakeConsumer) request(batch int) pullRequest {
	c.Helper()
	select {
	case request := <-c.requests:
		if request.Batch != batch {
			c.Fatalf("asked for %d, expected %d", request.Batch, batch)
		}
		return request
	case <-time.After(10 * time.Second):
		c.Fatalf("no request, expected one for %d", batch)
		return pullRequest{}
	}
}

func (c *fakeConsumer) noRequest(why string) {
	c.Helper()
	select {
	case request := <-c.requests:
		c.Fatalf("asked for %d, expected no request %s", request.Batch, why)
	case <-time.After(1500 * time.Millisecond): // it looks once a second
	}
}

// hand hands out n messages for a request.
func (c *fakeConsumer) hand(request pullRequest, n int) {
	for range n {
		c.next++
		c.deliver(request, nats.Header{})
	}
}

// deliver gives the pull a message as its subscription would: only a server's own consumer can send one with an
// acknowledgement subject.
func (c *fakeConsumer) deliver(request pullRequest, header nats.Header) {
	inbox := request.reply[:strings.LastIndex(request.reply, ".")]
	c.pull.receive(inbox, &nats.Msg{
		Subject: "notify.errors", Header: header, Sub: &nats.Subscription{},
		Reply: fmt.Sprintf("$JS.ACK.S.C.1.%d.%d.1700000000000000000.0", c.next, c.next),
	})
}

// tell sends a status; pairs are further headers.
func (c *fakeConsumer) tell(request pullRequest, code, description string, pairs ...string) {
	c.Helper()
	message := nats.NewMsg(request.reply)
	message.Header.Set("Status", code)
	message.Header.Set("Description", description)
	for i := 0; i < len(pairs); i += 2 {
		message.Header.Set(pairs[i], pairs[i+1])
	}
	if err := c.connection.PublishMsg(message); err != nil {
		c.Fatal(err)
	}
	if err := c.connection.Flush(); err != nil {
		c.Fatal(err)
	}
}

func (p *pull) settle(t *testing.T, n int) {
	t.Helper()
	for n > 0 {
		taken, err := p.hand.take(t.Context(), n, 10*time.Second)
		if err != nil || len(taken) == 0 {
			t.Fatalf("took %d deliveries, %v", len(taken), err)
		}
		p.hand.release(taken...)
		n -= len(taken)
	}
}

func TestNothingIsAskedForThatTheHandHasNoRoomFor(t *testing.T) {
	c, p := pulling(t, 8, never)
	first := c.request(8)
	if first.Expires != pullExpires || first.Heartbeat != pullHeartbeat {
		t.Errorf("request %+v, expected %s with a heartbeat every %s", first, pullExpires, pullHeartbeat)
	}
	c.hand(first, 8)
	c.noRequest("with a full hand")
	p.settle(t, 3)
	c.request(3)
	p.settle(t, 5)
	c.request(5)
}

func TestSmallRequestsArePutOffWhileLargerOnesStand(t *testing.T) {
	c, p := pulling(t, 8, never)
	first := c.request(8)
	c.hand(first, 1)
	p.settle(t, 1)
	c.noRequest("for one message while seven are to come")
	c.hand(first, 1)
	p.settle(t, 1)
	c.request(2)
}

func TestNothingIsAskedForDuringAPause(t *testing.T) {
	var paused atomic.Bool
	paused.Store(true)
	c, _ := pulling(t, 8, paused.Load)
	c.noRequest("during a pause")
	paused.Store(false)
	c.request(8)
}

func TestARequestThatEndsIsMadeAgain(t *testing.T) {
	c, p := pulling(t, 8, never)
	c.hand(c.request(8), 8)
	p.settle(t, 8)
	second := c.request(8)
	c.hand(second, 5)
	c.tell(second, "100", "Idle Heartbeat")
	c.tell(second, "408", "Request Timeout", "Nats-Pending-Messages", "3")
	c.request(3)
	p.settle(t, 5)
	c.request(5)
}

// Of two requests that stand, only the one that the server refuses has ended.
func TestARefusedRequestIsTheOnlyOneThatEnds(t *testing.T) {
	c, p := pulling(t, 8, never)
	first := c.request(8)
	c.hand(first, 4)
	p.settle(t, 4)
	second := c.request(4)
	c.tell(second, "409", "Exceeded MaxWaiting")
	c.request(4)
	c.hand(first, 4)
	p.settle(t, 4)
	c.request(4)
}

// waiting waits until the pull says that it waits for the consumer, or no longer says so.
func (p *pull) waiting(t *testing.T, want bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) { // between two looks
		list := p.waits.list()
		if told := len(list) == 1 && list[0].For == waitConsumer; told == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waits %v, expected that for the consumer: %t", list, want)
		}
	}
}

func TestAfterMissedHeartbeatsTheServerIsAskedAgain(t *testing.T) {
	c, p := pulling(t, 8, never)
	lost := c.request(8)
	p.mu.Lock()
	p.heard = p.heard.Add(-2*pullHeartbeat - time.Second)
	p.mu.Unlock()
	again := c.request(8)
	if again.reply == lost.reply {
		t.Error("the same inbox is used again, so the server may answer both requests")
	}
	c.tell(lost, "408", "Request Timeout", "Nats-Pending-Messages", "8")
	c.noRequest("when only the lost request has ended")
	p.waiting(t, true)
	c.tell(again, "100", "Idle Heartbeat")
	p.waiting(t, false)
	c.noRequest("while heartbeats come")
}

func TestAfterAReconnectionTheServerIsAskedAgain(t *testing.T) {
	c, p := pulling(t, 8, never)
	lost := c.request(8)
	if err := p.connection.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	if again := c.request(8); again.reply == lost.reply {
		t.Error("the same inbox is used again, so the server may answer both requests")
	}
}

func TestAConsumerThatIsGoneEndsThePull(t *testing.T) {
	for _, status := range [][2]string{{"409", "Consumer Deleted"}, {"409", "Consumer is push based"}, {"503", ""}} {
		t.Run(status[0]+" "+status[1], func(t *testing.T) {
			c, _ := pulling(t, 8, never)
			c.tell(c.request(8), status[0], status[1])
			select {
			case err := <-c.ended:
				if !errors.Is(err, errConsumerGone) {
					t.Errorf("the pull ends with %v, expected that the consumer is gone", err)
				}
			case <-time.After(10 * time.Second):
				t.Error("the pull goes on")
			}
		})
	}
}

func TestOtherWordsOfTheServerAreWaitedOut(t *testing.T) {
	c, _ := pulling(t, 8, never)
	for _, description := range []string{"Leadership Change", "Server Shutdown", "Something New"} {
		request := c.request(8)
		told := time.Now()
		c.tell(request, "409", description, "Nats-Pending-Messages", "8")
		select {
		case again := <-c.requests:
			if waited := time.Since(told); waited < pullRetry/2 {
				t.Errorf("asked again %s after %q, expected a pause", waited, description)
			}
			c.requests <- again
		case <-time.After(10 * time.Second):
			t.Fatalf("no request after %q", description)
		}
	}
}

// A message is a message by its acknowledgement subject, whatever a publisher has put into its headers.
func TestAMessageWithAStatusHeaderIsAMessage(t *testing.T) {
	c, p := pulling(t, 2, never)
	request := c.request(2)
	c.next++
	c.deliver(request, nats.Header{"Status": {"409"}, "Description": {"Consumer Deleted"}})
	taken, err := p.hand.take(t.Context(), 1, 10*time.Second)
	if err != nil || len(taken) != 1 {
		t.Fatalf("took %v, %v, expected the message", taken, err)
	}
	d := taken[0]
	if d.Header["Status"][0] != "409" || d.streamSeq != 1 || d.redelivered || d.Published.UnixNano() != 1700000000000000000 {
		t.Errorf("delivery %+v", d)
	}
	if d.FallbackID != "S."+d.token {
		t.Errorf("id %q and token %q, expected the stream before the token", d.FallbackID, d.token)
	}
}
