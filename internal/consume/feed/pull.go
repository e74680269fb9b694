package feed

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/wait"
)

// Pull requests are made here, in the shape of nats.go's Fetch (see fetch.go), and not by nats.go, for three
// reasons:
//
//   - nats.go takes a message with an empty payload and a Status header for a control message, so a publisher
//     could stop a replica, or fill the consumer with messages that are never acknowledged. Here a message is
//     known by its acknowledgement subject, which only the server sets.
//   - Fetch discards what it has buffered when its context ends, and Consume buffers messages that are
//     not kept alive. Here nothing is requested that there is no room for, and whatever has arrived is in
//     flight and kept alive.
//   - It costs less per message: no timers.
//
// Streams and consumers are looked up and created by nats.go; see stream.go.

// Timing of pull requests.
const (
	pullExpires   = 30 * time.Second       // the server keeps a request for so long
	pullHeartbeat = 3 * time.Second        // and confirms it so often; an election takes longer than two
	pullRetry     = time.Second            // pause after the server has not accepted a request
	leaderRetry   = 250 * time.Millisecond // likewise when the consumer has no leader
	finishQuiet   = 200 * time.Millisecond // with nothing for so long, a feed that ends gives requests up
)

// places is how many requests are pending at a time, at most. The server fills them in turn, so they end at
// about the same time; with too few, none would be pending when the next is made.
const places = 8

// longestNames is how long a message's subject and its acknowledgement subject can be together, by default of
// a server.
const longestNames = 4 << 10

var (
	// errConsumerGone means that the consumer no longer exists: bind again.
	errConsumerGone = errors.New("the consumer is gone")
	// errNoLeader is a consumer that no server answers for.
	errNoLeader = errors.New("no server answers for the consumer: " +
		"it has no leader, or JetStream is not available")
	// errInterrupted ends a session: the connection was lost.
	errInterrupted = errors.New("the connection was interrupted")
)

// pull fetches messages of one durable consumer into the in-flight set, as many as that has room for. Each of
// its places is a goroutine that keeps one request pending; this is what they share.
type pull struct {
	*Feed
	check  func(context.Context) error // whether the consumer is still the same; see sameConsumer
	listen func(subject string, arrivals chan *nats.Msg) (*nats.Subscription, error)
	next   string      // the API subject of pull requests
	end    func(error) // ends the session, once all that has arrived is in flight

	mostMessages int   // the consumer's own bound of one request, or 0
	mostBytes    int64 // likewise in bytes
	expires      time.Duration
	heartbeat    time.Duration
	patience     time.Duration // a request of which nothing is heard for longer is lost

	unavailable atomic.Bool   // the consumer was reported so
	doubts      chan struct{} // has a token when the consumer is to be looked up

	mu        sync.Mutex
	notBefore time.Time // no request before then
	ended     time.Time // when the last request has ended
	blocked   bool      // the next message is larger than a request may bring: one is to ask for it alone
	alone     bool      // that request is pending
}

func (s *Feed) newPull(info *jetstream.ConsumerInfo) *pull {
	p := &pull{
		Feed:         s,
		check:        func(ctx context.Context) error { return s.sameConsumer(ctx, info) },
		listen:       s.Connection.ChanSubscribe,
		next:         "$JS.API.CONSUMER.MSG.NEXT." + info.Stream + "." + info.Name,
		mostMessages: info.Config.MaxRequestBatch,
		mostBytes:    int64(info.Config.MaxRequestMaxBytes),
		expires:      pullExpires,
		patience:     2 * pullHeartbeat,
		doubts:       make(chan struct{}, 1),
		ended:        time.Now(),
	}
	if most := info.Config.MaxRequestExpires; most > 0 {
		p.expires = min(p.expires, most)
	}
	p.heartbeat = min(pullHeartbeat, p.expires/2)
	return p
}

// run pulls until ctx ends (nil), the consumer is gone (errConsumerGone) or the connection is closed for
// good. When it returns, everything that has arrived is in flight.
func (p *pull) run(ctx context.Context) error {
	states := p.Connection.StatusChanged(nats.RECONNECTING, nats.CONNECTED, nats.CLOSED)
	defer p.Connection.RemoveStatusListener(states)
	for ctx.Err() == nil {
		if err := p.session(ctx, states); !errors.Is(err, errInterrupted) {
			return err
		}
	}
	return nil
}

// session pulls with inboxes of its own until the connection is interrupted. A server may still have their
// requests then: these survive a reconnection with the same inboxes, and must not be filled on top of the
// next session's.
func (p *pull) session(ctx context.Context, states <-chan nats.Status) error {
	p.inflight.nextGeneration()
	session, end := context.WithCancelCause(ctx)
	defer end(nil)
	p.end = end
	var parts sync.WaitGroup
	parts.Go(func() { p.watchConnection(session, states) })
	parts.Go(func() { p.watchConsumer(session) })
	for range places {
		parts.Go(func() { p.keepRequesting(session) })
	}
	parts.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(session)
}

