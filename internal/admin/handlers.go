package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"notifier/internal/outcome"
	"notifier/internal/status"
	"notifier/internal/term"
)

const (
	defaultEvents = 100
	maxEvents     = 200
)

func (h *handlers) healthz(w http.ResponseWriter, _ *http.Request) {
	if err := h.probes.Live(); err != nil {
		lines(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	lines(w, http.StatusOK, "ok")
}

// readyz hides reasons from clients without the token because reasons contain names of other servers.
func (h *handlers) readyz(w http.ResponseWriter, r *http.Request) {
	reasons, err := h.ready.GetFor(r.Context(), h.ctx)
	if err != nil {
		reasons = []string{err.Error()} // the client has disconnected
	}
	status, text := http.StatusOK, []string{"ok"}
	authorized := h.authorized(r)
	switch {
	case len(reasons) == 0:
	case authorized:
		status, text = http.StatusServiceUnavailable, reasons
	default:
		status, text = http.StatusServiceUnavailable, []string{"not ready"}
	}
	if authorized && r.URL.Query().Has("verbose") {
		conditions := h.probes.Snapshot().Lines()
		text = slices.DeleteFunc(slices.Clone(text), func(reason string) bool {
			repeats := func(line string) bool { return strings.HasPrefix(line, reason+", ") }
			return slices.ContainsFunc(conditions, repeats)
		})
		text = append(text, conditions...)
	}
	lines(w, status, text...)
}

// lines writes plain text. Other servers and publishers wrote parts of it.
func lines(w http.ResponseWriter, status int, text ...string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	for _, line := range text {
		_, _ = fmt.Fprintln(w, term.Printable(line)) // an error means that the client has disconnected
	}
}

func (h *handlers) status(w http.ResponseWriter, r *http.Request) {
	now, found := h.readState(w, r)
	if found {
		reply(w, http.StatusOK, now)
	}
}

// readState writes an error and returns false if the client disconnects while it waits.
func (h *handlers) readState(w http.ResponseWriter, r *http.Request) (now status.State, found bool) {
	now, err := h.state.GetFor(r.Context(), h.ctx)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return now, false
	}
	return now, true
}

func (h *handlers) events(w http.ResponseWriter, r *http.Request) {
	query, err := parseEvents(r.URL.RawQuery)
	if err != nil {
		reply(w, http.StatusBadRequest, failure{err.Error()})
		return
	}
	found, err := h.readEvents(r.Context(), query)
	if err != nil {
		reply(w, http.StatusServiceUnavailable, failure{err.Error()})
		return
	}
	reply(w, http.StatusOK, found)
}

// readEvents shares one read among the requests without a filter, and bounds the number of the others.
func (h *handlers) readEvents(ctx context.Context, query EventsQuery) (Events, error) {
	if query.Category == "" && query.Outcome == "" {
		events, err := h.newest.GetFor(ctx, h.ctx)
		if omitted := len(events.Events) - query.N; omitted > 0 {
			events.Events, events.Note = events.Events[omitted:], OlderOmitted
		}
		return events, err
	}
	ctx, cancel := context.WithTimeout(ctx, eventsTimeout)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	select {
	case h.filtered <- struct{}{}:
	case <-ctx.Done():
		return Events{}, errors.New("too many concurrent reads of events")
	}
	defer func() { <-h.filtered }()
	return h.probes.Events(ctx, query)
}

// parseEvents parses the parameters of /api/events and of the page. The error states the expected values.
func parseEvents(text string) (EventsQuery, error) {
	query := EventsQuery{N: defaultEvents}
	values, err := url.ParseQuery(text)
	if err != nil {
		return query, errors.New("malformed query; expected category, outcome or n")
	}
	for name, given := range values {
		if len(given) > 1 {
			return query, fmt.Errorf("%.40q is given %d times", name, len(given))
		}
		value := strings.TrimSpace(given[0])
		switch {
		case name == "category":
			query.Category = value
		case name == "outcome" && (value == "" || slices.Contains(outcome.Outcomes(), value)):
			query.Outcome = value
		case name == "outcome":
			return query, fmt.Errorf("outcome %.40q: expected %s", value, strings.Join(outcome.Outcomes(), ", "))
		case name == "n":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > maxEvents {
				return query, fmt.Errorf("n %.40q: expected 1 to %d", value, maxEvents)
			}
			query.N = n
		default:
			return query, fmt.Errorf("unknown parameter %.40q; expected category, outcome or n", name)
		}
	}
	return query, nil
}

type failure struct {
	Error string `json:"error"`
}

// reply writes JSON. Escapes keep terminals safe, because publishers choose some of the text.
func reply(w http.ResponseWriter, status int, value any) {
	var body bytes.Buffer
	if err := term.NewJSON(&body).Encode(value); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // an error means that the client has disconnected
}
