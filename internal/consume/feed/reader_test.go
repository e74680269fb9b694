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
	"notifier/test/natstest"
)

// fakeConsumer is the server side of the pull protocol.
type fakeConsumer struct {
	*testing.T
	feed     *Feed
	own      *nats.Conn
	requests chan pullRequest
	acks     chan *nats.Msg
	ended    chan error
	sent     int // messages
	cancel   func()

	mu      sync.Mutex
	inboxes map[string]chan *nats.Msg // every inbox ever subscribed
}

type pullRequest struct {
	Batch     int           `json:"batch"`
	MaxBytes  int64         `json:"max_bytes"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
	reply     string
}

// inbox returns the reply subject without the request number.
func (r pullRequest) inbox() string { return r.reply[:strings.LastIndex(r.reply, ".")] }

// reading starts a reader against a fake consumer.
func reading(t *testing.T, capacity int, mayFetch func() bool, changes ...func(*reader)) *fakeConsumer {
	t.Helper()
	t.Parallel()
	server := natstest.Server(t, &natsserver.Options{})
	connect := func() *nats.Conn {
		connection, err := nats.Connect(server.ClientURL(),
			nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))
		kit.Check(t, err)
		t.Cleanup(connection.Close)
		return connection
	}
	c := &fakeConsumer{
		T: t, own: connect(), requests: make(chan pullRequest, 100),
		acks: make(chan *nats.Msg, 100), ended: make(chan error, 1),
		inboxes: map[string]chan *nats.Msg{},
	}
	_, err := c.own.Subscribe("$JS.API.CONSUMER.MSG.NEXT.S.C", func(message *nats.Msg) {
		request := pullRequest{reply: message.Reply}
		if err := json.Unmarshal(message.Data, &request); err != nil {
			t.Error(err)
		}
		c.requests <- request
	})
	kit.Check(t, err)
	_, err = c.own.ChanSubscribe(ackPrefix+">", c.acks)
	kit.Check(t, err)
	kit.Check(t, c.own.Flush())
	c.feed = &Feed{
		settings: Settings{
			Connection: Connection{Conn: connect()}, Stream: "S", Capacity: capacity,
			MayFetch: mayFetch, Tracker: quiet(), Log: zap.NewNop(),
		},
		inflight: newInflight(capacity, DefaultBudget),
		quiet:    finishQuiet,
	}
	r := c.feed.newReader(&jetstream.ConsumerInfo{Stream: "S", Name: "C"})
	r.check = func(context.Context) error { return nil }
	r.patience = 1000 // prevents repeated requests while the server is silent
	listen := r.listen
	r.listen = func(subject string, arrivals chan *nats.Msg) (*nats.Subscription, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.inboxes[strings.TrimSuffix(subject, ".*")] = arrivals
		return listen(subject, arrivals)
	}
	for _, change := range changes {
		change(r)
	}
	defaults := limitsOf(jetstream.ConsumerConfig{}, capacity, c.feed.inflight.budget)
	r.limits.messages = min(r.limits.messages, defaults.messages)
	ctx, cancel := context.WithCancel(t.Context())
	c.cancel = cancel
	go func() {
		c.ended <- r.run(ctx)
		close(c.ended)
	}()
	t.Cleanup(func() {
		cancel()
		for err := range c.ended {
			if err != nil {
				t.Errorf("the reader ends with %v", err)
			}
		}
	})
	return c
}

func always() bool { return true }

const testBudget = 2 << 20

// bounded sets a budget of 2 MiB. A request then reserves up to 512 KiB.
func bounded(r *reader) { r.feed.inflight.budget = testBudget }

const fullShare = testBudget / maxShare

func (c *fakeConsumer) any() pullRequest {
	c.Helper()
	select {
	case request := <-c.requests:
		return request
	case <-time.After(kit.Patience):
		c.Fatal("no request")
		return pullRequest{}
	}
}

// request returns the next request and checks its batch size.
func (c *fakeConsumer) request(batch int) pullRequest {
	c.Helper()
	request := c.any()
	if request.Batch != batch {
		c.Fatalf("asked for %d, expected %d", request.Batch, batch)
	}
	return request
}

// send passes a message to the reader as its subscription would.
func (c *fakeConsumer) send(request pullRequest, message *nats.Msg) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inboxes[request.inbox()] <- message
}

// isQuiet waits until all messages sent are read, and reports whether no request follows for a moment.
func (c *fakeConsumer) isQuiet() bool {
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
	time.Sleep(100 * time.Millisecond)
	return len(c.requests) == 0
}

func (c *fakeConsumer) noRequest(why string) {
	c.Helper()
	if !c.isQuiet() {
		c.Fatalf("asked for %+v, expected no request %s", <-c.requests, why)
	}
}

// endsWith waits until the reader ends, and checks its error.
func (c *fakeConsumer) endsWith(want error) {
	c.Helper()
	select {
	case err := <-c.ended:
		if !errors.Is(err, want) {
			c.Errorf("the reader ends with %v, expected %v", err, want)
		}
	case <-time.After(kit.Patience):
		c.Fatal("the reader goes on")
	}
}

// deliver sends the next message of the consumer, with an acknowledgement subject as only the server uses.
func (c *fakeConsumer) deliver(request pullRequest, header nats.Header, size int) {
	c.Helper()
	c.sent++
	m := &nats.Msg{Subject: "notify.errors", Header: header}
	m.Reply = fmt.Sprintf("$JS.ACK.S.C.1.%d.%d.1700000000000000000.0", c.sent, c.sent)
	m.Data = make([]byte, max(0, size-m.Size()))
	c.send(request, m)
}

// fill delivers n small messages for a request.
func (c *fakeConsumer) fill(request pullRequest, n int) {
	c.Helper()
	for range n {
		c.deliver(request, nil, 0)
	}
}

// status sends a status message. The pairs are further headers.
func (c *fakeConsumer) status(request pullRequest, code, description string, pairs ...any) {
	c.Helper()
	message := nats.NewMsg(request.reply)
	message.Header.Set("Status", code)
	message.Header.Set("Description", description)
	for i := 0; i < len(pairs); i += 2 {
		message.Header.Set(fmt.Sprint(pairs[i]), fmt.Sprint(pairs[i+1]))
	}
	c.send(request, message)
}

// ends sends a status message with the messages and bytes that the request has not delivered.
func (c *fakeConsumer) ends(request pullRequest, code, description string, messages int, bytes int64) {
	c.Helper()
	c.status(request, code, description, "Nats-Pending-Messages", messages, "Nats-Pending-Bytes", bytes)
}

// exceeds ends a request without a delivery, because the next message is too large.
func (c *fakeConsumer) exceeds(request pullRequest) {
	c.Helper()
	c.ends(request, "409", "Message Size Exceeds MaxBytes", request.Batch, request.MaxBytes)
}

func (c *fakeConsumer) queued(n int) {
	c.Helper()
	f := c.feed.inflight
	kit.Eventually(c, fmt.Sprint(n, " deliveries are queued"), func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.queue) >= n
	})
}

// settle waits until n deliveries have arrived and releases them together.
func (c *fakeConsumer) settle(n int) {
	c.Helper()
	c.queued(n)
	taken, err := c.feed.inflight.take(c.Context(), n, kit.Patience)
	kit.Check(c, err)
	c.feed.inflight.release(taken...)
}

// expectBytes waits for the expected byte counts and checks that the budget was never exceeded.
func (c *fakeConsumer) expectBytes(inFlight, reserved int64) {
	c.Helper()
	f := c.feed.inflight
	var last [3]int64
	as := func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		last = [3]int64{f.bytes, f.reserved, f.peak}
		return last[0] == inFlight && last[1] == reserved
	}
	if !kit.Within(kit.Patience/4, as) || last[2] > f.budget {
		c.Errorf("%d bytes in flight and %d reserved, at most %d; expected %d and %d, at most %d",
			last[0], last[1], last[2], inFlight, reserved, f.budget)
	}
}

// unavailable waits until the tracker reports the consumer as unavailable, or as available.
func (c *fakeConsumer) unavailable(want bool) {
	c.Helper()
	kit.Eventually(c, fmt.Sprintf("the consumer is unavailable: %t", want), func() bool {
		return c.feed.settings.Tracker.Unavailable(availability.Consumer) == want
	})
}

func (c *fakeConsumer) expectReason(part string) {
	c.Helper()
	if waits := c.feed.settings.Tracker.Waits(); len(waits) != 1 || !strings.Contains(waits[0].Reason, part) {
		c.Errorf("waits %+v, expected one with %q", waits, part)
	}
}

// A worker that is nearly full would make a request for each message that it settles.
func TestRequestsFitTheRoom(t *testing.T) {
	c := reading(t, 8, always)
	first := c.request(8)
	if first.Expires != pullExpires || first.Heartbeat != pullHeartbeat {
		t.Errorf("request %+v, expected %s with a heartbeat every %s", first, pullExpires, pullHeartbeat)
	}
	c.fill(first, 7)
	c.settle(1)
	c.noRequest("for one message")
	c.settle(1)
	second := c.request(2)
	c.fill(first, 1)
	c.fill(second, 2)
	c.noRequest("with a full worker")
	c.settle(5)
	c.request(5)
}

func TestSecondRequestFollowsWhenHalfIsFilled(t *testing.T) {
	c := reading(t, 8, always)
	first := c.request(8)
	c.fill(first, 3)
	c.settle(3)
	c.noRequest("while five of eight are to come")
	c.fill(first, 1)
	c.request(3)
	c.fill(first, 4)
	c.ends(first, "409", "Batch Completed", 0, first.MaxBytes/2)
	c.settle(5)
	c.request(5)
	c.noRequest("beside two that are pending")
}

func TestNothingIsRequestedDuringAPause(t *testing.T) {
	var mayFetch atomic.Bool
	c := reading(t, 8, mayFetch.Load)
	c.noRequest("during a pause")
	mayFetch.Store(true)
	c.request(8)
}

// A message of an earlier request arrives after the last message of this one.
func TestLateMessageDoesNotSkewTheAccount(t *testing.T) {
	const capacity = 4
	c := reading(t, capacity, always)
	for range 100 {
		request := c.request(capacity)
		c.fill(request, capacity+1)
		c.settle(capacity + 1)
	}
	last := c.request(capacity)
	c.expectBytes(0, last.MaxBytes+capacity*perMessage)
}

func TestRefusalEndsOneRequest(t *testing.T) {
	c := reading(t, 8, always)
	first := c.request(8)
	c.fill(first, 4)
	c.settle(4)
	c.status(c.request(4), "409", "Exceeded MaxWaiting")
	c.request(4)
	c.fill(first, 4)
	c.ends(first, "409", "Batch Completed", 0, first.MaxBytes/2)
	c.settle(4)
	c.request(4)
}

// A publisher may name any reply subject, so the server's acknowledgement can reach an inbox. It ends no
// request.
func TestPublishAckEndsNoRequest(t *testing.T) {
	c := reading(t, 8, always)
	request := c.request(8)
	c.send(request, &nats.Msg{Subject: request.reply, Data: []byte(`{"stream":"S","seq":1}`)})
	c.noRequest("because of an acknowledgement")
	c.feed.inflight.mu.Lock()
	reserved := c.feed.inflight.reserved
	c.feed.inflight.mu.Unlock()
	if reserved != DefaultBudget/maxShare {
		t.Errorf("%d bytes are reserved, expected those of the pending request", reserved)
	}
	c.fill(request, 8)
	c.settle(8)
	c.request(8)
}

func TestMissedHeartbeatsRepeatTheRequest(t *testing.T) {
	c := reading(t, 8, always, func(r *reader) { r.patience = 2 })
	lost := c.request(8)
	again := c.request(8)
	if again.inbox() == lost.inbox() {
		t.Error("the same inbox is used again, so the server may fill both requests")
	}
	c.unavailable(true)
	c.expectReason("has not answered a request")
	c.status(again, "100", "Idle Heartbeat")
	c.unavailable(false)
	c.noRequest("while heartbeats come")
}

func TestReconnectionRepeatsTheRequest(t *testing.T) {
	c := reading(t, 8, always)
	lost := c.request(8)
	c.fill(lost, 2)
	c.queued(2)
	kit.Check(t, c.feed.settings.Connection.ForceReconnect())
	again := c.request(6)
	if again.inbox() == lost.inbox() {
		t.Error("the same inbox is used again, so the server may fill both requests")
	}
	c.fill(again, 6)
	c.settle(8)
	c.request(8)
}

// Messages behind the one that ends the reader are in flight, too.
func TestArrivedMessagesAreNotLost(t *testing.T) {
	looked, looks := make(chan struct{}), make(chan error)
	c := reading(t, 8, always, func(r *reader) {
		r.doubtful = true
		r.check = func(context.Context) error {
			close(looked)
			return <-looks
		}
	})
	request := c.request(8)
	c.fill(request, 1)
	<-looked
	c.fill(request, 5)
	looks <- errConsumerGone
	c.endsWith(errConsumerGone)
	if size := c.feed.inflight.size(); size != 6 {
		t.Errorf("%d deliveries are in flight, expected 6", size)
	}
	c.expectBytes(c.feed.inflight.bytes, 0)
}

func TestMissingConsumerEndsTheReader(t *testing.T) {
	t.Parallel()
	for _, description := range []string{"Consumer Deleted", "Consumer is push based"} {
		t.Run(description, func(t *testing.T) {
			c := reading(t, 8, always)
			c.status(c.request(8), "409", description)
			c.endsWith(errConsumerGone)
		})
	}
}

func TestReaderPausesAfterOtherStatuses(t *testing.T) {
	c := reading(t, 8, always)
	for _, test := range []struct {
		code, description string
		pause             time.Duration
	}{
		{"409", "Leadership Change", leaderRetry},
		{"409", "Server Shutdown", leaderRetry},
		{"503", "", leaderRetry},
		{"409", "Something New", pullRetry},
	} {
		request := c.request(8)
		sent := time.Now()
		c.status(request, test.code, test.description)
		again := c.any()
		if waited := time.Since(sent); waited < test.pause/2 {
			t.Errorf("asked again %s after %s %q, expected a pause", waited, test.code, test.description)
		}
		c.requests <- again
	}
}

// The server refuses every request to a consumer with priority groups. The refusal is reported until a
// request is accepted.
func TestRefusedRequestsAreReported(t *testing.T) {
	c := reading(t, 8, always)
	c.status(c.request(8), "400", "Bad Request - Priority Group missing")
	c.unavailable(true)
	c.expectReason("400 Bad Request - Priority Group missing")
	c.status(c.request(8), "100", "Idle Heartbeat")
	c.unavailable(false)
}

func TestConsumerWithoutALeaderIsBoundAgain(t *testing.T) {
	c := reading(t, 8, always)
	for range maxNoResponders {
		c.status(c.request(8), "503", "")
	}
	c.endsWith(errNoLeader)
}

// Requests fail during an election. Afterwards one lookup checks whether the consumer was recreated.
func TestConsumerIsLookedUpAfterAnElection(t *testing.T) {
	looks := make(chan error, 10)
	c := reading(t, 8, always, func(r *reader) {
		r.check = func(context.Context) error { return <-looks }
	})
	looks <- nil
	for range 2 {
		for range maxNoResponders - 1 {
			c.status(c.request(8), "503", "")
		}
		c.unavailable(true)
		c.expectReason("no server answers for the consumer")
		c.fill(c.request(8), 8)
		c.settle(8)
		c.unavailable(false)
		kit.Eventually(t, "it is looked up", func() bool { return len(looks) == 0 })
		looks <- fmt.Errorf("%w: it was created again", errConsumerGone)
	}
	c.endsWith(errConsumerGone)
}

// Without requests the reader receives nothing, so the consumer or the permissions may have changed.
func TestConsumerIsLookedUpAfterALongPause(t *testing.T) {
	t.Parallel()
	for _, found := range []error{errConsumerGone, errHeadersOnly, nats.ErrPermissionViolation} {
		t.Run(found.Error(), func(t *testing.T) {
			c := reading(t, 8, func() bool { return false }, func(r *reader) {
				r.patience, r.tick = 2, 10*time.Millisecond
				r.check = func(context.Context) error { return found }
			})
			c.endsWith(found)
		})
	}
}

// The acknowledgement subject marks a message, whatever headers a publisher has set.
func TestAMessageWithAStatusHeaderIsAMessage(t *testing.T) {
	c := reading(t, 2, always)
	request := c.request(2)
	c.deliver(request, nats.Header{"Status": {"409"}, "Description": {"Consumer Deleted"}}, 0)
	taken, err := c.feed.inflight.take(t.Context(), 1, kit.Patience)
	if err != nil || len(taken) != 1 {
		t.Fatalf("took %v, %v, expected the message", taken, err)
	}
	d := taken[0]
	published := d.Message.Published.UnixNano()
	if d.Message.Header["Status"][0] != "409" || d.Seq != 1 || d.Redelivered.Load() || published != 1700000000000000000 {
		t.Errorf("delivery %+v", d)
	}
	if d.Message.FallbackID != "S."+d.Token {
		t.Errorf("id %q and token %q, expected the stream before the token", d.Message.FallbackID, d.Token)
	}
}

// withoutPayload returns the header that the server adds for a consumer with headers_only.
func withoutPayload() nats.Header { return nats.Header{"Nats-Msg-Size": {"17"}} }

// A failed lookup vouches for nothing, and the next one waits a second.
func TestMessageWithoutItsPayloadGoesBack(t *testing.T) {
	t.Parallel()
	for _, lookup := range []error{errHeadersOnly, nats.ErrTimeout} {
		t.Run(lookup.Error(), func(t *testing.T) {
			var looks atomic.Int32
			c := reading(t, 8, always, func(r *reader) {
				r.check = func(context.Context) error {
					looks.Add(1)
					return lookup
				}
			})
			request := c.request(8)
			for range 3 {
				c.deliver(request, withoutPayload(), 0)
			}
			for range 3 {
				select {
				case ack := <-c.acks:
					if !strings.HasPrefix(string(ack.Data), `-NAK {"delay":`) {
						t.Errorf("answered %s", ack.Data)
					}
				case <-time.After(kit.Patience):
					t.Fatal("it does not go back")
				}
			}
			if n := c.feed.inflight.size(); n != 0 || looks.Load() != 1 {
				t.Errorf("%d are in flight after %d lookups, expected none after one", n, looks.Load())
			}
			if lookup == errHeadersOnly {
				c.endsWith(errHeadersOnly)
			}
		})
	}
}

// A publisher may set the header itself. One lookup covers all such messages that arrived before its reply.
func TestPublishersOwnSizeHeader(t *testing.T) {
	var looks atomic.Int32
	looked, answer := make(chan struct{}, 10), make(chan struct{})
	c := reading(t, 8, always, func(r *reader) {
		r.check = func(context.Context) error {
			looks.Add(1)
			looked <- struct{}{}
			<-answer
			return nil
		}
	})
	request := c.request(8)
	c.deliver(request, withoutPayload(), 0)
	<-looked
	for range 3 {
		c.deliver(request, withoutPayload(), 0)
	}
	close(answer)
	c.queued(4)
	if n := looks.Load(); n != 1 {
		t.Errorf("%d lookups, expected one", n)
	}
	c.deliver(request, withoutPayload(), 0) // arrives after the lookup
	c.queued(5)
	if n := looks.Load(); n != 2 {
		t.Errorf("%d lookups, expected another one", n)
	}
}

func TestRequestReservesItsRoom(t *testing.T) {
	c := reading(t, 8, always, bounded)
	first := c.request(8)
	if want := int64(fullShare - 8*perMessage); first.MaxBytes != want {
		t.Errorf("asked for %d bytes, expected %d", first.MaxBytes, want)
	}
	c.expectBytes(0, fullShare)
	c.deliver(first, nil, 100_000)
	c.expectBytes(100_000+perMessage, fullShare-100_000-perMessage)
	for range 7 {
		c.deliver(first, nil, 1000)
	}
	c.settle(8)
	c.request(8)
	c.expectBytes(0, fullShare) // nothing is left of the first
}

// A message larger than max_bytes of any request is requested alone, without max_bytes. The others follow.
func TestLargeMessageIsRequestedAlone(t *testing.T) {
	c := reading(t, 8, always, func(r *reader) { r.feed.inflight.budget = 4 * testBudget })
	blocked := c.request(8)
	c.exceeds(blocked)
	alone := c.request(1)
	if alone.MaxBytes != 0 {
		t.Errorf("asked for at most %d bytes, expected no bound", alone.MaxBytes)
	}
	c.expectBytes(0, c.feed.settings.Connection.MaxPayload()+longestNames+perMessage)
	c.noRequest("beside the one for the large message")
	c.deliver(alone, nil, 900_000)
	if next := c.request(7); next.MaxBytes == 0 {
		t.Error("asked without a bound of bytes")
	}
	c.expectBytes(900_000+perMessage, 4*fullShare)
}

// The same message would end the pending request, or the request would deliver it.
func TestLargeMessageWaitsForThePendingRequest(t *testing.T) {
	c := reading(t, 8, always)
	first := c.request(8)
	c.fill(first, 4)
	c.settle(4)
	c.exceeds(c.request(4))
	c.noRequest("beside the pending one")
	c.ends(first, "409", "Message Size Exceeds MaxBytes", 4, 1000)
	if alone := c.request(1); alone.MaxBytes != 0 {
		t.Errorf("asked for at most %d bytes, expected no bound", alone.MaxBytes)
	}
}

// Slow channels may hold three quarters of the budget for long. A large message at the head of the stream
// must not wait for them, because it blocks all later messages.
func TestLargeMessageDoesNotWaitForSlowChannels(t *testing.T) {
	c := reading(t, 160, always, bounded)
	const n, size = 16, testBudget * 3 / 4 / 16
	for range n {
		request := c.any()
		c.deliver(request, nil, size-perMessage)
		c.ends(request, "409", "Message Size Exceeds MaxBytes", request.Batch-1, request.MaxBytes-size+perMessage)
	}
	c.exceeds(c.any())
	alone := c.request(1)
	c.expectBytes(n*size, testBudget/4)
	if alone.MaxBytes != 0 {
		t.Errorf("asked for at most %d bytes, expected no bound", alone.MaxBytes)
	}
	const large = 900_000
	c.deliver(alone, nil, large)
	c.noRequest("with the budget exceeded by one message")
	bytes, peak := c.feed.Bytes()
	if most := int64(n*size + large + perMessage); peak != most || bytes != most {
		t.Errorf("%d bytes in flight, at most %d, expected %d", bytes, peak, most)
	}
}

func TestLargeMessageTakenByAnotherWorker(t *testing.T) {
	c := reading(t, 8, always, bounded)
	c.exceeds(c.request(8))
	c.ends(c.request(1), "408", "Request Timeout", 1, 0)
	if again := c.request(8); again.MaxBytes == 0 {
		t.Error("asked without a bound of bytes")
	}
}

// If bytes are left, the server reports the end of a filled request. That is no reason to pause.
func TestFilledRequestIsFollowedAtOnce(t *testing.T) {
	c := reading(t, 8, always)
	began := time.Now()
	for range 10 {
		request := c.request(8)
		c.fill(request, 8)
		c.ends(request, "409", "Batch Completed", 0, request.MaxBytes-8*100)
		c.settle(8)
	}
	if took := time.Since(began); took > 5*pullRetry {
		t.Errorf("ten requests took %s, expected no pauses", took)
	}
	c.expectBytes(0, DefaultBudget/maxShare)
}

// A late status refers to a request that has already ended.
func TestLateStatusEndsNoOtherRequest(t *testing.T) {
	c := reading(t, 8, always, bounded)
	earlier := c.request(8)
	c.ends(earlier, "408", "Request Timeout", 8, earlier.MaxBytes)
	c.request(8)
	c.ends(earlier, "408", "Request Timeout", 8, earlier.MaxBytes)
	c.noRequest("while one is pending")
	c.expectBytes(0, fullShare)
}

// A replicated consumer may report the end of a request before delivering all messages. Their room stays
// reserved, and the first message does not count as too large.
func TestMessagesAfterTheEndOfARequest(t *testing.T) {
	c := reading(t, 160, always, bounded)
	first := c.request(160)
	c.ends(first, "409", "Message Size Exceeds MaxBytes", 157, 5)
	second := c.request(157)
	if second.MaxBytes == 0 {
		t.Error("asked without a bound of bytes")
	}
	onTheWay := first.MaxBytes - 5 + 3*perMessage
	c.expectBytes(0, onTheWay+second.MaxBytes+157*perMessage)
	for range 3 {
		c.deliver(first, nil, 40_000)
	}
	c.expectBytes(3*(40_000+perMessage), onTheWay+second.MaxBytes+157*perMessage-3*(40_000+perMessage))
}
