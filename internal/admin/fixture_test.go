package admin

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"notifier/internal/outcome"
	"notifier/internal/snapshot"
	"notifier/internal/status"
	"notifier/test/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "correct-horse-battery"

// fixture returns the probes of a worker without problems.
func fixture() Probes {
	return Probes{
		Live:     func() error { return nil },
		Ready:    func(context.Context) []string { return nil },
		Snapshot: func() snapshot.Snapshot { return snapshot.Snapshot{} },
		Metrics:  http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "metrics") }),
		State:    func(context.Context) status.State { return sending() },
		Events:   func(context.Context, EventsQuery) (Events, error) { return Events{Events: []outcome.Record{}}, nil },
	}
}

// sending returns a state with a row in each section.
func sending() status.State {
	at := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	return status.State{
		Time:       at,
		State:      status.Warn,
		Summary:    "Sending. 23 of 100 global slots are used; errors is full for 29m58s.",
		Conditions: []status.Condition{{Type: "settings", State: status.Warn, Since: at, Message: "6f1c (2), 91ab (1)"}},
		Limits: []status.Limit{
			{Scope: "global", Limit: "100/30m", Used: 23, Max: 100},
			{Scope: "category/errors", Limit: "10/30m", Used: 10, Max: 10, FreeAt: at.Add(time.Hour)},
		},
		Replicas:  []status.Replica{{ID: "worker-1", State: "ready", Version: "v0.3.0", Settings: "6f1c", Seen: at}},
		Overrides: []status.Override{{Kind: "mute", Name: "noise.*", Until: at.Add(time.Hour), By: "ann"}},
	}
}

// get sends a GET to a handler without a network.
func get(handler http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	return send(handler, http.MethodGet, path, headers...)
}

func send(handler http.Handler, method, path string, headers ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, "http://127.0.0.1/", nil)
	request.RequestURI = path
	request.URL.Path, request.URL.RawQuery, _ = strings.Cut(path, "?")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, request)
	return response
}

func handlerOf(t *testing.T, token string, probes Probes) http.Handler {
	return newServer(t.Context(), Config{Token: token}, probes).Handler
}

// start starts a server that ends with the test.
func start(t *testing.T, probes Probes) *Server {
	t.Helper()
	server, err := Start(Config{Addr: "127.0.0.1:0"}, probes)
	kit.Check(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
		defer cancel()
		kit.Check(t, server.Shutdown(ctx))
	})
	return server
}

// fetch sends a GET on a connection of its own.
func fetch(server *Server, path string) (status int, body string) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: kit.Patience}
	response, err := client.Get("http://" + server.Addr() + path)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
}
