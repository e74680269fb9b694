package feed

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// mostRequests is how many requests are pending with the server at a time, at most. The server fills them in turn, so that
// they end at about the same time; with too few the next one would come only when nothing is left of all.
const mostRequests = 8

// request is a place for one pull request. Each has an inbox of its own: a message does not name the request that it came
// for, and what that has reserved must be given back with it.
//
// While it is pending it has reserved room for all that it may bring, so that requests and what is in flight together never
// exceed the budget, but for one message that was asked for alone. The server counts the bytes of a message as nats.Msg.Size does.
type request struct {
	inbox    string    // its subscription is to <inbox>.*
	serial   int       // of the request that is pending; the last token of where it is answered
	messages int       // that it may still bring; 0: no request is pending
	bytes    int64     // that they may have together; 0 with messages: one message of any size
	reserved int64     // of the budget
	full     bool      // it has brought nothing yet, so it still has its whole share
	ends     time.Time // when the server has ended it, whether it has reported that or not
}

// ask is the body of a pull request.
type ask struct {
	Batch     int           `json:"batch"`
	MaxBytes  int64         `json:"max_bytes,omitempty"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat,omitempty"`
}

// renewRequests forgets all requests and returns the new inboxes.
func (p *pull) renewRequests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	inboxes := make([]string, len(p.requests))
	for i := range p.requests {
		p.end(&p.requests[i])
		inboxes[i] = p.connection.NewInbox()
		p.requests[i] = request{inbox: inboxes[i]}
	}
	p.oversized = false
	return inboxes
}

// end frees the place of a request, and what it has reserved. The caller holds p.mu.
func (p *pull) end(r *request) {
	p.inflight.reserve(-r.reserved)
	r.messages, r.bytes, r.reserved = 0, 0, 0
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
	if now.Before(p.notBefore) || !p.feed.MayFetch() || !p.connection.IsConnected() {
		return nil
	}
	r := p.place(now)
	body, reserved := p.nextAsk()
	if r == nil || body.Batch < 1 {
		return nil
	}
	body.Expires, body.Heartbeat = p.expires, min(pullHeartbeat, p.expires/2)
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("nats: pull request: %w", err)
	}
	p.asked++
	if err := p.connection.PublishRequest(p.next, r.inbox+"."+strconv.Itoa(p.asked), encoded); err != nil {
		p.notBefore = now.Add(pullRetry)
		return nil // reportConnection finds out why
	}
	r.serial, r.messages, r.bytes, r.reserved = p.asked, body.Batch, body.MaxBytes, reserved
	r.full, r.ends = true, now.Add(p.expires+2*pullHeartbeat)
	p.inflight.reserve(reserved)
	p.heard = now
	return nil
}

// place is a free place for a request, or nil. The caller holds p.mu.
func (p *pull) place(now time.Time) *request {
	var free *request
	for i := range p.requests {
		r := &p.requests[i]
		if r.messages > 0 && now.After(r.ends) {
			p.end(r)
		}
		if r.messages == 0 {
			free = r
		}
	}
	return free
}

// nextAsk is what there is room for, and how much of the budget it reserves; a batch of 0: nothing now. One request reserves
// a fixed share of the budget, and waits until that is free: requests for the last bytes that are left would be refused one
// after the other. The caller holds p.mu.
func (p *pull) nextAsk() (body ask, reserved int64) {
	room, free := p.inflight.room()-p.outstanding(), p.inflight.roomBytes()
	if p.mostAsked > 0 {
		room = min(room, p.mostAsked)
	}
	if p.oversized {
		return p.askForOne(room, free)
	}
	share := p.share()
	if room < 1 || free < share || (p.outstanding() > 0 && room < p.inflight.capacity/4) {
		return ask{}, 0
	}
	messages := min(int64(room), max(1, share/2/perMessage))
	body = ask{Batch: int(messages), MaxBytes: share - messages*perMessage}
	if p.mostBytes > 0 {
		body.MaxBytes = min(body.MaxBytes, p.mostBytes)
	}
	return body, body.MaxBytes + messages*perMessage
}

// share is how much of the budget a request reserves, in bytes.
func (p *pull) share() int64 { return p.inflight.budget / mostRequests }

// askForOne asks for one message of any size. The server refuses each request with a bound that its next message exceeds, so
// that this message would block all that come after it, for ever and for all replicas.
//
// It waits for no more room than every request needs, or less if no message of the server can be so large: what waits for slow
// channels may keep the rest, and must not block the stream for all others. It reserves room for the largest message, as far
// as there is room: so this one message may exceed the budget.
func (p *pull) askForOne(room int, free int64) (body ask, reserved int64) {
	for i := range p.requests {
		if p.requests[i].isForOne() {
			return ask{}, 0
		}
	}
	largest := p.connection.MaxPayload() + longestNames + perMessage
	if room < 1 || free < min(largest, p.share()) {
		return ask{}, 0
	}
	return ask{Batch: 1}, min(largest, free)
}

// longestNames is how long the subject of a message and its acknowledgement subject can be together, by default of a server.
const longestNames = 4 << 10

