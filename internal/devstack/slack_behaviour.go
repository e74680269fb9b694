package devstack

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Behaviour scripts the response to one post. The zero value accepts the post.
//
// A Behaviour with a response of its own does not accept the message. Accept makes it store the message
// first, as a real service may do before it fails.
type Behaviour struct {
	Status      int           // HTTP status of the response; 0: 200, or the one of Slack's webhooks for the Code
	RetryAfter  string        // the Retry-After header, unchanged; alone it makes the status 429
	Code        string        // Slack's error code: {"ok":false,"error":Code}, from a webhook as plain text
	Body        string        // the response's body, unchanged, instead of one made from Code
	ContentType string        // the Content-Type header of a Body; empty: plain text
	Location    string        // the Location header, for redirects
	Accept      bool          // the message is accepted, whatever the response
	Hang        bool          // no response until the client disconnects or the Slack is closed
	ResetBefore bool          // the connection is reset instead of a response, nothing is accepted
	ResetAfter  bool          // the message is accepted, then the connection is reset
	Delay       time.Duration // before anything else happens
}

// treat handles a post by its Behaviour. code is Slack's own error for the message, or "". answer writes
// Slack's response for code, or for the accepted message.
func (s *Slack) treat(
	w http.ResponseWriter,
	r *http.Request,
	m Message,
	code string,
	answer func(status int, code string, m Message),
) {
	b, scripted := s.arrived()
	if b.Delay > 0 && !s.pause(r, b.Delay) {
		cut(w)
		return
	}
	if !scripted {
		b = s.standing(m, code)
	}
	if code == "" && !b.ResetBefore && (b.Accept || b.ResetAfter || !b.answers() && !b.Hang) {
		m = s.accept(m)
	}
	s.answerAs(w, r, b, code, func(status int, code string) { answer(status, code, m) })
}

// answers reports whether b has a response of its own.
func (b Behaviour) answers() bool {
	return b.Status != 0 || b.Code != "" || b.Body != "" || b.RetryAfter != ""
}

// answerAs responds by the Behaviour. code is Slack's own error for the request, or "". answer writes Slack's
// response for code; "" means success.
func (s *Slack) answerAs(
	w http.ResponseWriter,
	r *http.Request,
	b Behaviour,
	code string,
	answer func(status int, code string),
) {
	switch {
	case b.Hang:
		s.pause(r, 0)
		cut(w)
		return
	case b.ResetBefore, b.ResetAfter:
		cut(w)
		return
	}
	status := http.StatusOK
	if b.answers() {
		if b.Status != 0 {
			status = b.Status
		} else if b.Code == "" && b.Body == "" {
			status = http.StatusTooManyRequests // nothing but a RetryAfter was given
		}
		if b.RetryAfter != "" {
			w.Header().Set("Retry-After", b.RetryAfter)
		}
		if b.Location != "" {
			w.Header().Set("Location", b.Location)
		}
		if b.Body != "" {
			writeAs(w, status, cmp.Or(b.ContentType, plainText), b.Body)
			return
		}
		if b.Code != "" || !b.Accept {
			code = b.Code
		}
		if code == "" && status == http.StatusTooManyRequests {
			code = "ratelimited"
		}
		if code == "" && (status != http.StatusOK || !b.Accept) {
			writeText(w, status, http.StatusText(status))
			return
		}
	}
	answer(status, code)
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

// cut resets the TCP connection.
func cut(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // closes the connection as well
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// setBehaviour reads a Behaviour, or an array of them, as JSON with field names in snake case and "delay" as
// a Go duration.
func (s *Slack) setBehaviour(set func([]Behaviour)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if body = bytes.TrimSpace(body); len(body) > 0 && body[0] != '[' {
			body = append(append([]byte("["), body...), ']')
		}
		var behaviours []Behaviour
		decoder := json.NewDecoder(bytes.NewReader(body))
		if err := decoder.Decode(&behaviours); err != nil || len(behaviours) == 0 {
			http.Error(w, "expected a Behaviour or an array of them: "+errorText(err), http.StatusBadRequest)
			return
		}
		set(behaviours)
		writeText(w, http.StatusOK, "ok")
	}
}

func errorText(err error) string {
	if err == nil {
		return "none given"
	}
	return err.Error()
}

// UnmarshalJSON reads a Behaviour from an object such as {"status":429,"retry_after":"30"} or {"delay":"2s"}.
// Unknown fields are an error, so that a typing mistake does not go unnoticed.
func (b *Behaviour) UnmarshalJSON(data []byte) error {
	var v struct {
		Status     int    `json:"status"`
		RetryAfter string `json:"retry_after"`
		Code       string `json:"code"`
		Body       string `json:"body"`
		Type       string `json:"content_type"`
		Location   string `json:"location"`
		Accept     bool   `json:"accept"`
		Hang       bool   `json:"hang"`
		CutBefore  bool   `json:"cut_before"`
		CutAfter   bool   `json:"cut_after"`
		Delay      string `json:"delay"`
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&v); err != nil {
		return err
	}
	*b = Behaviour{
		Status:      v.Status,
		RetryAfter:  v.RetryAfter,
		Code:        v.Code,
		Body:        v.Body,
		ContentType: v.Type,
		Location:    v.Location,
		Accept:      v.Accept,
		Hang:        v.Hang,
		ResetBefore: v.CutBefore,
		ResetAfter:  v.CutAfter,
	}
	if v.Status != 0 && (v.Status < 200 || v.Status > 999) {
		return errors.New("status " + strconv.Itoa(v.Status) + " is not between 200 and 999")
	}
	if v.Delay != "" {
		delay, err := time.ParseDuration(v.Delay)
		if err != nil {
			return err
		}
		b.Delay = delay
	}
	return nil
}
