package admin_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"notifier/internal/admin"
	"notifier/test/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fine is a worker to which nothing is wrong.
func fine() admin.Probes {
	return admin.Probes{
		Live:  func() error { return nil },
		Ready: func(context.Context) []string { return nil },
	}
}

// start starts a server that ends with the test, and gives a client of its own.
func start(t *testing.T, probes admin.Probes) (*admin.Server, *http.Client) {
	t.Helper()
	server, err := admin.Start(admin.Config{Addr: "127.0.0.1:0"}, probes)
	kit.Check(t, err)
	client := &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return server, client
}

func ask(t *testing.T, client *http.Client, method, url string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	kit.Check(t, err)
	response, err := client.Do(request)
	kit.Check(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	kit.Check(t, err)
	return response, string(body)
}

func TestTheProbesAnswerOkOrTheReasons(t *testing.T) {
	stalled := fine()
	stalled.Live = func() error { return errors.New("the loop has made no progress for 40s") }
	unready := fine()
	unready.Ready = func(context.Context) []string { return []string{"nats: unavailable", "redis: refused"} }
	hostile := fine() // what a server answers that is not what it seems to be
	hostile.Live = func() error { return errors.New("stalled\x1b[2J") }
	hostile.Ready = func(context.Context) []string { return []string{"redis: \x1b[2J\u009b31m\u202ex\nok"} }
	hostile.Waits = func() []string { return []string{"waiting\u2028"} }
	for _, test := range []struct {
		name   string
		probes admin.Probes
		path   string
		status int
		body   string
	}{
		{"alive", fine(), "/healthz", http.StatusOK, "ok\n"},
		{"ready", fine(), "/readyz", http.StatusOK, "ok\n"},
		{"stalled", stalled, "/healthz", http.StatusServiceUnavailable, "the loop has made no progress for 40s\n"},
		{"stalled, asked if ready", stalled, "/readyz", http.StatusOK, "ok\n"},
		{"not ready", unready, "/readyz", http.StatusServiceUnavailable, "nats: unavailable\nredis: refused\n"},
		{"not ready, and hostile", hostile, "/readyz", http.StatusServiceUnavailable, "redis: ?[2J?31m?x?ok\nwaiting?\n"},
		{"stalled, and hostile", hostile, "/healthz", http.StatusServiceUnavailable, "stalled?[2J\n"},
		{"not ready, asked if alive", unready, "/healthz", http.StatusOK, "ok\n"},
		{"nothing there", fine(), "/nothing", http.StatusNotFound, "404 page not found\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server, client := start(t, test.probes)
			response, body := ask(t, client, http.MethodGet, "http://"+server.Addr()+test.path)
			if response.StatusCode != test.status || body != test.body {
				t.Errorf("%d %q, expected %d %q", response.StatusCode, body, test.status, test.body)
			}
			if kind := response.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/plain") {
				t.Errorf("Content-Type %q, expected plain text", kind)
			}
			if test.status != http.StatusNotFound && response.Header.Get("Cache-Control") != "no-store" {
				t.Error("a probe's answer may be cached")
			}
		})
	}
}

func TestTheProbesOnlyAnswerGet(t *testing.T) {
	server, client := start(t, fine())
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		for _, path := range []string{"/healthz", "/readyz"} {
			if response, _ := ask(t, client, method, "http://"+server.Addr()+path); response.StatusCode != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d, expected 405", method, path, response.StatusCode)
			}
		}
	}
}

func TestShutdownWaitsForRequestsUnderWay(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	probes := fine()
	probes.Ready = func(context.Context) []string {
		close(asked)
		<-answer
		return []string{"stopping"}
	}
	server, err := admin.Start(admin.Config{Addr: "127.0.0.1:0"}, probes)
	kit.Check(t, err)
	client := &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	got := make(chan string, 1)
	go func() {
		response, err := client.Get("http://" + server.Addr() + "/readyz")
		if err != nil {
			got <- err.Error()
			return
		}
		defer func() { _ = response.Body.Close() }()
		body, _ := io.ReadAll(response.Body)
		got <- string(body)
	}()
	<-asked

	stopped := make(chan error, 1)
	go func() { stopped <- server.Shutdown(context.Background()) }()
	for { // until it does not listen any more
		connection, err := net.Dial("tcp", server.Addr())
		if err != nil {
			break
		}
		_ = connection.Close()
	}
	select {
	case err := <-stopped:
		t.Fatalf("Shutdown returns %v with a request under way", err)
	default:
	}
	close(answer)
	if body := <-got; body != "stopping\n" {
		t.Errorf("the request under way got %q, expected its answer", body)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

func TestShutdownEndsWithItsContext(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	probes := fine()
	probes.Live = func() error { close(asked); <-answer; return nil }
	server, err := admin.Start(admin.Config{Addr: "127.0.0.1:0"}, probes)
	kit.Check(t, err)
	client := &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if response, err := client.Get("http://" + server.Addr() + "/healthz"); err == nil {
			_ = response.Body.Close()
		}
	}()
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown returns %v, expected %v", err, context.DeadlineExceeded)
	}
	close(answer)
	<-done
}

func TestAnAddressThatCannotBeListenedOnIsAnError(t *testing.T) {
	server, _ := start(t, fine())
	for _, addr := range []string{server.Addr(), "no address"} {
		if second, err := admin.Start(admin.Config{Addr: addr}, fine()); err == nil {
			_ = second.Shutdown(t.Context())
			t.Errorf("a server on %q starts, expected an error", addr)
		}
	}
}
