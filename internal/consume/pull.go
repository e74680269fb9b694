package consume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/event"
)

// The pull protocol is spoken here and not by nats.go's Consume, for three reasons:
//
//   - Consume takes a message with an empty payload and a Status header for a control message, so that a publisher
//     could stop a replica, or fill the consumer with messages that are never acknowledged. Here a message is known
//     by its acknowledgement subject, which only the server sets.
//   - Consume asks for more whenever its callback returns, and stops asking only while the callback blocks, with a
//     buffer behind it that nobody keeps alive. Here nothing is requested that there is no room for, and whatever has
//     arrived is in flight and kept alive.
//   - It costs less per message: no timers and no locks of its own.
//
// Streams and consumers are looked up and created by nats.go; see stream.go.

// Timing of pull requests.
const (
	pullExpires   = 30 * time.Second // a request is pending with the server for so long
	pullHeartbeat = 3 * time.Second  // the server confirms it this often; twice that is less than an election takes
	pullRetry     = time.Second      // pause after a request that the server has refused
	finishCheck   = 50 * time.Millisecond
)

// ackPrefix begins the acknowledgement subject of every message that a consumer delivers.
const ackPrefix = "$JS.ACK."

// errConsumerGone means that the consumer no longer exists: bind again.
var errConsumerGone = errors.New("the consumer is gone")

// pull fetches messages of one durable consumer into the in-flight set, as many as that has room for.
type pull struct {
	connection   *nats.Conn
	why          func() error // why there is no connection
	inflight     *inflight
	availability *availability
	mayPull      func() bool                 // nothing is requested while it returns false
	check        func(context.Context) error // whether the consumer is still the same; see sameConsumer
	checks       background
	next         string // the API subject of pull requests
	stream       string // prefix of derived ids
	mostAsked    int    // the consumer's own bound of one request, or 0
	expires      time.Duration

	mu          sync.Mutex
	inbox       string    // of the requests that count; see subscribe
	outstanding int       // messages that were requested and not delivered
	heard       time.Time // when the server last sent anything
	answered    bool      // it has since the last tick
	silent      bool      // its silence, or that nobody answers for the consumer, was reported
	absent      bool      // nobody has answered for the consumer, which is not reported yet
	notBefore   time.Time // no request before then
	gone        error
	wake        chan struct{}
}

func newPull(connection *nats.Conn, why func() error, info *jetstream.ConsumerInfo, apiPrefix string, f *inflight, a *availability, mayPull func() bool) *pull {
	p := &pull{
		connection:   connection,
		why:          why,
		inflight:     f,
		availability: a,
		mayPull:      mayPull,
		next:         apiPrefix + "CONSUMER.MSG.NEXT." + info.Stream + "." + info.Name,
		stream:       info.Stream,
		mostAsked:    info.Config.MaxRequestBatch,
		expires:      pullExpires,
		heard:        time.Now(),
		wake:         make(chan struct{}, 1),
	}
	if most := info.Config.MaxRequestExpires; most > 0 {
		p.expires = min(p.expires, most)
	}
	return p
}

// run pulls until ctx ends (nil), the consumer is gone (errConsumerGone) or the connection is closed for good.
// When it returns, everything that has arrived is in flight.
func (p *pull) run(ctx context.Context) error {
	states := p.connection.StatusChanged(nats.RECONNECTING, nats.CONNECTED, nats.CLOSED)
	defer p.connection.RemoveStatusListener(states)
	subscription, err := p.subscribe()
	if err != nil {
		return err
	}
	defer func() { p.finish(subscription) }()
	tick := time.NewTicker(pullRetry)
	defer tick.Stop()
	ctx, cancel := context.WithCancel(ctx)
	defer p.checks.wait()
	defer cancel()
	for {
		p.reportNoLeader(ctx)
		if err := p.request(); err != nil {
			return err
		}
		renew := false
		select {
		case <-ctx.Done():
			return nil
		case state := <-states: // request finds out what the others mean
			renew = state == nats.RECONNECTING
		case <-p.wake:
		case <-p.inflight.freed:
		case <-tick.C:
			renew = p.requestsLost()
			p.reportSilence(renew)
			p.reportConnection()
		}
		if renew {
			renewed, err := p.subscribe()
			if err != nil {
				return err
			}
			retire(subscription)
			subscription = renewed
		}
	}
}

