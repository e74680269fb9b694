package slackout

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"notifier/internal/cause"
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
	unknown := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "no-such-host.invalid"}}
	}
	hanging := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for _, test := range []struct {
		url, code string
		timeout   time.Duration
		dial      func(context.Context, string, string) (net.Conn, error) // nil: the transport's own
	}{
		{"http://" + closed, "connection_refused", 10 * time.Second, nil},
		{"https://" + secure.Listener.Addr().String(), "tls_error", 10 * time.Second, nil}, // an untrusted certificate
		{"https://" + kit.Serve(t, http.NotFoundHandler()), "tls_error", 10 * time.Second, nil},
		{"http://no-such-host.invalid", "dns_error", 10 * time.Second, unknown},
		{"http://127.0.0.1", "timeout", 20 * time.Millisecond, hanging},
	} {
		for _, config := range []Config{
			{Token: testToken, APIURL: test.url, Channel: "C0", Timeout: test.timeout},
			{WebhookURL: test.url + "/services/SeCrEt", Timeout: test.timeout},
		} {
			p := newPoster(t, config)
			if test.dial != nil {
				p.http.client.Transport.(*http.Transport).DialContext = test.dial
			}
			_, err := p.Post(t.Context(), hello())
			wantError(t, err, Error{Class: Retry, Code: test.code})
		}
	}
}

func TestProxyThatRefusesIsNamed(t *testing.T) {
	refusing := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusProxyAuthRequired) }
	proxy := &url.URL{Scheme: "http", Host: kit.Serve(t, http.HandlerFunc(refusing))}
	p := newPoster(t, Config{WebhookURL: "https://hooks.invalid/services/SeCrEt", Timeout: kit.Patience})
	p.http.client.Transport.(*http.Transport).Proxy = http.ProxyURL(proxy)
	_, err := p.Post(t.Context(), hello())
	wantError(t, err, Error{Class: Retry, Code: "proxy_407"})
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

// TestDeadProxyIsNamed: a proxy that is gone is not taken for Slack. Its password is not shown.
func TestDeadProxyIsNamed(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Check(t, err)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	kit.Check(t, err)
	_ = listener.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never replies
	kit.Check(t, err)
	defer silent.Close()
	for _, test := range []struct {
		proxy, code, explanation string
		cause                    cause.Kind
	}{
		{"localhost:" + port, "connection_refused", "proxy localhost:" + port + ": connection refused", cause.Proxy},
		{silent.Addr().String(), "timeout", "proxy " + silent.Addr().String() + ": no connection to Slack", cause.Proxy},
	} {
		for _, config := range []Config{
			{Token: testToken, APIURL: "https://slack.invalid/api/", Channel: "C0", Timeout: 300 * time.Millisecond},
			{WebhookURL: "https://hooks.invalid/services/SeCrEt", Timeout: 300 * time.Millisecond},
		} {
			p := newPoster(t, config)
			p.http.client.Transport.(*http.Transport).Proxy = http.ProxyURL(&url.URL{
				Scheme: "http", Host: test.proxy, User: url.UserPassword("me", "SeCrEt"),
			})
			if p.Proxy() != test.proxy {
				t.Errorf("Proxy() = %q, expected %s", p.Proxy(), test.proxy)
			}
			_, err := p.Post(t.Context(), hello())
			wantError(t, err, Error{Class: Retry, Code: test.code})
			if failure := AsError(err); failure.Explanation != test.explanation || failure.Cause != test.cause {
				t.Errorf("%v (cause %q), expected %q (%q)", err, failure.Cause, test.explanation, test.cause)
			}
		}
	}
}
