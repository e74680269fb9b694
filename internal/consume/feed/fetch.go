package feed

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// ackPrefix begins the acknowledgement subject of every message that a consumer delivers.
const ackPrefix = "$JS.ACK."

// errSilent is a server that takes a request and sends nothing, not even heartbeats: it is overloaded, or the
// permission for that subject is missing.
var errSilent = fmt.Errorf(
	"the server has not answered a request for events for %s; it may have no permission", 2*pullHeartbeat)

// request is one pull request.
type request struct {
	messages int   // that it asks for
	bytes    int64 // the total size of what is still to come, counted as nats.Msg.Size does
	forOne   bool  // it asks for one message of any size, and has no bytes
	reserved room  // for what is still to come
	reply    string
	heard    time.Time // when the server last said or sent something for it
}

// bring takes out of a request what it has reserved for a message of so many bytes.
func (r *request) bring(size int64) room {
	message := r.reserved
	if !r.forOne {
		message = room{1, min(size+perMessage, r.reserved.bytes)}
		r.bytes = max(0, r.bytes-size)
	}
	r.reserved.messages -= message.messages
	r.reserved.bytes -= message.bytes
	return message
}

// isFilled reports whether the server ends the request with what it has brought. It reports the end only with
// the last message, and not with the last byte.
func (r *request) isFilled() bool {
	return r.reserved.messages == 0 || (r.bytes == 0 && !r.forOne)
}

// requestEnd is how a request has ended.
type requestEnd int

const (
	notEnded   requestEnd = iota
	filled                // it has brought all the messages or bytes that it asked for
	expired               // its time is over
	outOfBytes            // the next message is larger than what is left of its bytes
	blocked               // the first message is larger than all of its bytes
	limited               // the server does not take it at the moment, such as for a bound of the consumer
	leaderless            // the consumer has no leader, or gets another one
	refused               // the server takes no requests like it
	silent                // nothing was heard of it for too long
	gone                  // the consumer does not exist any more
	stopped               // the context has ended
)

// inbox is where the requests of one place are answered. One goroutine uses it.
//
// It is one for each place, because a message does not name the request that it was delivered for, and what
// that has reserved must be given back with it. It outlives a request: a server may deliver messages after it
// has reported the end of theirs.
type inbox struct {
	*pull
	subject  string
	arrivals chan *nats.Msg
	tick     *time.Ticker
	requests int // that were made here
}

// keepRequesting is one place: it makes one request after another, until ctx ends.
func (p *pull) keepRequesting(ctx context.Context) {
	for ctx.Err() == nil {
		const others = 64 // statuses and late messages; what does not fit would be dropped
		arrivals := make(chan *nats.Msg, p.mostOfOne()+others)
		in := &inbox{pull: p, subject: p.Connection.NewInbox(), arrivals: arrivals}
		subscription, err := p.listen(in.subject+".*", arrivals)
		if err != nil {
			p.end(fmt.Errorf("nats: cannot subscribe to %s: %w", in.subject, err))
			return
		}
		in.use(ctx)
		in.close(ctx, subscription)
	}
}

// use makes requests until ctx ends or a new inbox is needed.
func (in *inbox) use(ctx context.Context) {
	in.tick = time.NewTicker(pullRetry)
	defer in.tick.Stop()
	for {
		r := in.awaitRoom(ctx)
		if r == nil {
			return
		}
		how, reason := in.fetch(ctx, r)
		in.conclude(how, reason)
		in.release(r) // only now: another place may make a request at once
		if how == silent {
			return
		}
	}
}

// awaitRoom waits until a request can be made; nil: ctx has ended.
func (in *inbox) awaitRoom(ctx context.Context) *request {
	for ctx.Err() == nil {
		if r := in.claim(); r != nil {
			signal(in.inflight.freed) // there may be room for another place's, too
			return r
		}
		select {
		case <-ctx.Done():
		case message := <-in.arrivals:
			in.accept(message, nil, time.Now())
		case <-in.inflight.freed:
		case <-in.tick.C: // MayFetch does not say when it changes
		}
	}
	return nil
}

// fetch makes a request and puts what it brings in flight, until it has ended. An error is the reason, where
// one is reported.
func (in *inbox) fetch(ctx context.Context, r *request) (requestEnd, error) {
	in.requests++
	r.reply = in.subject + "." + strconv.Itoa(in.requests)
	body := fmt.Appendf(nil, `{"batch":%d,"max_bytes":%d,"expires":%d,"idle_heartbeat":%d}`,
		r.messages, r.bytes, in.expires, in.heartbeat)
	if err := in.Connection.PublishRequest(in.next, r.reply, body); err != nil {
		return limited, nil // watchConnection finds out why
	}
	asked := time.Now()
	r.heard = asked
	for !r.isFilled() {
		select {
		case <-ctx.Done():
			in.finish(ctx, r)
			return stopped, nil
		case now := <-in.tick.C:
			quiet := now.Sub(r.heard) > in.patience && len(in.arrivals) == 0
			if quiet && now.Sub(asked) > in.expires {
				return expired, nil // and the server's word of it was lost
			}
			if quiet {
				return silent, errSilent
			}
		case message := <-in.arrivals:
			if how, reason := in.take(message, r); how != notEnded {
				return how, reason
			}
		}
	}
	return filled, nil
}

