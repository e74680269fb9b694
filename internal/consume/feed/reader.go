package feed

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/consume/availability"
)

const (
	pullExpires   = 30 * time.Second       // lifetime of a request
	pullHeartbeat = 3 * time.Second        // an election takes longer than two seconds
	pullRetry     = time.Second            // pause after the server has not accepted a request
	leaderRetry   = 250 * time.Millisecond // pause while the consumer has no leader
	finishQuiet   = 200 * time.Millisecond // at the end, requests that bring nothing meanwhile are given up

	maxNoResponders = 8  // requests in a row that no server takes, until the feed binds again
	readTogether    = 64 // messages that are read before the next request is considered

	// ackPrefix begins the acknowledgement subject of every message that a consumer delivers.
	ackPrefix = "$JS.ACK."
)

var (
	errConsumerGone = errors.New("the consumer is gone")
	errHeadersOnly  = errors.New("the consumer delivers events without their payloads (headers_only)")
	errNoLeader     = errors.New("no server answers for the consumer: " +
		"it has no leader, or JetStream is not available")
	errInterrupted = errors.New("the connection was interrupted")

	// errSilent means that a server takes requests and sends not even heartbeats: it is overloaded, or the
	// permission for that subject is missing.
	errSilent = fmt.Errorf(
		"the server has not answered a request for events for %s; "+
			"the permission may be missing, or the consumer's max_waiting used up", 2*pullHeartbeat)
)

// reader reads one consumer that was bound, in a single goroutine.
type reader struct {
	feed   *Feed
	check  func(context.Context) error // whether the consumer is still the one that was bound
	listen func(subject string, arrivals chan *nats.Msg) (*nats.Subscription, error)
	next   string // the API subject of pull requests
	limits requestLimits

	tick     time.Duration
	patience int // ticks without a sign of the server after which its requests count as lost

	inbox    string
	arrivals chan *nats.Msg
	requests requests
	made     int              // requests, to number their reply subjects
	resumed  <-chan time.Time // ends a pause; nil outside of a pause
	blocked  bool             // the next message is larger than a request may bring

	// Silence is counted in ticks: a process that was suspended sees one tick afterwards, and not all that it
	// has missed.
	silent       int
	noResponders int       // requests in a row that no server took
	unavailable  bool      // the consumer was reported so
	doubtful     bool      // the consumer may have been created again
	checked      time.Time // last failed lookup of the consumer
	vouched      int       // arrivals that the last lookup vouches for; see deliversPayloads
}

func (s *Feed) newReader(info *jetstream.ConsumerInfo) *reader {
	return &reader{
		feed:     s,
		check:    func(ctx context.Context) error { return s.sameConsumer(ctx, info) },
		listen:   s.settings.Connection.ChanSubscribe,
		next:     "$JS.API.CONSUMER.MSG.NEXT." + info.Stream + "." + info.Name,
		limits:   limitsOf(info.Config, s.inflight.capacity, s.inflight.budget),
		tick:     time.Second,
		patience: int(2 * pullHeartbeat / time.Second),
	}
}

// run reads until ctx ends (nil), the feed has to bind again, or the connection is closed for good. When it
// returns, everything that has arrived is in flight.
func (r *reader) run(ctx context.Context) error {
	states := r.feed.settings.Connection.StatusChanged(nats.RECONNECTING, nats.CONNECTED, nats.CLOSED)
	defer r.feed.settings.Connection.RemoveStatusListener(states)
	for {
		err := r.session(ctx, states)
		if !errors.Is(err, errInterrupted) && !errors.Is(err, errSilent) {
			return err
		}
		r.doubtful = true
	}
}

// session reads with an inbox of its own. Requests survive a reconnection if their inbox does, so each
// session needs another one: an old request would be filled on top of the new ones.
func (r *reader) session(ctx context.Context, states <-chan nats.Status) error {
	const spare = 1024 // for statuses and late messages; the client drops messages that do not fit
	r.inbox = r.feed.settings.Connection.NewInbox()
	r.arrivals = make(chan *nats.Msg, 2*r.feed.inflight.capacity+spare)
	r.requests, r.silent = newRequests(), 0
	subscription, err := r.listen(r.inbox+".*", r.arrivals)
	if err != nil {
		return fmt.Errorf("nats: cannot subscribe to %s: %w", r.inbox, err)
	}
	err = r.read(ctx, states)
	if err == nil {
		r.finish(ctx)
		// After an interruption nothing is drained: another reconnection in the middle of that would leave
		// the server subscribed for good.
		if r.feed.settings.Connection.IsConnected() && subscription.Drain() == nil {
			_ = r.feed.settings.Connection.FlushTimeout(pullRetry) // then the server has sent everything
		}
	}
	_ = subscription.Unsubscribe() // fails if it was drained, or if the connection is closed
	for len(r.arrivals) > 0 {
		_ = r.take(ctx, <-r.arrivals, time.Now())
	}
	r.feed.inflight.reserve(0)
	return err
}