// subscribe begins with a new inbox and without requests. A server may still hold requests for the previous inbox: they
// outlive a connection that reconnects with the same inbox, and must not be answered on top of the new ones. Nothing
// listens there any more, which ends them.
func (p *pull) subscribe() (*nats.Subscription, error) {
	inbox := p.connection.NewInbox()
	p.mu.Lock()
	p.inbox, p.outstanding = inbox, 0
	p.mu.Unlock()
	p.inflight.nextGeneration()
	subscription, err := p.connection.Subscribe(inbox+".*", func(message *nats.Msg) { p.receive(inbox, message) })
	if err != nil {
		return nil, fmt.Errorf("nats: cannot subscribe to %s: %w", inbox, err)
	}
	// What arrives is bounded by what was requested, and the callback never waits: a further limit could only throw messages
	// away.
	if err := subscription.SetPendingLimits(-1, -1); err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	return subscription, nil
}

// retire ends a subscription when what has arrived is in flight. Drain would not do here: a reconnection in its middle
// leaves the server subscribed for good.
func retire(subscription *nats.Subscription) {
	for range 20 {
		if pending, _, err := subscription.Pending(); err != nil || pending == 0 {
			break
		}
		time.Sleep(5 * time.Millisecond) // the callback never waits, so this is short
	}
	_ = subscription.Unsubscribe() // an error means a closed connection
}

// requestsLost reports whether the server has not confirmed for too long that it still has the requests.
func (p *pull) requestsLost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.outstanding > 0 && time.Since(p.heard) > 2*pullHeartbeat
}

// errSilent is a server that takes requests and sends nothing, not even heartbeats: it is overloaded, or the permission for
// that subject is missing.
var errSilent = fmt.Errorf("the server has not answered a request for events for %s; it may have no permission", 2*pullHeartbeat)

// reportSilence reports when the server falls silent, and when it answers again.
func (p *pull) reportSilence(requestsLost bool) {
	p.mu.Lock()
	answers := p.silent && p.answered
	p.answered = false
	if requestsLost {
		p.silent = true
	} else if answers {
		p.silent = false
	}
	p.mu.Unlock()
	if requestsLost {
		p.availability.lost(jetStreamConsumer, errSilent)
	} else if answers {
		p.availability.recovered(jetStreamConsumer)
	}
}

// reportConnection reports whether there is a connection. An interruption between two calls goes unnoticed.
func (p *pull) reportConnection() {
	if p.connection.IsConnected() {
		p.availability.recovered(natsConnection)
	} else {
		p.availability.lost(natsConnection, unconnected(p.connection, p.why))
	}
}

// request asks for as many messages as there is room for. Requests for a few messages are put off while larger ones are
// pending, so that a full worker does not make a request for each message that it settles.
func (p *pull) request() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone != nil {
		return p.gone
	}
	if p.connection.IsClosed() {
		return nats.ErrConnectionClosed
	}
	now := time.Now()
	if now.Before(p.notBefore) || !p.mayPull() || !p.connection.IsConnected() {
		return nil
	}
	ask := p.inflight.room() - p.outstanding
	if p.mostAsked > 0 {
		ask = min(ask, p.mostAsked)
	}
	if ask < 1 || (p.outstanding > 0 && ask < p.inflight.capacity/4) {
		return nil
	}
	body, err := json.Marshal(struct {
		Batch     int           `json:"batch"`
		Expires   time.Duration `json:"expires"`
		Heartbeat time.Duration `json:"idle_heartbeat,omitempty"`
	}{ask, p.expires, min(pullHeartbeat, p.expires/2)})
	if err != nil {
		return fmt.Errorf("nats: pull request: %w", err)
	}
	// The last token is what the request was for, should the server refuse it.
	if err := p.connection.PublishRequest(p.next, p.inbox+"."+strconv.Itoa(ask), body); err != nil {
		p.notBefore = now.Add(pullRetry)
		return nil // reportConnection finds out why
	}
	p.outstanding += ask
	p.heard = now
	return nil
}

