package slackout

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	"notifier/internal/cause"
	"notifier/internal/devstack/https"
	"notifier/test/kit"
)

// route is a way to Slack by HTTPS.
type route struct {
	name      string
	http1Only bool // the server does not offer HTTP/2
	connect   bool // through a proxy's tunnel
	https     bool // to the proxy, which offers HTTP/2
}

var routes = []route{
	{name: "HTTP/2 offered"},
	{name: "HTTP/1.1 alone", http1Only: true},
	{name: "HTTP/2 offered, CONNECT", connect: true},
	{name: "HTTP/1.1 alone, CONNECT", http1Only: true, connect: true},
	{name: "HTTP/2 offered, CONNECT by HTTPS", connect: true, https: true},
}

// startTunnel starts the proxy, which tunnels to an address.
func (r route) startTunnel(t *testing.T, addr string) (proxy string) {
	t.Helper()
	if r.https {
		return kit.ServeTLS(t, kit.TunnelTo(addr), &https.Server{Certificate: trusted()})
	}
	return kit.Serve(t, kit.TunnelTo(addr))
}

// through makes the Poster use the proxy, as HTTPS_PROXY does. The variable itself is read once a process,
// and not used for servers on this machine.
func (r route) through(p *Poster, proxy string) {
	scheme := "http"
	if r.https {
		scheme = "https"
	}
	p.http.client.Transport.(*http.Transport).Proxy = http.ProxyURL(&url.URL{Scheme: scheme, Host: proxy})
}

// TestEveryRequestByHTTPS makes each kind of request on each route.
func TestEveryRequestByHTTPS(t *testing.T) {
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			s := startSlackTLS(t, &https.Server{Certificate: trusted(), HTTP1Only: route.http1Only})
			tunnel := route.startTunnel(t, strings.TrimPrefix(s.URL(), "https://"))
			start := func(way way) *Poster {
				config := way.config(s)
				if !route.connect {
					return newPoster(t, config)
				}
				// A name that only the proxy knows, as in networks without a way out.
				for _, base := range []*string{&config.APIURL, &config.WebhookURL} {
					*base = strings.Replace(*base, s.URL(), "https://slack.test", 1)
				}
				p := newPoster(t, config)
				route.through(p, tunnel)
				return p
			}
			api, webhook := start(ways[0]), start(ways[1])
			if who, err := api.CheckAuth(t.Context()); err != nil || who.Team != "Fake Workspace" {
				t.Errorf("CheckAuth: %+v, %v", who, err)
			}
			ev := note("e1")
			receipt := mustPost(t, api, ev)
			ev.ThreadTS = ""
			wantFound(t, api, ev, Receipt{Channel: "C0DEFAULT", TS: receipt.TS})
			reply := note("e2")
			reply.ThreadTS = receipt.TS
			wantFound(t, api, reply, mustPost(t, api, reply))
			mustPost(t, webhook, note("e3"))
			if got := s.Accepted(); got != 3 {
				t.Errorf("Slack has %d messages, expected 3", got)
			}
		})
	}
}

// TestCauseIsNamed: an error whose code leaves the cause open names it.
func TestCauseIsNamed(t *testing.T) {
	// Frames of HTTP/2 instead of an HTTP/1.1 response.
	frames := kit.ServeTLS(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		kit.Check(t, err)
		_, _ = conn.Write([]byte("\x00\x00\x1e\x04\x00\x00\x00\x00\x00\r\n"))
		_ = conn.Close()
	}), &https.Server{Certificate: trusted(), HTTP1Only: true})
	other, err := https.SelfSigned("slack.example")
	kit.Check(t, err)
	named := kit.ServeTLS(t, http.NotFoundHandler(), &https.Server{Certificate: other})
	old, err := https.Expired("127.0.0.1")
	kit.Check(t, err)
	expired := kit.ServeTLS(t, http.NotFoundHandler(), &https.Server{Certificate: old})
	for name, test := range map[string]struct {
		url, code, explanation string
		class                  Class
		cause                  cause.Kind
		trusted                *https.Certificate
		dial                   error
	}{
		"HTTP/2 frames": {
			"https://" + frames, "network_error", "malformed HTTP response: a frame of HTTP/2",
			Ambiguous, cause.HTTP2, trusted(), nil,
		},
		"unknown authority": {
			"https://" + frames, "tls_error", "x509: certificate signed by unknown authority", Retry,
			cause.UnknownAuthority, other, nil,
		},
		"another name": {
			"https://" + named, "tls_error", "x509: the certificate is not valid for 127.0.0.1",
			Retry, cause.OtherName, other, nil,
		},
		"expired": {
			"https://" + expired, "tls_error", "x509: certificate has expired or is not yet valid: current time ",
			Retry, cause.Expired, old, nil,
		},
		"no TLS": {
			"https://" + kit.Serve(t, http.NotFoundHandler()), "tls_error", "http: server gave HTTP response to HTTPS client",
			Retry, cause.NotTLS, other, nil,
		},
		"no such host": {
			"https://slack.example", "dns_error", "lookup slack.example: no such host", Retry, cause.UnknownHost, other,
			&net.DNSError{Err: "no such host", Name: "slack.example", IsNotFound: true},
		},
		"no route": {
			"https://slack.example", "network_error", "no route to host", Retry, cause.NoRoute, other,
			os.NewSyscallError("connect", syscall.EHOSTUNREACH),
		},
		"no more files": {
			"https://slack.example", "network_error", "too many open files", Retry, cause.TooManyFiles, other,
			os.NewSyscallError("socket", syscall.EMFILE),
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, config := range []Config{
				{Token: testToken, APIURL: test.url + "/api/", Channel: "C0", Timeout: kit.Patience},
				{WebhookURL: test.url + "/services/SeCrEt", Timeout: kit.Patience},
			} {
				config.RootCAs = test.trusted.Pool()
				p := newPoster(t, config)
				if test.dial != nil {
					p.http.client.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
						return nil, &net.OpError{Op: "dial", Net: "tcp", Err: test.dial}
					}
				}
				_, err := p.Post(t.Context(), hello())
				wantError(t, err, Error{Class: test.class, Code: test.code})
				want := fmt.Sprintf("slack: %s: %s: %s", test.class, test.code, test.explanation)
				if err == nil || !strings.HasPrefix(err.Error(), want) || AsError(err).Cause != test.cause {
					t.Errorf("error %v\nwant  %s", err, want)
				}
			}
		})
	}
}
