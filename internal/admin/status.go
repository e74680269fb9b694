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
	statusFresh   = time.Second     // many open pages cost one look in this time
	statusTimeout = 5 * time.Second // for one look
)

// statusLook keeps the last look at the status, so that Redis is asked no more often for a hundred open pages than for one.
type statusLook struct {
	ctx  context.Context // ends when the server stops: a look is for all who wait, so no client's own
	look func(ctx context.Context) (any, error)

	mu           sync.Mutex // held during a look: who comes meanwhile gets the same
	begun, ended time.Time
	body         []byte // what is answered; nobody writes to it
	failed       bool
}

// read gives the answer, how old it is, and whether it is an error.
func (s *statusLook) read() (body []byte, age time.Duration, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended.IsZero() || time.Since(s.ended) >= statusFresh {
		s.again()
	}
	return s.body, time.Since(s.begun), s.failed
}

// again looks once more; an error is kept as long as a status is. s.mu is held.
func (s *statusLook) again() {
	ctx, cancel := context.WithTimeout(s.ctx, statusTimeout)
	defer cancel()
	s.begun = time.Now()
	status, err := s.look(ctx)
	if err == nil {
		s.body, err = json.Marshal(status)
	}
	if err != nil {
		s.body, _ = json.Marshal(map[string]string{"error": err.Error()}) // two strings always have a JSON
	}
	s.body = append(s.body, '\n')
	s.failed, s.ended = err != nil, time.Now()
}

// ServeHTTP answers with the status, or with 503 and why there is none. Two headers are for the page: Notifier-Age is how
// many seconds ago the look began, for its clock, and Notifier-Page tells a page of another version to load itself again.
func (s *statusLook) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
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
	_, _ = w.Write(body) // an error means that the client has gone
}