// receive is called for whatever arrives at an inbox, one message at a time.
func (p *pull) receive(inbox string, message *nats.Msg) {
	if !strings.HasPrefix(message.Reply, ackPrefix) {
		p.status(inbox, message)
		return
	}
	d, err := p.delivery(message)
	if err != nil {
		// Only the server sets this subject; one that cannot be parsed comes from a server of an unknown kind.
		p.lose(fmt.Errorf("nats: acknowledgement subject %q: %w", message.Reply, err))
		return
	}
	heard := d.touched
	p.inflight.add(d) // before it stops counting as requested: in between there must not seem to be room for it
	p.mu.Lock()
	p.heard, p.answered = heard, true
	low := false
	if inbox == p.inbox {
		p.outstanding--
		low = p.outstanding < p.inflight.capacity/2
	}
	p.mu.Unlock()
	if low {
		signal(p.wake)
	}
}

func (p *pull) delivery(message *nats.Msg) (*delivery, error) {
	meta, err := message.Metadata()
	if err != nil {
		return nil, err
	}
	// A stream that lost data can use a sequence again: the time makes it unique.
	name := make([]byte, 0, len(p.stream)+32)
	name = append(append(name, p.stream...), '.')
	name = append(strconv.AppendUint(name, meta.Sequence.Stream, 10), '.')
	name = strconv.AppendInt(name, meta.Timestamp.UnixNano(), 36)
	id := string(name)
	return &delivery{
		Message: event.Message{
			Subject: message.Subject, Header: message.Header, Data: message.Data,
			FallbackID: id, Published: meta.Timestamp,
		},
		token:       id[len(p.stream)+1:],
		streamSeq:   meta.Sequence.Stream,
		redelivered: meta.NumDelivered > 1,
		reply:       message.Reply,
		touched:     time.Now(),
	}, nil
}

// status handles what the server reports about requests.
func (p *pull) status(inbox string, message *nats.Msg) {
	code, description := message.Header.Get("Status"), message.Header.Get("Description")
	p.mu.Lock()
	defer p.mu.Unlock()
	if inbox != p.inbox {
		return
	}
	p.heard, p.answered = time.Now(), true
	if code == "100" { // heartbeat
		return
	}
	// Whatever else it is, a request has ended with so many messages not delivered: as many as the server reports, or all
	// that it was for.
	left, err := strconv.Atoi(message.Header.Get("Nats-Pending-Messages"))
	if err != nil {
		left, err = strconv.Atoi(strings.TrimPrefix(message.Subject, inbox+"."))
	}
	if err != nil {
		left = p.outstanding
	}
	p.outstanding = max(0, p.outstanding-left)
	lower := strings.ToLower(description)
	switch {
	case code == "404" || code == "408": // it expired: ask again at once
	case code == "409" && strings.Contains(lower, "consumer deleted"),
		code == "409" && strings.Contains(lower, "push based"):
		p.gone = fmt.Errorf("%w (%s %s)", errConsumerGone, code, description)
	case isLeaderless(code, lower):
		p.inflight.nextGeneration()
		p.pause(leaderRetry)
		if code == "503" { // nobody has answered
			p.answered, p.silent, p.absent = false, true, true
		}
	default: // a bound of the consumer: ask again soon
		p.inflight.nextGeneration()
		p.pause(pullRetry)
	}
	signal(p.wake)
}

func (p *pull) lose(err error) {
	p.mu.Lock()
	p.gone = err
	p.mu.Unlock()
	signal(p.wake)
}

// finish ends the subscription and waits until what has arrived is in flight.
//
// A request cannot be cancelled, and what the server is about to deliver for one when its inbox goes is delivered to nobody,
// and to another worker only after AckWait. So requests are left to be filled first: under load they are at once, and where
// nothing arrives for a moment nothing is about to be lost.
func (p *pull) finish(subscription *nats.Subscription) {
	began, before := time.Now(), -1
	for time.Since(began) < pullRetry && p.connection.IsConnected() {
		now := p.pending()
		if now <= 0 || now == before {
			break
		}
		before = now
		time.Sleep(finishCheck)
	}
	closed := make(chan struct{})
	subscription.SetClosedHandler(func(string) { close(closed) })
	if err := subscription.Drain(); err != nil {
		return // the connection is closed or was never up: nothing can arrive any more
	}
	select {
	case <-closed:
	case <-time.After(pullRetry):
	}
}

// pending is how many messages the server may still deliver for requests.
func (p *pull) pending() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.outstanding
}