// watchConnection reports whether there is a connection, and ends the session when it was lost.
func (p *pull) watchConnection(ctx context.Context, states <-chan nats.Status) {
	tick := time.NewTicker(pullRetry)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case state := <-states:
			if state == nats.RECONNECTING {
				p.end(errInterrupted)
			}
			signal(p.inflight.freed) // connected again: requests can be made
		case <-tick.C:
			if p.Connection.IsConnected() {
				p.Tracker.Recovered(availability.NATS)
			} else {
				p.Tracker.Lost(availability.NATS, p.Connection.Down())
			}
		}
		if p.Connection.IsClosed() {
			p.end(nats.ErrConnectionClosed)
		}
	}
}

// watchConsumer looks the consumer up whenever a request found no leader, until it is known whether it is
// still the same. After a leader change it is, and answers again as soon as it has a leader. So requests go
// on meanwhile: binding again first would cost the time of its look-ups once more.
func (p *pull) watchConsumer(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.doubts:
		}
		err := p.check(ctx)
		switch {
		case err == nil:
			p.available()
		case errors.Is(err, errConsumerGone):
			p.end(err)
		case wait.For(ctx, wait.Jitter(leaderRetry)):
			signal(p.doubts)
		}
	}
}

// lost reports that the consumer is unavailable.
func (p *pull) lost(err error) {
	p.Tracker.Lost(availability.Consumer, err)
	p.unavailable.Store(true)
}

// available is called whenever the consumer shows that it serves requests.
func (p *pull) available() {
	if p.unavailable.Load() && p.unavailable.CompareAndSwap(true, false) {
		p.Tracker.Recovered(availability.Consumer)
	}
}

// pause puts off all requests for d.
func (p *pull) pause(d time.Duration) {
	p.mu.Lock()
	if until := time.Now().Add(d); until.After(p.notBefore) {
		p.notBefore = until
	}
	p.mu.Unlock()
	time.AfterFunc(d, func() { signal(p.inflight.freed) })
}

// claim reserves room for a request, so that requests and what is in flight never exceed the budget together,
// but for one message that is asked for alone. nil: none can be made now.
func (p *pull) claim() *request {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alone || time.Now().Before(p.notBefore) || !p.MayFetch() || !p.Connection.IsConnected() {
		return nil
	}
	free, pending := p.inflight.free()
	var r *request
	if p.blocked {
		r = p.requestForOne(free)
	} else {
		r = p.requestFor(free, pending)
	}
	if r == nil {
		return nil
	}
	p.alone, p.blocked = p.blocked, false
	p.inflight.reserve(r.reserved)
	if pending == 0 && time.Since(p.ended) > p.patience {
		// Without a request nothing was heard of the consumer: it may have been created again, or have another
		// leader.
		p.inflight.nextGeneration()
		signal(p.doubts)
	}
	return r
}

// requestFor asks for as many messages as there is room for. A request for few is put off while others are
// pending, so that a full worker does not make one for each message that it settles. Each reserves a fixed
// share of the budget, and waits until that is free: requests for the last bytes would be turned down one
// after the other.
func (p *pull) requestFor(free room, pending int) *request {
	share := p.share()
	if free.messages < 1 || free.bytes < share || (pending > 0 && free.messages < p.inflight.capacity/4) {
		return nil
	}
	messages := min(free.messages, p.mostOfOne())
	overhead := int64(messages) * perMessage
	bytes := share - overhead
	if p.mostBytes > 0 {
		bytes = min(bytes, p.mostBytes)
	}
	return &request{messages: messages, bytes: bytes, reserved: room{messages, bytes + overhead}}
}

// requestForOne asks for one message of any size. The server turns down each request with a bound that its
// next message exceeds, so this message would block all that come after it, for ever and for all replicas.
//
// It waits for no more room than every request needs, or less if no message of the server can be so large:
// what waits for slow channels may keep the rest, and must not block the stream for all others. It reserves
// room for the largest message, as far as there is room: so this one message may exceed the budget.
func (p *pull) requestForOne(free room) *request {
	largest := p.Connection.MaxPayload() + longestNames + perMessage
	if free.messages < 1 || free.bytes < min(largest, p.share()) {
		return nil
	}
	return &request{messages: 1, forOne: true, reserved: room{1, min(largest, free.bytes)}}
}

// share is how much of the budget a request reserves, in bytes.
func (p *pull) share() int64 { return p.inflight.budget / places }

// mostOfOne is how many messages one request asks for at most: half of its share is left for what is in them.
func (p *pull) mostOfOne() int {
	most := min(p.inflight.capacity, max(1, int(p.share()/2/perMessage)))
	if p.mostMessages > 0 {
		most = min(most, p.mostMessages)
	}
	return most
}

// askForOne has the next request ask for one message of any size.
func (p *pull) askForOne() {
	p.mu.Lock()
	p.blocked = true
	p.mu.Unlock()
}

// release gives back what a request that has ended has not brought.
func (p *pull) release(r *request) {
	p.mu.Lock()
	p.ended = time.Now()
	if r.forOne {
		p.alone = false
	}
	p.mu.Unlock()
	p.inflight.giveBack(r.reserved)
}
