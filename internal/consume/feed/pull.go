package feed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/consume/availability"
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
	feed       *Feed
	connection Connection
	inflight   *inflight
	check      func(context.Context) error // whether the consumer is still the same; see sameConsumer
	checks     background
	next       string // the API subject of pull requests
	stream     string // prefix of derived ids
	mostAsked  int    // the consumer's own bound of one request, or 0
	mostBytes  int64  // likewise in bytes
	expires    time.Duration

	mu        sync.Mutex
	requests  [mostRequests]request
	asked     int       // requests that were ever made
	oversized bool      // what comes next is larger than a request with a bound of bytes can bring
	heard     time.Time // when the server last sent anything
	answered  bool      // it has since the last tick
	silent    bool      // its silence, or what it has said of the consumer, was reported
	trouble   error     // what it has said of the consumer, and is not reported yet: errNoLeader, or why it refuses requests
	notBefore time.Time // no request before then
	gone      error
	wake      chan struct{}
}

func newPull(feed *Feed, info *jetstream.ConsumerInfo) *pull {
	p := &pull{
		feed:       feed,
		connection: feed.Connection,
		inflight:   feed.inflight,
		next:       apiPrefix + "CONSUMER.MSG.NEXT." + info.Stream + "." + info.Name,
		stream:     info.Stream,
		mostAsked:  info.Config.MaxRequestBatch,
		mostBytes:  int64(info.Config.MaxRequestMaxBytes),
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
// When it returns, everything that has arrived is in flight.
func (p *pull) run(ctx context.Context) error {
	states := p.connection.StatusChanged(nats.RECONNECTING, nats.CONNECTED, nats.CLOSED)
	defer p.connection.RemoveStatusListener(states)
	subscriptions, err := p.subscribe()
	if err != nil {
		return err
	}
	defer func() { p.finish(subscriptions) }()
	tick := time.NewTicker(pullRetry)
	defer tick.Stop()
	ctx, cancel := context.WithCancel(ctx)
	defer p.checks.wait()
	defer cancel()
	for {
		p.reportTrouble(ctx)
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
			retire(subscriptions)
			subscriptions = renewed
		}
	}
}

// subscribe begins with new inboxes and without requests. A server may still hold requests for the previous inboxes: they
// outlive a connection that reconnects with the same inbox, and must not be answered on top of the new ones. Nothing
// listens there any more, which ends them.
func (p *pull) subscribe() ([]*nats.Subscription, error) {
	inboxes := p.renewRequests()
	p.inflight.nextGeneration()
	var subscriptions []*nats.Subscription
	for _, inbox := range inboxes {
		subscription, err := p.connection.Subscribe(inbox+".*", func(message *nats.Msg) { p.receive(inbox, message) })
		if err != nil {
			retire(subscriptions)
			return nil, fmt.Errorf("nats: cannot subscribe to %s: %w", inbox, err)
		}
		subscriptions = append(subscriptions, subscription)
		// What arrives is bounded by what was requested, and the callback never waits: a further limit could only drop
		// messages.
		if err := subscription.SetPendingLimits(-1, -1); err != nil {
			retire(subscriptions)
			return nil, fmt.Errorf("nats: %w", err)
		}
	}
	return subscriptions, nil
}

// retire ends subscriptions when what has arrived is in flight. Drain would not do here: a reconnection in its middle
// leaves the server subscribed for good.
func retire(subscriptions []*nats.Subscription) {
	for _, subscription := range subscriptions {
		for range 20 {
			if pending, _, err := subscription.Pending(); err != nil || pending == 0 {
				break
			}
			time.Sleep(5 * time.Millisecond) // the callback never waits, so this is short
		}
		_ = subscription.Unsubscribe() // an error means a closed connection
	}
}

// requestsLost reports whether the server has not confirmed for too long that it still has the requests.
func (p *pull) requestsLost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.outstanding() > 0 && time.Since(p.heard) > 2*pullHeartbeat
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
		p.feed.Tracker.Lost(availability.Consumer, errSilent)
	} else if answers {
		p.feed.Tracker.Recovered(availability.Consumer)
	}
}

// reportConnection reports whether there is a connection. An interruption between two calls goes unnoticed.
func (p *pull) reportConnection() {
	if p.connection.IsConnected() {
		p.feed.Tracker.Recovered(availability.NATS)
	} else {
		p.feed.Tracker.Lost(availability.NATS, p.connection.Down())
	}
}

func (p *pull) lose(err error) {
	p.mu.Lock()
	p.gone = err
	p.mu.Unlock()
	signal(p.wake)
}

// finish ends the subscriptions and waits until what has arrived is in flight.
//
// A request cannot be cancelled, and what the server is about to deliver for one when its inbox goes is delivered to nobody,
// and to another worker only after AckWait. So requests are left to be filled first: under load they are at once, and where
// nothing arrives for a moment nothing is about to be lost.
func (p *pull) finish(subscriptions []*nats.Subscription) {
	began, before := time.Now(), -1
	for time.Since(began) < pullRetry && p.connection.IsConnected() {
		now := p.pending()
		if now <= 0 || now == before {
			break
		}
		before = now
		time.Sleep(finishCheck)
	}
	var ending sync.WaitGroup
	for _, subscription := range subscriptions {
		ending.Go(func() { drain(subscription) })
	}
	ending.Wait()
}

// drain ends a subscription and waits until what has arrived there is in flight.
func drain(subscription *nats.Subscription) {
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