// read makes requests and reads the arrivals. It returns nil when ctx ends.
func (r *reader) read(ctx context.Context, states <-chan nats.Status) error {
	ticker := time.NewTicker(r.tick)
	defer ticker.Stop()
	for {
		r.makeRequests()
		var err error
		select {
		case <-ctx.Done():
			return nil
		case message := <-r.arrivals:
			err = r.takeTogether(ctx, message)
		case <-r.feed.inflight.freed:
		case <-r.resumed:
			r.resumed = nil
		case state := <-states:
			if state == nats.RECONNECTING {
				err = errInterrupted
			}
		case <-ticker.C: // MayFetch does not tell when its result changes
			err = r.checkSilence(ctx)
		}
		if r.feed.settings.Connection.IsClosed() {
			return nats.ErrConnectionClosed
		}
		if err != nil {
			return err
		}
	}
}

// checkSilence counts a tick. It returns errSilent if requests are pending and nothing is heard of them. Without a
// request it looks the consumer up now and then: if the stream was created again, an acknowledgement would end an
// event of the new one.
func (r *reader) checkSilence(ctx context.Context) error {
	if r.feed.settings.Connection.IsConnected() {
		r.feed.settings.Tracker.Recovered(availability.NATS)
	} else {
		r.feed.settings.Tracker.Lost(availability.NATS, r.feed.settings.Connection.Down())
	}
	if len(r.arrivals) > 0 {
		return nil
	}
	r.silent++
	switch {
	case r.silent <= r.patience:
	case len(r.requests.pending) > 0:
		r.lost(errSilent)
		return errSilent
	case r.silent%(r.patience+1) == 0 && r.feed.settings.Connection.IsConnected():
		if _, err := r.lookUp(ctx); err != nil {
			return err
		}
	}
	r.requests.tick(int(r.limits.expires/r.tick), r.patience)
	return nil
}

// makeRequests makes all requests that can be made now.
func (r *reader) makeRequests() {
	for r.resumed == nil {
		request, found := r.nextRequest()
		if !found || !r.feed.settings.MayFetch() || !r.feed.settings.Connection.IsConnected() {
			return
		}
		r.made++
		reply := r.inbox + "." + strconv.Itoa(r.made)
		maxBytes := request.bytes
		if request.alone {
			maxBytes = 0
		}
		body := fmt.Appendf(nil, `{"batch":%d,"max_bytes":%d,"expires":%d,"idle_heartbeat":%d}`,
			request.messages, maxBytes, r.limits.expires, r.limits.heartbeat)
		if err := r.feed.settings.Connection.PublishRequest(r.next, reply, body); err != nil {
			r.pause(pullRetry) // the reason shows in the connection's state
			return
		}
		if len(r.requests.pending) == 0 {
			// Without a request nothing is heard of the consumer.
			r.doubtful = r.doubtful || r.silent > r.patience
			r.silent = 0
		}
		r.requests.add(reply, request)
		r.blocked = false
		r.feed.inflight.reserve(r.requests.reserved().bytes)
	}
}

func (r *reader) nextRequest() (request, bool) {
	f := r.feed.inflight
	free := f.free(r.requests.reserved())
	if r.blocked {
		largest := r.feed.settings.Connection.MaxPayload() + longestNames + perMessage
		return r.requests.nextAlone(largest, free, f.budget)
	}
	return r.requests.next(r.limits, free, f.capacity, f.budget)
}

// pause puts off all requests, unless a pause lasts already.
func (r *reader) pause(d time.Duration) {
	if r.resumed == nil {
		r.resumed = time.After(d)
	}
}

// takeTogether handles a message and up to 63 that arrived behind it. A select and a clock reading for each would
// cost more.
func (r *reader) takeTogether(ctx context.Context, message *nats.Msg) error {
	now := time.Now()
	for n := 1; ; n++ {
		if err := r.take(ctx, message, now); err != nil {
			return err
		}
		if n == readTogether || len(r.arrivals) == 0 {
			return nil
		}
		message = <-r.arrivals
	}
}

// take handles an arrival. An error means that the feed has to bind again.
func (r *reader) take(ctx context.Context, message *nats.Msg, now time.Time) error {
	if !strings.HasPrefix(message.Reply, ackPrefix) {
		return r.takeStatus(ctx, message)
	}
	meta, err := parseMetadata(message.Reply)
	if err != nil { // an unknown kind of server
		return fmt.Errorf("nats: acknowledgement subject %q: %w", message.Reply, err)
	}
	r.requests.deliver(message.Size())
	reserved := r.requests.reserved().bytes
	deliversPayloads, err := r.deliversPayloads(ctx, message)
	if err != nil || !deliversPayloads {
		r.feed.inflight.reserve(reserved)
		later := fmt.Appendf(nil, `%s {"delay":%d}`, ackRetry, pullRetry)
		_ = r.feed.settings.Connection.Publish(message.Reply, later) // without a connection it is redelivered anyway
		return err
	}
	r.feed.pending.Store(meta.pending)
	r.feed.inflight.add(r.feed.delivery(message, meta, now), reserved)
	return r.heard(ctx)
}

