//go:build !production

package devstack

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// keptMessages is how many accepted messages a Slack remembers; it counts them all.
const keptMessages = 10_000

// Where a Slack's webhook is, and the secret at the end of it.
const (
	webhookBase   = "/services/T000/B000/"
	webhookSecret = "fake-secret"
)

// Slack is a fake of Slack for development and tests: it takes posts by the Web API and by an incoming webhook,
// shows them on an inbox page, and can be told to misbehave. It is safe for use by several goroutines.
//
// It answers as Slack does, errors included, as far as a sender of messages can tell. Channels are not checked:
// every name is a channel, and has an ID of its own, by which answers name it and its history is read.
type Slack struct {
	url    string
	id     string // another one for each start: tells an open page that the numbers begin anew
	server *http.Server
	served chan struct{} // closed when the listener's goroutine has ended

	mu       sync.Mutex
	closed   chan struct{} // closed by Close; handlers that hang wait for it
	handlers sync.WaitGroup
	changed  chan struct{} // closed, and replaced, whenever a request comes in or a post is accepted
	messages []Message     // the last ones, at most twice keptMessages
	accepted int
	requests int
	looks    int   // requests for what stands in a channel
	lastTS   int64 // microseconds
	next     []Behaviour
	always   Behaviour
	scopes   string

	history     History
	historyNext []Behaviour
}

// Message is a message that the Slack accepted.
type Message struct {
	N        int             `json:"n"` // 1 for the first that was accepted
	Time     time.Time       `json:"time"`
	Channel  string          `json:"channel"` // as the sender named it; "webhook" when it named none
	Text     string          `json:"text"`    // as sent, with its entities; at most 40,000 characters
	Blocks   json.RawMessage `json:"blocks,omitempty"`
	ThreadTS string          `json:"thread_ts,omitempty"`
	TS       string          `json:"ts"`
	Via      string          `json:"via"` // "api" or "webhook"
	// Metadata is the argument of this name of chat.postMessage, JSON with event_type and event_payload; nil: none.
	Metadata json.RawMessage `json:"metadata,omitempty"`

	// Form holds every argument of the request but the token, by name; those of a JSON body as JSON text,
	// strings without their quotes. Header is without Authorization.
	Form   map[string]string `json:"-"`
	Header http.Header       `json:"-"`
}

// StartSlack starts a Slack on a TCP address such as "127.0.0.1:0". When the port is taken it starts on a free
// one of the same host: URL says where.
func StartSlack(addr string) (*Slack, error) {
	listener, err := listen(addr)
	if err != nil {
		return nil, fmt.Errorf("fake Slack: %w", err)
	}
	s := &Slack{
		url:     "http://" + reachable(listener.Addr()),
		id:      rand.Text(),
		served:  make(chan struct{}),
		closed:  make(chan struct{}),
		changed: make(chan struct{}),
		scopes:  "chat:write,channels:history",
	}
	s.server = &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.served)
		_ = s.server.Serve(listener) // always http.ErrServerClosed, or the listener's end
	}()
	return s, nil
}

// URL is where the inbox page is, without a slash at the end.
func (s *Slack) URL() string { return s.url }

// APIURL is the base of the Web API, with a slash at the end.
func (s *Slack) APIURL() string { return s.url + "/api/" }

// WebhookURL is the one incoming webhook.
func (s *Slack) WebhookURL() string { return s.url + webhookBase + webhookSecret }

// Messages returns the accepted messages, the oldest first; of more than 10,000 the last ones. The caller may
// change the slice, but not what the messages point to.
func (s *Slack) Messages() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.recent())
}

// recent is the messages that count as kept; s.mu is held.
func (s *Slack) recent() []Message { return s.messages[max(0, len(s.messages)-keptMessages):] }

// Accepted is how many messages were accepted.
func (s *Slack) Accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

// Requests is how many posts came in, whatever became of them. Requests for a channel's history are no posts.
func (s *Slack) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// Changed returns a channel that is closed at the next change of Accepted, Requests or HistoryRequests. To miss
// none, take the channel first and look at the numbers then.
func (s *Slack) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Wait waits until done says true of the number of accepted messages, and returns the context's error if that
// ends first. It asks at once and after every change.
func (s *Slack) Wait(ctx context.Context, done func(accepted int) bool) error {
	for {
		changed := s.Changed()
		if done(s.Accepted()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Next queues behaviours, one for each of the next posts. They come before the one set with Always.
func (s *Slack) Next(behaviours ...Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = append(s.next, behaviours...)
}

// Always sets how posts are treated from now on when nothing is queued; the zero Behaviour accepts them.
func (s *Slack) Always(b Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.always = b
}

// SetScopes sets what auth.test tells of every token, with commas between; empty: nothing. No other method asks for them.
func (s *Slack) SetScopes(scopes string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scopes = scopes
}

// Close ends the server and every request in it, also those that hang, and waits for their goroutines.
// What was accepted can still be read. A second call does nothing.
func (s *Slack) Close() error {
	s.mu.Lock()
	select {
	case <-s.closed:
		s.mu.Unlock()
		return nil
	default:
	}
	close(s.closed)
	s.mu.Unlock()
	err := s.server.Close()
	<-s.served
	s.handlers.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// enter counts a handler in, unless the Slack is closed; leave it with s.handlers.Done.
func (s *Slack) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
		return false
	default:
		s.handlers.Add(1)
		return true
	}
}

// arrived counts a post and picks how to treat it.
func (s *Slack) arrived() Behaviour {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	s.announce()
	if len(s.next) > 0 {
		b := s.next[0]
		s.next = s.next[1:]
		return b
	}
	return s.always
}

// accept takes a message in and returns it with its number, time and timestamp.
func (s *Slack) accept(m Message) Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Time = time.Now()
	// As Slack's: seconds and microseconds, and no two alike.
	s.lastTS = max(s.lastTS+1, m.Time.UnixMicro())
	m.TS = fmt.Sprintf("%d.%06d", s.lastTS/1e6, s.lastTS%1e6)
	s.accepted++
	m.N = s.accepted
	if len(s.messages) >= 2*keptMessages {
		s.messages = slices.Clone(s.recent())
	}
	s.messages = append(s.messages, m)
	s.announce()
	return m
}

// announce wakes those who wait for a change; s.mu is held.
func (s *Slack) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}