// isForOne reports whether the request is pending and is one of askForOne.
func (r *request) isForOne() bool { return r.messages > 0 && r.bytes == 0 }

// outstanding is how many messages the server may still deliver for requests. The caller holds p.mu.
func (p *pull) outstanding() int {
	sum := 0
	for i := range p.requests {
		sum += p.requests[i].messages
	}
	return sum
}

// pending is outstanding for callers that do not hold p.mu.
func (p *pull) pending() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.outstanding()
}

// requestAt is the request whose inbox it is; nil: it does not count any more. The caller holds p.mu.
func (p *pull) requestAt(inbox string) *request {
	for i := range p.requests {
		if p.requests[i].inbox == inbox {
			return &p.requests[i]
		}
	}
	return nil
}

// receive is called for whatever arrives at an inbox, one message at a time for each inbox.
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
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard, p.answered = d.touched, true
	more, r := false, p.requestAt(inbox)
	if r != nil && r.messages > 0 {
		more = p.arrived(r, d, int64(message.Size()))
	}
	p.inflight.add(d)
	if more {
		signal(p.wake)
	}
}

// arrived notes that a request has brought a message of size bytes, and reports whether it may be time for another request.
// The caller holds p.mu.
func (p *pull) arrived(r *request, d *Delivery, size int64) (more bool) {
	p.oversized, r.full = false, false
	if r.isForOne() {
		d.reserved = r.reserved
	} else {
		d.reserved = min(r.reserved, size+perMessage)
		r.bytes = max(0, r.bytes-size)
	}
	r.reserved -= d.reserved
	r.messages--
	if r.messages == 0 || r.bytes == 0 { // the server ends it with either, and reports the first alone
		p.end(r)
	}
	return r.messages == 0 || d.Cost < d.reserved || p.outstanding() < p.inflight.capacity/2
}

func (p *pull) delivery(message *nats.Msg) (*Delivery, error) {
	meta, err := message.Metadata()
	if err != nil {
		return nil, err
	}
	// A stream that lost data can use a sequence again: the time makes it unique.
	var buffer [128]byte // most names fit
	name := append(append(buffer[:0], p.stream...), '.')
	name = append(strconv.AppendUint(name, meta.Sequence.Stream, 10), '.')
	name = strconv.AppendInt(name, meta.Timestamp.UnixNano(), 36)
	id := string(name)
	kept, cost := keep(message, p.feed.MostPayload)
	kept.FallbackID, kept.Published = id, meta.Timestamp
	return &Delivery{
		Message:     kept,
		Token:       id[len(p.stream)+1:],
		Seq:         meta.Sequence.Stream,
		Redelivered: meta.NumDelivered > 1,
		Cost:        cost,
		feed:        p.feed,
		reply:       message.Reply,
		touched:     time.Now(),
	}, nil
}

// status handles what the server reports about requests.
func (p *pull) status(inbox string, message *nats.Msg) {
	code, description := message.Header.Get("Status"), message.Header.Get("Description")
	if code == "" {
		return // not about a request: an answer to a publisher whose reply subject this inbox is
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.requestAt(inbox)
	if r == nil {
		return
	}
	p.heard, p.answered = time.Now(), true
	if code == "100" { // heartbeat
		return
	}
	blocked := p.refused(r, message.Subject)
	lower := strings.ToLower(description)
	switch {
	case code == "404" || code == "408": // it expired: ask again at once
	case code == "409" && strings.Contains(lower, "batch completed"): // as it should
	case code == "409" && strings.Contains(lower, "exceeds maxbytes"): // it is full, or what comes next does not fit
		p.oversized = p.oversized || blocked
	case code == "409" && strings.Contains(lower, "consumer deleted"),
		code == "409" && strings.Contains(lower, "push based"):
		p.gone = fmt.Errorf("%w (%s %s)", errConsumerGone, code, description)
	case isLeaderless(code, lower):
		p.inflight.nextGeneration()
		p.pause(leaderRetry)
		if code == "503" { // nobody has answered
			p.answered, p.silent, p.trouble = false, true, errNoLeader
		}
	case code == "400" || code == "423": // it takes no requests like these, such as of a consumer with priority groups
		p.answered, p.silent = false, true
		p.trouble = fmt.Errorf("the server refuses requests for events: %s %s", code, description)
		p.pause(pullRetry)
	default: // a bound of the consumer: ask again soon
		p.inflight.nextGeneration()
		p.pause(pullRetry)
	}
	signal(p.wake)
}

// refused ends the request that a status is about: whatever the status is, the request has ended, and what it has not brought
// will not come. blocked: it has brought nothing, although it had its whole share. The caller holds p.mu.
func (p *pull) refused(r *request, subject string) (blocked bool) {
	if r.messages == 0 || subject != r.inbox+"."+strconv.Itoa(r.serial) {
		return false // of an earlier request, which counts no more
	}
	if r.isForOne() {
		p.oversized = false // another replica has taken it
	}
	blocked = r.full
	p.end(r)
	return blocked
}
