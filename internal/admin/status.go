package admin

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"notifier/internal/status/snapshot"
	"notifier/internal/term"
)

const (
	statusFresh   = 2 * time.Second // many open pages cost one query in this time
	statusTimeout = 3 * time.Second // for one query, so that a status is never older than 5 s
)

// statusHandler answers with the status, as JSON or as the page. Redis is queried no more often for a hundred
// open pages than for one.
type statusHandler struct {
	// ends when the server stops; not a client's, because a query serves all waiting clients
	ctx    context.Context
	answer *snapshot.Snapshot[answered]
}

// answered is one answer in both forms.
type answered struct {
	body    []byte
	drawing func() *drawing // nil: nothing is known
}

func newStatusHandler(ctx context.Context, probes Probes) *statusHandler {
	return &statusHandler{
		ctx: ctx,
		answer: snapshot.New(statusFresh, statusTimeout, func(ctx context.Context) (answered, error) {
			status, err := probes.Status(ctx)
			if err != nil && status == nil {
				return answered{}, err
			}
			body, failed := encode(status)
			if failed != nil {
				return answered{}, failed
			}
			return answered{body, sync.OnceValue(func() *drawing { return newDrawing(probes.Page(status)) })}, err
		}),
	}
}

// encode returns a value as one line of JSON in which nothing controls a terminal: names are publishers'.
func encode(value any) ([]byte, error) {
	var line bytes.Buffer
	err := term.NewJSON(&line).Encode(value)
	return line.Bytes(), err
}

// ServeHTTP responds with the status, or with 503 and the reason why it is unknown, along with what is known
// all the same. The header Notifier-Age is how many seconds ago the query began.
func (s *statusHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, age, err := s.answer.GetFor(r.Context(), s.ctx)
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Notifier-Age", strconv.FormatFloat(age.Seconds(), 'f', 3, 64))
	if err != nil {
		if len(answer.body) == 0 {
			answer.body, _ = encode(map[string]string{"error": err.Error()}) // cannot fail: a map of strings
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(answer.body) // an error means that the client has disconnected
}