// deliversPayloads reports whether the message is as it was published, and not without its payload as of a
// consumer with headers_only. Such a consumer adds a header, which a publisher may have set, too. So the
// consumer is looked up, once a second at most. The lookup vouches for all messages that have arrived by
// then.
func (r *reader) deliversPayloads(ctx context.Context, message *nats.Msg) (bool, error) {
	vouched := r.vouched > 0
	r.vouched = max(0, r.vouched-1)
	sizes := message.Header["Nats-Msg-Size"]
	isStripped := len(message.Data) == 0 && len(sizes) > 0 && sizes[len(sizes)-1] != "0"
	if !isStripped || vouched {
		return true, nil
	}
	if time.Since(r.checked) < time.Second {
		return false, nil
	}
	isSame, err := r.lookUp(ctx)
	if isSame {
		r.vouched = len(r.arrivals)
	}
	return isSame, err
}

// lookUp reports whether the consumer is certainly the one that was bound. An error means that it is not, so
// that the feed has to bind again.
func (r *reader) lookUp(ctx context.Context) (bool, error) {
	err := r.check(ctx)
	if err == nil {
		r.doubtful = false
		return true, nil
	}
	r.checked = time.Now() // the next lookup waits a second
	isDenied := errors.Is(err, nats.ErrPermissionViolation)
	if isDenied || errors.Is(err, errConsumerGone) || errors.Is(err, errHeadersOnly) {
		return false, err
	}
	return false, nil
}

// heard is called whenever the consumer shows that it serves requests.
func (r *reader) heard(ctx context.Context) error {
	r.silent, r.noResponders = 0, 0
	if r.unavailable {
		r.unavailable = false
		r.feed.settings.Tracker.Recovered(availability.Consumer)
	}
	if !r.doubtful || time.Since(r.checked) < time.Second {
		return nil
	}
	_, err := r.lookUp(ctx)
	return err
}

// lost reports that the consumer is unavailable.
func (r *reader) lost(err error) {
	r.unavailable = true
	r.feed.settings.Tracker.Lost(availability.Consumer, err)
}

// takeStatus handles a status about a pending request. Other arrivals concern an earlier request, or reply
// to a publisher that has named this subject. An error means that the feed has to bind again.
func (r *reader) takeStatus(ctx context.Context, message *nats.Msg) error {
	request, known := r.requests.pending[message.Subject]
	code, description := message.Header.Get("Status"), message.Header.Get("Description")
	if !known || code == "" {
		return nil
	}
	if code == "100" {
		request.unheard = 0
		return r.heard(ctx)
	}
	// A status without these headers turns a request down.
	messages := number(message.Header.Get("Nats-Pending-Messages"), int64(request.messages))
	bytes := number(message.Header.Get("Nats-Pending-Bytes"), request.bytes)
	r.requests.end(message.Subject, int(messages), bytes)
	r.feed.inflight.reserve(r.requests.reserved().bytes)
	r.silent = 0
	lower := strings.ToLower(description)
	conflict := func(text string) bool { return code == "409" && strings.Contains(lower, text) }
	switch {
	case code == "503": // no responders
		r.doubtful = true
		r.noResponders++
		if r.noResponders >= maxNoResponders {
			return errNoLeader
		}
		r.lost(errNoLeader)
		r.pause(leaderRetry)
		return nil
	case code == "400", code == "423": // such as of a consumer with priority groups
		r.lost(fmt.Errorf("the server refuses requests for events: %s %s", code, description))
		r.pause(pullRetry)
		return nil
	case conflict("leadership change"), conflict("server shutdown"):
		r.pause(leaderRetry)
		return nil
	case conflict("consumer deleted"), conflict("push based"), conflict("exceeded maxrequest"):
		// The consumer's bounds of requests can be changed, too.
		return fmt.Errorf("%w (%s %s)", errConsumerGone, code, description)
	case code == "404", code == "408", conflict("batch completed"):
	case conflict("exceeds maxbytes"):
		r.blocked = r.blocked || messages == int64(request.messages)
	default:
		r.pause(pullRetry)
	}
	return r.heard(ctx)
}

// number parses a count in a status. It returns fallback if the header is missing, invalid or larger than the
// request.
func number(digits string, fallback int64) int64 {
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > fallback {
		return fallback
	}
	return n
}

// finish waits for messages of pending requests when ctx has ended. Requests cannot be cancelled, and an
// event that is delivered to an inbox without a subscription reaches another worker only after AckWait.
// Under load the requests are filled at once; if nothing arrives for a moment, nothing is on its way.
func (r *reader) finish(ctx context.Context) {
	latest := time.After(5 * r.feed.quiet)
	for r.requests.messages > 0 && r.feed.settings.Connection.IsConnected() {
		select {
		case message := <-r.arrivals:
			_ = r.take(ctx, message, time.Now())
		case <-time.After(r.feed.quiet):
			return
		case <-latest:
			return
		}
	}
}
