package admin

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"time"

	"notifier/internal/status/snapshot"
	"notifier/internal/term"
)

const (
	statusFresh   = 2 * time.Second // many open pages cost one query in this time
	statusTimeout = 3 * time.Second // for one query, so that a status is never older than 5 s
)

// statusHandler answers with the status. Redis is queried no more often for a hundred open pages than for one.
type statusHandler struct {
	ctx  context.Context // ends when the server stops; not a client's, because a query serves all waiting clients
	body *snapshot.Snapshot[[]byte]
}

func newStatusHandler(ctx context.Context, query func(ctx context.Context) (any, error)) *statusHandler {
	return &statusHandler{ctx: ctx, body: snapshot.New(statusFresh, statusTimeout, func(ctx context.Context) ([]byte, error) {
		status, err := query(ctx)
		if err != nil && status == nil {
			return nil, err
		}
		body, failed := encode(status)
		if failed != nil {
			return nil, failed
		}
		return body, err
	})}
}

// encode returns a value as one line of JSON in which nothing controls a terminal: names are publishers'.
func encode(value any) ([]byte, error) {
	var line bytes.Buffer
	err := term.NewJSON(&line).Encode(value)
	return line.Bytes(), err
}

// ServeHTTP responds with the status, or with 503 and the reason why it is unknown, along with what is known all the same. Two headers are for the page:
// Notifier-Age is how many seconds ago the query began, for the page's clock, and Notifier-Page is the version of the page,
// at which a page of another version reloads itself.
func (s *statusHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, age, err := s.body.GetFor(r.Context(), s.ctx)
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Notifier-Age", strconv.FormatFloat(age.Seconds(), 'f', 3, 64))
	header.Set("Notifier-Page", pageVersion)
	if err != nil {
		if len(body) == 0 {
			body, _ = encode(map[string]string{"error": err.Error()}) // cannot fail: a map of strings
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(body) // an error means that the client has disconnected
}
