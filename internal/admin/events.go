package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"notifier/internal/outcome"
)

// EventsQuery is what a client asks of recent outcomes.
type EventsQuery struct {
	Category string // exactly; empty: all
	Outcome  string // one of package outcome's; empty: all
	N        int    // so many at most, the newest
}

// Bounds of n.
const (
	defaultEvents = 100
	mostEvents    = 200
)

// eventOutcomes are the values of the parameter outcome.
var eventOutcomes = []string{outcome.Sent, outcome.Dropped, outcome.Dead}

// parseEvents reads the parameters of a request. The error is for people, and names what was expected.
func parseEvents(query url.Values) (EventsQuery, error) {
	q := EventsQuery{Category: query.Get("category"), Outcome: query.Get("outcome"), N: defaultEvents}
	for name, values := range query {
		switch {
		case name != "category" && name != "outcome" && name != "n":
			return q, fmt.Errorf("unknown parameter %.40q, expected category, outcome or n", name)
		case len(values) > 1:
			return q, fmt.Errorf("%s is given %d times, expected once", name, len(values))
		}
	}
	if q.Outcome != "" && !slices.Contains(eventOutcomes, q.Outcome) {
		return q, fmt.Errorf("outcome %.40q, expected one of %s", q.Outcome, strings.Join(eventOutcomes, ", "))
	}
	if text := query.Get("n"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > mostEvents {
			return q, fmt.Errorf("n %.40q, expected a number from 1 to %d", text, mostEvents)
		}
		q.N = n
	}
	return q, nil
}

type eventsFunc = func(caller, ctx context.Context, query EventsQuery) (any, error)

// eventsHandler answers with what became of recent events: 200 and JSON, 400 and what was expected, or 503
// and why nothing is known, both as {"error": ...}. ctx ends when the server stops.
func eventsHandler(ctx context.Context, events eventsFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fail := func(status int, err error) {
			body, _ := encode(map[string]string{"error": err.Error()}) // cannot fail: a map of strings
			w.WriteHeader(status)
			_, _ = w.Write(body) // an error means that the client has disconnected
		}
		values, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			fail(http.StatusBadRequest, fmt.Errorf("the query cannot be read; expected category, outcome or n"))
			return
		}
		query, err := parseEvents(values)
		if err != nil {
			fail(http.StatusBadRequest, err)
			return
		}
		found, err := events(r.Context(), ctx, query)
		var body []byte
		if err == nil {
			body, err = encode(found)
		}
		if err != nil {
			fail(http.StatusServiceUnavailable, err)
			return
		}
		_, _ = w.Write(body)
	})
}
