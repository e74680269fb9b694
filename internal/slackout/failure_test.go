package slackout

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

func TestTimeout(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			s := startSlack(t)
			config := way.config(s)
			config.Timeout = 300 * time.Millisecond
			s.Respond(devstack.Next(devstack.Response{Hang: true}))
			_, err := newPoster(t, config).Post(t.Context(), hello())
			wantError(t, err, Error{Class: Ambiguous, Code: "timeout"})
			if errors.Is(err, context.DeadlineExceeded) {
				t.Error("the Poster's own timeout must not look like the caller's")
			}
		})
	}
}

func TestTimeoutWhileConnecting(t *testing.T) {
	config := Config{WebhookURL: "http://127.0.0.1/x", Timeout: 20 * time.Millisecond}
	p := newPoster(t, config)
	p.http.client.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	_, err := p.Post(t.Context(), hello())
	wantError(t, err, Error{Class: Retry, Code: "timeout"})
}

func TestCallerCancels(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			s := startSlack(t)
			p := newPoster(t, way.config(s))

			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := p.Post(ctx, hello())
			wantError(t, err, Error{Class: Retry, Code: "canceled"})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%v is not context.Canceled", err)
			}
			if s.Requests() != 0 {
				t.Errorf("%d requests, want none", s.Requests())
			}

			s.Respond(devstack.Next(devstack.Response{Hang: true}))
			ctx, cancel = context.WithCancel(t.Context())
			changed := s.Changed()
			go func() {
				<-changed // the post has come in
				cancel()
			}()
			_, err = p.Post(ctx, hello())
			wantError(t, err, Error{Class: Ambiguous, Code: "canceled"})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%v is not context.Canceled", err)
			}
		})
	}
}

// A failure before the request is written is never ambiguous.
func TestNotSent(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Check(t, err)
	closed := listener.Addr().String()
	_ = listener.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // it complains of the handshakes that fail here
	secure.StartTLS()
	defer secure.Close()
	for _, test := range []struct{ url, code string }{
		{"http://" + closed, "connection_refused"},
		{"https://" + secure.Listener.Addr().String(), "tls_error"},        // a certificate that nobody trusts
		{"https://" + startPlain(t).Listener.Addr().String(), "tls_error"}, // no TLS at all
		{"http://no-such-host.invalid", "dns_error"},                       // no resolver is asked, see below
	} {
		for _, config := range []Config{
			{Token: testToken, APIURL: test.url, Channel: "C0", Timeout: 10 * time.Second},
			{WebhookURL: test.url + "/services/SeCrEt", Timeout: 10 * time.Second},
		} {
			p := newPoster(t, config)
			if test.code == "dns_error" {
				p.http.client.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
					return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "no-such-host.invalid"}}
				}
			}
			_, err := p.Post(t.Context(), hello())
			wantError(t, err, Error{Class: Retry, Code: test.code})
		}
	}
}

func startPlain(t *testing.T) *httptest.Server {
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	return server
}

// location is the header of a redirect.
func location(url string) map[string]string { return map[string]string{"Location": url} }

func TestRedirectIsNotFollowed(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			s, elsewhere := startSlack(t), startSlack(t)
			for _, status := range []int{301, 302, 307, 308} {
				header := location(elsewhere.APIURL() + "chat.postMessage")
				s.Respond(devstack.Next(devstack.Response{Status: status, Header: header}))
				_, err := newPoster(t, way.config(s)).Post(t.Context(), hello())
				wantError(t, err, Error{Class: Retry, Code: "http_" + strconv.Itoa(status)})
			}
			if n := elsewhere.Requests(); n != 0 {
				t.Errorf("%d requests went where a redirect pointed", n)
			}
		})
	}
}

func TestOneAttempt(t *testing.T) {
	for _, way := range ways {
		s := startSlack(t)
		p := newPoster(t, way.config(s))
		if _, err := p.Post(t.Context(), hello()); err != nil { // opens a connection to be used again
			t.Fatal(err)
		}
		for _, b := range []devstack.Response{{Status: 503}, {Status: 429, RetryAfter: "1"}, {Reset: true}, {Accept: true, Reset: true}} {
			before := s.Requests()
			s.Respond(devstack.Next(b))
			if _, err := p.Post(t.Context(), hello()); err == nil {
				t.Errorf("%s: %+v: no error", way.name, b)
			}
			if n := s.Requests() - before; n != 1 {
				t.Errorf("%s: %+v: %d requests, want 1", way.name, b, n)
			}
		}
	}
}

func TestHugeAnswer(t *testing.T) {
	for _, way := range ways {
		s := startSlack(t)
		s.Respond(devstack.Next(devstack.Response{Body: strings.Repeat(" ", maxReply+1) + "ok"}))
		_, err := newPoster(t, way.config(s)).Post(t.Context(), hello())
		wantError(t, err, Error{Class: Ambiguous, Code: "invalid_response"})
	}
}

// TestPostsUseHTTP1 although Slack offers HTTP/2: a connection of HTTP/2 outlives a timeout.
func TestPostsUseHTTP1(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch {
		case r.ProtoMajor != 1:
			t.Errorf("spoken to by %s", r.Proto)
		case r.URL.Path == "/hang":
			<-r.Context().Done()
		case r.URL.Path == "/cut":
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, "ok")
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	post := func(path string) error {
		p := newPoster(t, Config{WebhookURL: server.URL + path, Timeout: 10 * time.Second})
		if path == "/hang" {
			p.config.Timeout = 200 * time.Millisecond
		}
		p.http.client.Transport.(*http.Transport).TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		_, err := p.Post(t.Context(), hello())
		return err
	}
	if err := post("/ok"); err != nil {
		t.Error(err)
	}
	wantError(t, post("/hang"), Error{Class: Ambiguous, Code: "timeout"})
	wantError(t, post("/cut"), Error{Class: Ambiguous, Code: "connection_reset"})
}
