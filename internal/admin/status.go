package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	statusFresh   = time.Second     // many open pages cost one query in this time
	statusTimeout = 5 * time.Second // for one query
)

// statusCache caches the status, so that Redis is queried no more often for a hundred open pages than for one.
type statusCache struct {
	ctx   context.Context // ends when the server stops; not a client's, because a query serves all waiting clients
	query func(ctx context.Context) (any, error)

	mu           sync.Mutex // held during a query: requests that arrive during it get the same result
	begun, ended time.Time
	body         []byte // the response body; never modified
	failed       bool
}

// read returns the response body, its age, and whether it is an error.
func (s *statusCache) read() (body []byte, age time.Duration, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended.IsZero() || time.Since(s.ended) >= statusFresh {
		s.refresh()
	}
	return s.body, time.Since(s.begun), s.failed
}

// refresh queries the status; an error is cached for as long as a status. s.mu is held.
func (s *statusCache) refresh() {
	ctx, cancel := context.WithTimeout(s.ctx, statusTimeout)
	defer cancel()
	s.begun = time.Now()
	status, err := s.query(ctx)
	if err == nil {
		s.body, err = json.Marshal(status)
	}
	if err != nil {
		s.body, _ = json.Marshal(map[string]string{"error": err.Error()}) // cannot fail: a map of strings
	}
	s.body = append(s.body, '\n')
	s.failed, s.ended = err != nil, time.Now()
}

// ServeHTTP responds with the status, or with 503 and the reason why it is unknown. Two headers are for the page:
// Notifier-Age is how many seconds ago the query began, for the page's clock, and Notifier-Page is the version of the page,
// at which a page of another version reloads itself.
func (s *statusCache) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	body, age, failed := s.read()
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Notifier-Age", strconv.FormatFloat(age.Seconds(), 'f', 3, 64))
	header.Set("Notifier-Page", pageVersion)
	if failed {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(body) // an error means that the client has disconnected
}
