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
//     buffer behind it that nobody keeps alive. Here nothing is asked for that the hand has no room for, and whatever
//     has arrived is in hand.
//   - It costs less per message: no timers and no locks of its own.
//
// Streams and consumers are looked up and created by nats.go; see jetstream.go.

// Timing of pull requests.
const (
	pullExpires   = 30 * time.Second // a request stands so long with the server
	pullHeartbeat = 5 * time.Second  // the server says so often that it still does
	pullRetry     = time.Second      // pause after a request that the server would not take
)

// ackPrefix begins the acknowledgement subject of every message that a consumer hands out.
const ackPrefix = "$JS.ACK."

// errConsumerGone says that there is nobody to pull from: bind again.
var errConsumerGone = errors.New("the consumer is gone")

// pull fetches messages for one durable consumer into the hand, as many as it has room for.
type pull struct {
	connection *nats.Conn
	hand       *hand
	paused     func() bool // nothing is asked for while it says so
	next       string      // the API subject of pull requests
	stream     string      // prefix of derived ids
	mostAsked  int         // the consumer's own bound of one request, or 0
	expires    time.Duration

	mu          sync.Mutex
	outstanding int       // messages that the server has been asked for and has not handed out
	heard       time.Time // when the server last said anything
	notBefore   time.Time // no request before then
	gone        error
	wake        chan struct{}
}

func newPull(connection *nats.Conn, info *jetstream.ConsumerInfo, apiPrefix string, h *hand, paused func() bool) *pull {
	p := &pull{
		connection: connection,
		hand:       h,
		paused:     paused,
		next:       apiPrefix + "CONSUMER.MSG.NEXT." + info.Stream + "." + info.Name,
		stream:     info.Stream,
		mostAsked:  info.Config.MaxRequestBatch,
		expires:    pullExpires,
		heard:      time.Now(),
		wake:       make(chan struct{}, 1),
	}
	if most := info.Config.MaxRequestExpires; most > 0 {
		p.expires = min(p.expires, most)
	}
	return p
}

// run pulls until ctx ends (nil), the consumer is gone (errConsumerGone) or the connection is closed for good.
// When it returns, everything that has arrived is in the hand.
func (p *pull) run(ctx context.Context) error {
	inbox := p.connection.NewInbox()
	subscription, err := p.connection.Subscribe(inbox, p.receive)
	if err != nil {
		return fmt.Errorf("nats: cannot subscribe to %s: %w", inbox, err)
	}
	// What arrives is bounded by what is asked for, and the callback never waits: no further limit, which could only
	// throw messages away.
	if err := subscription.SetPendingLimits(-1, -1); err != nil {
		return fmt.Errorf("nats: %w", err)
	}
	defer p.finish(subscription)

	states := p.connection.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer p.connection.RemoveStatusListener(states)
	tick := time.NewTicker(pullRetry)
	defer tick.Stop()
	for {
		if err := p.request(inbox); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case state := <-states:
			if state == nats.CLOSED {
				return nats.ErrConnectionClosed
			}
			p.forget() // requests do not outlive the connection they were made on
		case <-p.wake:
		case <-p.hand.freed:
		case <-tick.C:
		}
	}
}

// request asks for as many messages as there is room for. Requests of a few messages are put off while larger ones
// stand, so that a full hand does not make a request of every message that leaves it.
func (p *pull) request(inbox string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone != nil {
		return p.gone
	}
	now := time.Now()
	if p.outstanding > 0 && now.Sub(p.heard) > 2*pullHeartbeat {
		p.outstanding = 0 // the server has forgotten the request
	}
	if now.Before(p.notBefore) || p.paused() || !p.connection.IsConnected() {
		return nil
	}
	ask := p.hand.room() - p.outstanding
	if p.mostAsked > 0 {
		ask = min(ask, p.mostAsked)
	}
	if ask < 1 || (p.outstanding > 0 && ask < p.hand.capacity/4) {
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
	if err := p.connection.PublishRequest(p.next, inbox, body); err != nil {
		p.notBefore = now.Add(pullRetry)
		return nil // the connection tells its own state
	}
	p.outstanding += ask
	p.heard = now
	return nil
}

func (p *pull) forget() {
	p.mu.Lock()
	p.outstanding = 0
	p.mu.Unlock()
}

// receive is called for whatever comes to the inbox, one at a time.
func (p *pull) receive(message *nats.Msg) {
	if !strings.HasPrefix(message.Reply, ackPrefix) {
		p.status(message)
		return
	}
	d, err := p.delivery(message)
	if err != nil {
		// The server set this subject; one that cannot be read is a server that we do not know.
		p.lose(fmt.Errorf("nats: acknowledgement subject %q: %w", message.Reply, err))
		return
	}
	p.mu.Lock()
	p.outstanding--
	p.heard = d.touched
	low := p.outstanding < p.hand.capacity/2
	p.mu.Unlock()
	p.hand.add(d)
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

// status handles what the server says about requests.
func (p *pull) status(message *nats.Msg) {
	code, description := message.Header.Get("Status"), message.Header.Get("Description")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = time.Now()
	if code == "100" { // heartbeat
		return
	}
	// Whatever else it is, a request has ended with so many messages not handed out.
	left, err := strconv.Atoi(message.Header.Get("Nats-Pending-Messages"))
	if err != nil {
		left = p.outstanding
	}
	p.outstanding = max(0, p.outstanding-left)
	lower := strings.ToLower(description)
	switch {
	case code == "404" || code == "408": // it expired: ask again at once
	case code == "409" && strings.Contains(lower, "consumer deleted"),
		code == "409" && strings.Contains(lower, "push based"),
		code == "503": // nobody answers to this consumer's name
		p.gone = fmt.Errorf("%w (%s %s)", errConsumerGone, code, description)
	default: // a leader change, a server on its way down, a bound of the consumer: ask again soon
		p.notBefore = p.heard.Add(pullRetry)
	}
	signal(p.wake)
}

func (p *pull) lose(err error) {
	p.mu.Lock()
	p.gone = err
	p.mu.Unlock()
	signal(p.wake)
}

// finish ends the subscription and waits until what has arrived is in the hand.
func (p *pull) finish(subscription *nats.Subscription) {
	closed := make(chan struct{})
	subscription.SetClosedHandler(func(string) { close(closed) })
	if err := subscription.Drain(); err != nil {
		return // the connection is closed or was never up: nothing can come any more
	}
	select {
	case <-closed:
	case <-time.After(pullRetry):
	}
}
