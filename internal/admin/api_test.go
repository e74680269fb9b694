package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"notifier/internal/outcome"
	"notifier/internal/status"
	"notifier/test/kit"
)

// An outage is content, not a failed request: scripts read "state".
func TestStatusOfAnOutage(t *testing.T) {
	t.Parallel()
	const hostile = "\x1b[2J\u009b31m\u202ex<"
	probes := fixture()
	probes.State = func(context.Context) status.State {
		return status.State{State: status.Fail, Summary: hostile, Conditions: []status.Condition{}}
	}
	response := get(handlerOf(t, "", probes), "/api/status")
	var got status.State
	kit.Check(t, json.Unmarshal(response.Body.Bytes(), &got))
	if response.Code != 200 || response.Header().Get("Content-Type") != "application/json" || got.State != status.Fail {
		t.Errorf("%d %v %+v", response.Code, response.Header(), got)
	}
	if !strings.Contains(response.Body.String(), `\u001b[2J\u009b31m\u202ex<`) || got.Summary != hostile {
		t.Errorf("%q controls a terminal, or lost data", response.Body)
	}
}

// Status and page share one read in two seconds, and concurrent requests wait for the same one.
func TestRequestsShareAState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		probes := fixture()
		probes.State = func(context.Context) status.State {
			reads++
			time.Sleep(time.Second) // of synctest's clock
			return status.State{Summary: fmt.Sprintf("read %d", reads)}
		}
		handler := handlerOf(t, "", probes)
		expect := func(path string, read int) {
			t.Helper()
			if body := get(handler, path).Body.String(); !strings.Contains(body, fmt.Sprintf("read %d", read)) {
				t.Errorf("%s lacks read %d: %.200s", path, read, body)
			}
		}
		var clients sync.WaitGroup
		for range 50 {
			clients.Go(func() { expect("/", 1) })
			clients.Go(func() { expect("/api/status", 1) })
		}
		clients.Wait()
		time.Sleep(900 * time.Millisecond) // of synctest's clock: 1.9 s after the read began
		expect("/", 1)
		time.Sleep(100 * time.Millisecond)
		expect("/api/status", 2)
	})
}

// An empty 200 would tell a proxy that the worker is ready.
func TestCancelledRequestFails(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/readyz", "/api/status", "/"} {
		synctest.Test(t, func(t *testing.T) {
			probes := fixture()
			probes.Ready = func(context.Context) []string { time.Sleep(time.Second); return nil } // of synctest's clock
			probes.State = func(context.Context) status.State { time.Sleep(time.Second); return status.State{} }
			handler := handlerOf(t, "", probes)
			var other sync.WaitGroup
			other.Go(func() { get(handler, path) })
			defer other.Wait()
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			response := httptest.NewRecorder()
			handler.ServeHTTP(response, httptest.NewRequest("GET", path, nil).WithContext(ctx))
			if response.Code != 503 {
				t.Errorf("%s: %d, expected 503", path, response.Code)
			}
		})
	}
}

func TestEventsParameters(t *testing.T) {
	t.Parallel()
	var query EventsQuery
	probes := fixture()
	probes.Events = func(_ context.Context, given EventsQuery) (Events, error) {
		if query = given; query.Category == "gone" {
			return Events{}, errors.New("no \x1b[31mstream")
		}
		return Events{Events: []outcome.Record{{EventID: "e-1"}}, Note: "some"}, nil
	}
	handler := handlerOf(t, "", probes)
	for parameters, want := range map[string]EventsQuery{
		"": {N: 200}, "category=a": {Category: "a", N: 100}, "category=a.b&outcome=dead&n=7": {"a.b", "dead", 7},
		"outcome=sent&n=200": {Outcome: "sent", N: 200}, "category=%20errors%20": {Category: "errors", N: 100},
	} {
		response := get(handler, "/api/events?"+parameters)
		if response.Code != 200 || query != want || !strings.Contains(response.Body.String(), `"event_id":"e-1"`) {
			t.Errorf("%q: %d %+v, expected %+v", parameters, response.Code, query, want)
		}
	}
	for parameters, want := range map[string]string{
		"outcome=eaten":            `outcome \"eaten\": expected sent, dropped, dead`,
		"n=201":                    `n \"201\": expected 1 to 200`,
		"n=":                       `n \"\": expected 1 to 200`,
		"reason=global":            `unknown parameter \"reason\"; expected category, outcome or n`,
		"category=a&category=b":    `\"category\" is given 2 times`,
		"category=%zz":             `malformed query; expected category, outcome or n`,
		strings.Repeat("x", 10000): `unknown parameter \"` + strings.Repeat("x", 40) + `\"; expected category, outcome or n`,
	} {
		response := get(handler, "/api/events?"+parameters)
		if response.Code != 400 || response.Body.String() != `{"error":"`+want+`"}`+"\n" {
			t.Errorf("%.40q: %d %s, expected %s", parameters, response.Code, response.Body, want)
		}
	}
	response := get(handler, "/api/events?category=gone")
	if response.Code != 503 || response.Body.String() != `{"error":"no \u001b[31mstream"}`+"\n" {
		t.Errorf("failed read: %d %s", response.Code, response.Body)
	}
}

// Requests for the newest events share one read, and no client can cancel it.
func TestNewestEventsAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		probes := fixture()
		probes.Events = func(ctx context.Context, query EventsQuery) (Events, error) {
			reads++
			time.Sleep(time.Second) // of synctest's clock
			if query != (EventsQuery{N: maxEvents}) {
				t.Errorf("%+v", query)
			}
			return Events{Events: []outcome.Record{{EventID: "e-1"}, {EventID: "e-2"}}}, ctx.Err()
		}
		handler := handlerOf(t, "", probes)
		gone, leave := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		clients.Go(func() {
			request := httptest.NewRequest("GET", "/api/events", nil).WithContext(gone)
			handler.ServeHTTP(httptest.NewRecorder(), request)
		})
		synctest.Wait()
		leave()
		for range 50 {
			for path, want := range map[string]string{
				"/": "<bdi>e-1</bdi>", "/api/events": `"event_id":"e-1"`, "/api/events?category=&n=1": `"note":"` + OlderOmitted,
			} {
				clients.Go(func() {
					if response := get(handler, path); response.Code != 200 || !strings.Contains(response.Body.String(), want) {
						t.Errorf("%s: %d %s, expected %s", path, response.Code, response.Body, want)
					}
				})
			}
		}
		clients.Wait()
		if reads != 1 {
			t.Errorf("%d reads", reads)
		}
	})
}

// Clients choose the category, so nothing is shared. Reads are bounded instead, and end with the server.
func TestEventsReadsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var reading atomic.Int32
		probes := fixture()
		probes.Events = func(ctx context.Context, _ EventsQuery) (Events, error) {
			reading.Add(1)
			<-ctx.Done()
			return Events{}, ctx.Err()
		}
		handler := newServer(ctx, Config{}, probes).Handler
		replies := make(chan *httptest.ResponseRecorder, 50)
		for range cap(replies) {
			go func() { replies <- get(handler, "/api/events?category=errors") }()
		}
		synctest.Wait()
		if n := reading.Load(); n != maxFiltered {
			t.Errorf("%d concurrent reads, expected %d", n, maxFiltered)
		}
		began := time.Now()
		stop()
		for range cap(replies) {
			if response := <-replies; response.Code != 503 {
				t.Errorf("%d %s", response.Code, response.Body)
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("reads ended %s after the server", took)
		}
	})
}
