package admin

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"notifier/internal/snapshot"
	"notifier/internal/term"
	"notifier/test/kit"
)

func TestProbes(t *testing.T) {
	t.Parallel()
	stalled, waiting, twice := fixture(), fixture(), fixture()
	twice.Ready = func(context.Context) []string { return []string{"nats: gone", "redis: gone"} }
	twice.Snapshot = func() snapshot.Snapshot {
		return snapshot.Snapshot{Waits: []snapshot.Wait{{For: "nats", Reason: "gone", Since: time.Now()}}}
	}
	stalled.Live = func() error { return errors.New("no progress for 40s\x1b[2J") }
	waiting.Ready = func(context.Context) []string { return []string{"nats: unavailable", "redis: \x1b[2J\u202ex\nok"} }
	waiting.Snapshot = func() snapshot.Snapshot {
		return snapshot.Snapshot{Waits: []snapshot.Wait{{For: "slack", Reason: "http_503\u2028", Since: time.Now()}}}
	}
	reasons := "nats: unavailable\nredis: ?[2J?x?ok\n"
	conditions := func(taken snapshot.Snapshot) (text string) {
		for _, line := range taken.Lines() {
			text += term.Printable(line) + "\n"
		}
		return text
	}
	wait := conditions(waiting.Snapshot())
	if !strings.Contains(wait, "http_503?") {
		t.Errorf("a snapshot has the lines %q", wait)
	}
	for _, test := range []struct {
		name, token, path string
		probes            Probes
		given             string // token of the request
		code              int
		body              string
	}{
		{"alive", "", "/healthz", fixture(), "", 200, "ok\n"},
		{"stalled", token, "/healthz", stalled, "", 503, "no progress for 40s?[2J\n"},
		{"verbose", "", "/readyz?verbose", waiting, "", 503, reasons + wait},
		{"a reason with a condition", "", "/readyz?verbose", twice, "", 503, "redis: gone\n" + conditions(twice.Snapshot())},
		{"without the token", token, "/readyz", waiting, "", 503, "not ready\n"},
		{"verbose without the token", token, "/readyz?verbose", waiting, "", 503, "not ready\n"},
		{"with the token", token, "/readyz?verbose", waiting, token, 503, reasons + wait},
	} {
		response := get(handlerOf(t, test.token, test.probes), test.path, "Authorization", "Bearer "+test.given)
		if response.Code != test.code || response.Body.String() != test.body {
			t.Errorf("%s: %d %q, expected %d %q", test.name, response.Code, response.Body, test.code, test.body)
		}
		if kind := response.Header().Get("Content-Type"); kind != "text/plain; charset=utf-8" {
			t.Errorf("%s: Content-Type %q", test.name, kind)
		}
	}
}

// Readiness steers traffic, so it is never cached. Concurrent requests share a check that begins after them.
func TestReadinessIsCheckedEachTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		checks := 0
		probes := fixture()
		probes.Ready = func(context.Context) []string {
			checks++
			time.Sleep(time.Second) // of synctest's clock
			return nil
		}
		handler := handlerOf(t, "", probes)
		get(handler, "/readyz")
		get(handler, "/readyz")
		if checks != 2 {
			t.Errorf("%d checks for two requests", checks)
		}
		var clients sync.WaitGroup
		for range 100 {
			clients.Go(func() {
				if code := get(handler, "/readyz").Code; code != 200 {
					t.Errorf("%d", code)
				}
			})
		}
		clients.Wait()
		if checks > 4 {
			t.Errorf("%d checks for 100 concurrent requests, expected at most 2", checks-2)
		}
	})
}

// A request that is open while the server stops must get a real response. An empty 200 would mean "ready".
func TestShutdownFinishesOpenRequests(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	probes := fixture()
	probes.Ready = func(ctx context.Context) []string {
		close(begun)
		<-ctx.Done()
		return []string{"stopping"}
	}
	server, err := Start(Config{Addr: "127.0.0.1:0"}, probes)
	kit.Check(t, err)
	var body atomic.Value
	var client sync.WaitGroup
	client.Go(func() {
		_, text := fetch(server, "/readyz")
		body.Store(text)
	})
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	defer cancel()
	kit.Check(t, server.Shutdown(ctx))
	client.Wait()
	if body.Load() != "stopping\n" {
		t.Errorf("the open request got %q", body.Load())
	}
	if _, text := fetch(server, "/healthz"); !strings.Contains(text, "refused") {
		t.Errorf("after Shutdown: %q", text)
	}
}
