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

	"notifier/internal/devstack/https"
	"notifier/internal/ratelimit"
)

// keptMessages bounds the accepted messages that a Slack keeps. Its counters include the removed ones.
const keptMessages = 10_000

// The path of a Slack's webhook, and the secret at its end.
const (
	webhookBase   = "/services/T000/B000/"
	webhookSecret = "fake-secret"
)

// Slack is a fake Slack for development and tests. It accepts posts by the Web API and by an incoming
// webhook, and shows them on an inbox page. It is safe for concurrent use.
//
// By default it responds as Slack does, errors included, as far as a sender of messages can see. Slack itself
// speaks HTTPS with HTTP/2; the fake does after StartSlackTLS. Respond replaces the response to any request,
// and SetLimit limits the posts to each channel. Every name is a channel and has its own ID, which responses
// contain and which requests for the history need.
type Slack struct {
	url    string
	id     string // unique to each start: an open page then starts over
	server *http.Server
	served chan struct{} // closed when the goroutine of the listener has ended

	mu       sync.Mutex
	closed   chan struct{} // closed by Close; handlers that hang wait for it
	handlers sync.WaitGroup
	changed  chan struct{} // closed and replaced at each change of the status
	messages []Message     // the last ones, at most twice keptMessages
	lastTS   int64         // microseconds
	counts   counts
	faults   Faults
	hook     Hook

	limit      ratelimit.Limit
	retryAfter time.Duration
	windows    map[string]*window // by channelID
	now        func() time.Time   // the clock of the limit
}

// counts are the totals since the start.
type counts struct {
	Requests int `json:"requests"` // posts that arrived
	Accepted int `json:"accepted"`
	Refused  int `json:"refused"` // posts that were not accepted
	History  int `json:"history"` // requests for the history of a channel
}

// Message is a message that the Slack accepted.
type Message struct {
	N        int             `json:"n"` // 1 for the first that was accepted
	Time     time.Time       `json:"time"`
	Channel  string          `json:"channel"` // as the sender named it; "webhook" if it named none
	Text     string          `json:"text"`    // as sent, with its entities; at most 40,000 characters
	Blocks   json.RawMessage `json:"blocks,omitempty"`
	ThreadTS string          `json:"thread_ts,omitempty"`
	TS       string          `json:"ts"`
	Via      string          `json:"via"` // "api" or "webhook"
	// Metadata is the argument of chat.postMessage with this name, JSON with event_type and event_payload.
	// Nil if there was none.
	Metadata json.RawMessage `json:"metadata,omitempty"`

	// Form holds every argument of the request except the token, by name. Arguments of a JSON body are kept
	// as JSON text, strings without their quotes. Header has no Authorization.
	Form   map[string]string `json:"-"`
	Header http.Header       `json:"-"`
}

// StartSlack starts a Slack that speaks plain HTTP, on a TCP address such as "127.0.0.1:0". If the port is
// taken it starts on a free one of the same host, which URL returns.
func StartSlack(addr string) (*Slack, error) { return StartSlackTLS(addr, nil) }

// StartSlackTLS starts a Slack that speaks HTTPS alone. If secure is nil, it is StartSlack.
func StartSlackTLS(addr string, secure *https.Server) (*Slack, error) {
	listener, err := listen(addr)
	if err != nil {
		return nil, fmt.Errorf("fake Slack: %w", err)
	}
	s := &Slack{
		url:     secure.Scheme() + "://" + reachable(listener.Addr()),
		id:      rand.Text(),
		served:  make(chan struct{}),
		closed:  make(chan struct{}),
		changed: make(chan struct{}),
		windows: map[string]*window{},
		now:     time.Now,
	}
	s.server = &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.served)
		_ = secure.Serve(s.server, listener) // always http.ErrServerClosed, or the error of the closed listener
	}()
	return s, nil
}

// URL returns the URL of the inbox page, without a slash at the end.
func (s *Slack) URL() string { return s.url }

// APIURL returns the base URL of the Web API, with a slash at the end.
func (s *Slack) APIURL() string { return s.url + "/api/" }

// WebhookURL returns the URL of the one incoming webhook.
func (s *Slack) WebhookURL() string { return s.url + webhookBase + webhookSecret }

// Messages returns the last 10,000 accepted messages, oldest first. The caller may change the slice, but not
// the data its messages refer to.
func (s *Slack) Messages() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.recent())
}

// recent returns the messages that are kept; s.mu is held.
func (s *Slack) recent() []Message { return s.messages[max(0, len(s.messages)-keptMessages):] }

// Accepted returns how many messages were accepted.
func (s *Slack) Accepted() int { return s.status().Accepted }

// Requests returns how many posts arrived, whatever their result. Requests for a channel's history do not
// count.
func (s *Slack) Requests() int { return s.status().Requests }

// HistoryRequests returns how many requests for the history of a channel arrived, whatever their result.
func (s *Slack) HistoryRequests() int { return s.status().History }

// status is the reply of /fake/faults.
type status struct {
	Faults Faults `json:"faults"`
	counts
}

func (s *Slack) status() status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return status{s.faults, s.counts}
}

// Changed returns a channel that is closed at the next change of Accepted, Requests, HistoryRequests or the
// Faults. To miss no change, get the channel first and read the numbers afterwards.
func (s *Slack) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Wait waits until done returns true for the number of accepted messages, and returns the context's error if
// the context ends first. It calls done at once and after every change.
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

// Close stops the server and every request in progress, including those that hang, and waits for their
// goroutines. Accepted messages can still be read. A second call does nothing.
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

// enter registers a handler, and reports false if the Slack is closed. The handler ends with s.handlers.Done.
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

// accept stores a message and returns it with its number, time and timestamp.
func (s *Slack) accept(m Message) Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Time = time.Now()
	// Like Slack's: seconds and microseconds, and unique.
	s.lastTS = max(s.lastTS+1, m.Time.UnixMicro())
	m.TS = fmt.Sprintf("%d.%06d", s.lastTS/1e6, s.lastTS%1e6)
	s.counts.Accepted++
	m.N = s.counts.Accepted
	if len(s.messages) >= 2*keptMessages {
		s.messages = slices.Clone(s.recent())
	}
	s.messages = append(s.messages, m)
	s.announce()
	return m
}

// count increments one of s.counts.
func (s *Slack) count(total *int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*total++
	s.announce()
}

// announce wakes the callers that wait for a change; s.mu is held.
func (s *Slack) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}
