package devstack

import (
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

//go:embed inbox.html
var inboxPage string

// inboxRoutes adds the page for people and its two sources: /inbox.json and the live /events.
func (s *Slack) inboxRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		nonce := rand.Text()
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set(
			"Content-Security-Policy",
			"default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; "+
				"frame-ancestors 'none'; script-src 'nonce-"+nonce+"'; style-src 'nonce-"+nonce+"'",
		)
		_, _ = strings.NewReplacer("{{nonce}}", nonce).WriteString(w, inboxPage)
	})
	mux.HandleFunc("GET /inbox.json", func(w http.ResponseWriter, r *http.Request) {
		since, _ := strconv.Atoi(r.URL.Query().Get("since"))
		accepted, messages := s.after(since)
		writeAPI(w, http.StatusOK, map[string]any{"accepted": accepted, "messages": messages})
	})
	mux.HandleFunc("GET /events", s.events)
}

// after returns how many messages were accepted and those numbered above since that are still kept.
func (s *Slack) after(since int) (accepted int, messages []Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if since > s.accepted { // a number from before a restart
		since = 0
	}
	recent := s.recent()
	first := s.accepted - len(recent) // the number before the first kept one
	messages = append([]Message{}, recent[min(max(since-first, 0), len(recent)):]...)
	return s.accepted, messages
}

// version increases with each change of the data behind /fake/mode.
func (s *Slack) version() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.modeVersion
}

// events streams accepted messages as server-sent events, starting after Last-Event-ID or ?since. It also
// sends an event when the mode or its counts of refused posts change.
func (s *Slack) events(w http.ResponseWriter, r *http.Request) {
	since, err := strconv.Atoi(r.Header.Get("Last-Event-ID"))
	if err != nil {
		since, _ = strconv.Atoi(r.URL.Query().Get("since"))
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	if _, err := fmt.Fprintf(w, "retry: 1000\nevent: start\ndata: %s\n\n", s.id); err != nil {
		return
	}
	version := -1
	for {
		changed := s.Changed()
		if now := s.version(); now != version { // the page then fetches the mode
			version = now
			if _, err := fmt.Fprintf(w, "event: mode\ndata: %d\n\n", version); err != nil {
				return
			}
		}
		_, messages := s.after(since)
		for _, m := range messages {
			data, err := json.Marshal(m)
			if err != nil {
				data = []byte("{}")
			}
			if _, err := fmt.Fprintf(w, "id: %d\ndata: %s\n\n", m.N, data); err != nil {
				return
			}
			since = m.N
		}
		if out.Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-s.closed:
			return
		}
	}
}
