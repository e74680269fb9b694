package devstack

import (
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

//go:embed inbox.html
var inboxPage string

// inboxRoutes adds the inbox page and its sources, /inbox.json and the live /events.
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

// after returns how many messages were accepted, and the kept ones that are numbered above since.
func (s *Slack) after(since int) (accepted int, messages []Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	accepted = s.counts.Accepted
	if since > accepted { // a number from before a restart
		since = 0
	}
	recent := s.recent()
	first := accepted - len(recent) // the number before the first kept one
	messages = append([]Message{}, recent[min(max(since-first, 0), len(recent)):]...)
	return accepted, messages
}

// events streams accepted messages as server-sent events, starting after Last-Event-ID or ?since. It also
// sends the Faults, first and after each change of them or of the number of refused posts.
func (s *Slack) events(w http.ResponseWriter, r *http.Request) {
	since, err := strconv.Atoi(r.Header.Get("Last-Event-ID"))
	if err != nil {
		since, _ = strconv.Atoi(r.URL.Query().Get("since"))
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	if _, err := fmt.Fprintf(w, "retry: 1000\nevent: start\ndata: %s\n\n", s.id); err != nil {
		return
	}
	out := http.NewResponseController(w)
	shown := status{counts: counts{Refused: -1}}
	for {
		changed := s.Changed()
		shown, since, err = s.sendNews(w, shown, since)
		if err != nil || out.Flush() != nil {
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

// sendNews writes the status if its Faults or refused posts have changed, and the messages numbered above
// since. It returns the status and the last number written so far.
func (s *Slack) sendNews(w io.Writer, shown status, since int) (status, int, error) {
	now := s.status()
	if now.Faults != shown.Faults || now.Refused != shown.Refused {
		data, _ := json.Marshal(now) // only strings and numbers
		if _, err := fmt.Fprintf(w, "event: faults\ndata: %s\n\n", data); err != nil {
			return shown, since, err
		}
		shown = now
	}
	_, messages := s.after(since)
	for _, m := range messages {
		data, err := json.Marshal(m)
		if err != nil {
			data = []byte("{}")
		}
		if _, err := fmt.Fprintf(w, "id: %d\ndata: %s\n\n", m.N, data); err != nil {
			return shown, since, err
		}
		since = m.N
	}
	return shown, since, nil
}