// take handles a message and those that have arrived with it, for which one select and one look at the clock
// are enough. It returns how the request has ended, if it has.
func (in *inbox) take(message *nats.Msg, r *request) (how requestEnd, reason error) {
	for now := time.Now(); ; message = <-in.arrivals {
		// What is neither concerns an earlier request, or answers a publisher whose reply subject it is.
		if in.accept(message, r, now) {
			r.heard = now
			in.available()
		} else if message.Subject == r.reply && message.Header.Get("Status") != "" {
			r.heard = now
			if how, reason = in.status(message, r); how != notEnded {
				return how, reason
			}
		}
		if r.isFilled() || len(in.arrivals) == 0 {
			return notEnded, nil
		}
	}
}

// status is what the server reports about a request: how it has ended, if it has.
func (in *inbox) status(message *nats.Msg, r *request) (how requestEnd, reason error) {
	code, description := message.Header.Get("Status"), message.Header.Get("Description")
	lower := strings.ToLower(description)
	conflict := func(text string) bool { return code == "409" && strings.Contains(lower, text) }
	switch {
	case code == "503": // no responders
		return leaderless, errNoLeader
	case code == "400", code == "423": // such as of a consumer with priority groups
		return refused, fmt.Errorf("the server refuses requests for events: %s %s", code, description)
	case conflict("leadership change"), conflict("server shutdown"):
		return leaderless, nil
	case conflict("consumer deleted"), conflict("push based"):
		return gone, fmt.Errorf("%w (%s %s)", errConsumerGone, code, description)
	}
	in.available()
	switch {
	case code == "100": // heartbeat
		return notEnded, nil
	case code == "404", code == "408":
		return expired, nil
	case conflict("batch completed"):
		return filled, nil
	case conflict("exceeds maxbytes"):
		return in.exceeded(message, r), nil
	}
	return limited, nil
}

// exceeded is for a request that ends because the next message is too large for it. The server says how many
// messages it has not delivered for it. A replicated consumer's others come after this status, when its
// servers agree on their delivery.
func (in *inbox) exceeded(message *nats.Msg, r *request) requestEnd {
	undelivered, err := strconv.Atoi(message.Header.Get("Nats-Pending-Messages"))
	if err == nil && undelivered >= 0 && undelivered < r.reserved.messages {
		r.reserved.messages -= undelivered
		in.inflight.giveBack(room{messages: undelivered})
		return notEnded
	}
	if r.reserved.messages == r.messages {
		return blocked
	}
	return outOfBytes
}

// conclude is what follows from a request's end for all places.
func (in *inbox) conclude(how requestEnd, reason error) {
	switch how {
	case blocked:
		in.askForOne()
	case limited:
		in.inflight.nextGeneration()
		in.pause(pullRetry)
	case leaderless:
		in.inflight.nextGeneration()
		in.pause(leaderRetry)
		if reason != nil {
			in.lost(reason)
			signal(in.doubts)
		}
	case refused:
		in.pause(pullRetry)
		in.lost(reason)
	case silent:
		in.inflight.nextGeneration()
		in.lost(reason)
	case gone:
		in.end(reason)
	}
}

// accept puts what has arrived in flight if a consumer has delivered it, whatever its headers say; false:
// none has. r is the request that it came for; nil: it is late, and nothing is reserved for it any more.
func (p *pull) accept(message *nats.Msg, r *request, now time.Time) bool {
	if !strings.HasPrefix(message.Reply, ackPrefix) {
		return false
	}
	meta, err := parseMetadata(message.Reply)
	if err != nil { // it comes from a server of an unknown kind
		p.end(fmt.Errorf("nats: acknowledgement subject %q: %w", message.Reply, err))
		return false
	}
	var reserved room
	if r != nil {
		reserved = r.bring(int64(message.Size()))
	}
	p.pending.Store(meta.pending)
	p.inflight.add(p.delivery(message, meta, now), reserved)
	return true
}

// finish leaves a request to be filled when ctx has ended. It cannot be cancelled, and what is delivered to
// an inbox without a listener reaches another worker only after AckWait. Under load it is filled at once;
// where nothing arrives at any place for a moment, nothing is about to be lost.
func (in *inbox) finish(ctx context.Context, r *request) {
	look := time.NewTimer(in.quiet)
	defer look.Stop()
	before := 0
	for began := time.Now(); in.isServed(ctx) && !r.isFilled() && time.Since(began) < 5*in.quiet; {
		select {
		case message := <-in.arrivals:
			in.accept(message, r, time.Now())
		case <-look.C:
			_, requested := in.inflight.free()
			if requested == before && len(in.arrivals) == 0 {
				return
			}
			before = requested
			look.Reset(in.quiet)
		}
	}
}

// isServed reports whether messages may still come when ctx has ended.
func (in *inbox) isServed(ctx context.Context) bool {
	cause := context.Cause(ctx)
	if errors.Is(cause, errInterrupted) || errors.Is(cause, errConsumerGone) {
		return false
	}
	return in.Connection.IsConnected()
}

// close ends the subscription when what has arrived is in flight. It drains none whose connection was
// interrupted: another reconnection in the middle of that leaves the server subscribed for good.
func (in *inbox) close(ctx context.Context, subscription *nats.Subscription) {
	if ctx.Err() != nil && in.isServed(ctx) && subscription.Drain() == nil {
		_ = in.Connection.FlushTimeout(pullRetry) // the server ends it, and all has arrived
	}
	_ = subscription.Unsubscribe() // an error means that it has ended, or that the connection is closed
	for {
		select {
		case message := <-in.arrivals:
			in.accept(message, nil, time.Now())
		default:
			return
		}
	}
}
