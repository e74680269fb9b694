package devstack

import (
	"cmp"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"notifier/internal/devstack/https"
)

// Hook decides how a Slack responds to a request. Nil leaves the response to the fake: Slack's own errors,
// then the limit, then success. Hooks are called concurrently and must not change the Response afterwards.
type Hook func(Request) *Response

// Request is a request to a Slack.
type Request struct {
	Method  string  // "webhook", or a method of the Web API such as "chat.postMessage"
	Message Message // the arguments; of a post the message, without its number and time
}

// IsPost reports whether the request posts a message.
func (r Request) IsPost() bool { return r.Method == methodPost || r.Method == methodWebhook }

// IsHistory reports whether the request reads a channel or a thread.
func (r Request) IsHistory() bool { return strings.HasPrefix(r.Method, "conversations.") }

// Response replaces the response to one request. If it has no Status, RetryAfter, Code, Body, Hang or Reset,
// the fake responds as it does without a hook, after Delay and with Header and PageSize.
//
// A Response with one of these fields does not store the message unless Accept is set: a real service may
// store a message before it fails.
type Response struct {
	Status     int    // HTTP status; if 0, 200 or the status that Slack's webhooks use for Code
	RetryAfter string // the Retry-After header, unchanged; alone it makes the status 429
	Code       string // Slack's error code: {"ok":false,"error":Code}, from a webhook as plain text
	Body       string // the body, unchanged, instead of one made from Code
	Accept     bool   // stores the message, unless Slack itself would reject it (unknown channel, ...)
	Hang       bool   // no response until the client disconnects or the Slack is closed
	Reset      bool   // the connection is reset instead of a response

	Delay    time.Duration     // before anything else happens
	Header   map[string]string // headers to set; an empty value removes the header
	PageSize int               // maximum number of messages on a page of the history, if above 0
}

// Respond makes h decide the response to each request from now on, instead of the hook or the Faults before.
// Nil restores the default.
func (s *Slack) Respond(h Hook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook, s.faults = h, Faults{}
	s.announce()
}

// Always returns a Hook that responds to every post with r.
func Always(r Response) Hook { return always(Request.IsPost, r) }

// AlwaysHistory returns a Hook that responds to every request for the history with r.
func AlwaysHistory(r Response) Hook { return always(Request.IsHistory, r) }

// Next returns a Hook that responds to the next posts, with one response each.
func Next(responses ...Response) Hook { return next(Request.IsPost, responses) }

// NextHistory returns a Hook that responds to the next requests for the history, with one response each.
func NextHistory(responses ...Response) Hook { return next(Request.IsHistory, responses) }

// First returns a Hook that calls hooks in order until one responds.
func First(hooks ...Hook) Hook {
	return func(r Request) *Response {
		for _, hook := range hooks {
			if response := hook(r); response != nil {
				return response
			}
		}
		return nil
	}
}

func always(concerns func(Request) bool, response Response) Hook {
	return func(r Request) *Response {
		if !concerns(r) {
			return nil
		}
		return &response
	}
}

func next(concerns func(Request) bool, responses []Response) Hook {
	var used atomic.Int64
	return func(r Request) *Response {
		if !concerns(r) {
			return nil
		}
		n := int(used.Add(1))
		if n > len(responses) {
			return nil
		}
		return &responses[n-1]
	}
}

// setsReply reports whether r replaces the status or the body.
func (r *Response) setsReply() bool {
	return r.Status != 0 || r.Code != "" || r.Body != "" || r.RetryAfter != ""
}

// countAndAskHook counts a request and returns the hook's Response to it, which is never nil.
func (s *Slack) countAndAskHook(r Request) *Response {
	switch {
	case r.IsPost():
		s.count(&s.counts.Requests)
	case r.IsHistory():
		s.count(&s.counts.History)
	}
	s.mu.Lock()
	hook := s.hook
	s.mu.Unlock()
	if hook != nil {
		if response := hook(r); response != nil {
			return response
		}
	}
	return &Response{}
}

// reply is a response of Slack itself. An empty code means success.
type reply struct {
	*Response
	status  int
	code    string
	message Message // of a post that was accepted
}

// respond responds to a request. code is Slack's own error for it, or "". write writes Slack's response.
func (s *Slack) respond(w http.ResponseWriter, r *http.Request, req Request, code string, write func(reply)) {
	response := s.countAndAskHook(req)
	if response.Delay > 0 && !s.pause(r, response.Delay) {
		https.Cut(w)
		return
	}
	message, usual := req.Message, !response.setsReply() && !response.Hang && !response.Reset
	if req.IsPost() {
		if usual && !response.Accept && code == "" {
			if limited := s.overLimit(message.Channel); limited != nil {
				limited.Header = response.Header
				response, usual = limited, false
			}
		}
		if code == "" && (usual || response.Accept) {
			message = s.accept(message)
		} else {
			s.count(&s.counts.Refused)
		}
	}
	if response.Hang {
		s.pause(r, 0)
	}
	if response.Hang || response.Reset {
		https.Cut(w)
		return
	}
	for name, value := range response.Header {
		w.Header().Del(name)
		if value != "" {
			w.Header().Set(name, value)
		}
	}
	if !response.setsReply() {
		write(reply{response, http.StatusOK, code, message})
		return
	}
	status := cmp.Or(response.Status, http.StatusOK)
	if response.RetryAfter != "" {
		w.Header().Set("Retry-After", response.RetryAfter)
		if response.Status == 0 && response.Code == "" && response.Body == "" {
			status = http.StatusTooManyRequests
		}
	}
	if response.Body != "" {
		writeText(w, status, response.Body)
		return
	}
	if response.Code != "" || !response.Accept {
		code = response.Code
	}
	if code == "" && status == http.StatusTooManyRequests {
		code = "ratelimited"
	}
	if code == "" && (status != http.StatusOK || !response.Accept) {
		writeText(w, status, http.StatusText(status))
		return
	}
	write(reply{response, status, code, message})
}

// pause waits for a time, or with 0 indefinitely; false if the client disconnected or the Slack was closed.
func (s *Slack) pause(r *http.Request, d time.Duration) bool {
	var elapsed <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		elapsed = timer.C
	}
	select {
	case <-elapsed:
		return true
	case <-r.Context().Done():
	case <-s.closed:
	}
	return false
}
