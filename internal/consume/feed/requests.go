package feed

import (
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// maxRequests bounds the pull requests that are pending. The server serves pending requests in turn, so
	// the second one is made when the first is half filled: they end at different times, and one is always
	// pending.
	maxRequests = 2

	// A request reserves between an eighth and a quarter of the budget. With less room than an eighth, one
	// request after the other would be turned down because the next message is larger.
	minShare = 8
	maxShare = 4

	// longestNames bounds a message's subject and its acknowledgement subject together, by a server's
	// default.
	longestNames = 4 << 10
)

// request is one pull request.
type request struct {
	messages int
	bytes    int64 // sizes of messages as the server counts them, and as nats.Msg.Size does
	alone    bool  // for one message of any size; bytes is then a guess
	age      int   // ticks since the request was made
	unheard  int   // ticks since the last heartbeat for the request
}

// requests accounts for the messages that pull requests may still bring. A message does not name its request,
// so the account has one total for all of them.
type requests struct {
	pending  map[string]*request // by reply subject
	messages int                 // that may still be delivered
	bytes    int64               // likewise
	quiet    int                 // ticks since the last delivered message
}

func newRequests() requests { return requests{pending: map[string]*request{}} }

func (r *requests) add(reply string, added request) {
	r.pending[reply] = &added
	r.messages += added.messages
	r.bytes += added.bytes
}

// deliver counts a message that has arrived. It may be one that comes after the end of its request, so that
// the account knows nothing of it.
func (r *requests) deliver(size int) {
	r.quiet = 0
	r.subtract(1, int64(size))
}

// end removes a request, with the messages and bytes that it will not bring. A replicated consumer sends the
// status that ends a request before its last messages, which stay in the account.
func (r *requests) end(reply string, messages int, bytes int64) {
	delete(r.pending, reply)
	r.subtract(messages, bytes)
}

// subtract never lets the account become negative. At zero all requests are filled, which the server does not
// report of a request that has brought its last byte.
func (r *requests) subtract(messages int, bytes int64) {
	r.messages -= messages
	r.bytes -= bytes
	if r.messages <= 0 || r.bytes <= 0 {
		clear(r.pending)
		r.messages, r.bytes = 0, 0
	}
}

// tick drops a request without a reported end: long after its expiry, and if it gets no heartbeats
// while nothing is delivered. If nothing was delivered for the patience, no message is on its way outside
// of the remaining requests.
func (r *requests) tick(lifetime, patience int) {
	r.quiet++
	isQuiet := r.quiet > patience
	messages, bytes := 0, int64(0)
	for reply, pending := range r.pending {
		pending.age++
		pending.unheard++
		if pending.age > lifetime+patience || (isQuiet && pending.unheard > patience) {
			delete(r.pending, reply)
			continue
		}
		messages += pending.messages
		bytes += pending.bytes
	}
	if isQuiet {
		r.subtract(max(0, r.messages-messages), max(0, r.bytes-bytes))
	}
}

// isAlone reports whether the pending request is for a single message of any size.
func (r *requests) isAlone() bool {
	for _, pending := range r.pending {
		return pending.alone
	}
	return false
}

// reserved returns the room that messages on their way will take at most.
func (r *requests) reserved() room {
	return room{r.messages, r.bytes + int64(r.messages)*perMessage}
}

// requestLimits bound the requests for one consumer.
type requestLimits struct {
	messages  int
	bytes     int64 // without the consumer's own bound the largest number
	expires   time.Duration
	heartbeat time.Duration
}

func limitsOf(consumer jetstream.ConsumerConfig, capacity int, budget int64) requestLimits {
	limits := requestLimits{
		// Half of a full request's share is left for the messages themselves.
		messages: min(capacity, max(1, int(budget/maxShare/2/perMessage))),
		bytes:    math.MaxInt64,
		expires:  pullExpires,
	}
	if consumer.MaxRequestBatch > 0 {
		limits.messages = min(limits.messages, consumer.MaxRequestBatch)
	}
	if consumer.MaxRequestMaxBytes > 0 {
		limits.bytes = int64(consumer.MaxRequestMaxBytes)
	}
	if consumer.MaxRequestExpires > 0 {
		limits.expires = min(limits.expires, consumer.MaxRequestExpires)
	}
	limits.heartbeat = min(pullHeartbeat, limits.expires/2)
	return limits
}

// next returns the request to make, if one can be made in the free room. Together with the deliveries in
// flight the requests never exceed the budget, except for one message that is requested alone.
func (r *requests) next(limits requestLimits, free room, capacity int, budget int64) (request, bool) {
	if len(r.pending) >= maxRequests || r.isAlone() || free.messages < 1 || free.bytes < budget/minShare {
		return request{}, false
	}
	share := min(free.bytes, budget/maxShare)
	messages := min(free.messages, limits.messages, max(1, int(share/2/perMessage)))
	bytes := min(share-int64(messages)*perMessage, limits.bytes)
	if len(r.pending) > 0 {
		full := min(budget/maxShare-int64(limits.messages)*perMessage, limits.bytes)
		// A worker that is nearly full would make a request for each message that it settles.
		isFull := free.messages < capacity/4
		isAhead := r.messages > max(1, limits.messages/2) && r.bytes > full/2
		if isFull || isAhead {
			return request{}, false
		}
	}
	return request{messages: messages, bytes: bytes}, true
}

// nextAlone returns a request for one message without a bound of bytes. The server turns down each request
// with a bound that its next message exceeds, so a large message would block the stream for all workers.
//
// The request waits for no more room than any other needs, or less if the server takes no message of that
// size: events for slow channels may keep the rest for long. So this one message may exceed the budget.
func (r *requests) nextAlone(largest int64, free room, budget int64) (request, bool) {
	if len(r.pending) > 0 || free.messages < 1 || free.bytes < min(largest, budget/minShare) {
		return request{}, false
	}
	return request{messages: 1, bytes: max(1, min(largest, free.bytes)-perMessage), alone: true}, true
}
