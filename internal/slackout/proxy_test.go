package slackout

import (
	"net"
	"net/http"
	"net/url"
	"testing"

	"notifier/internal/cause"
	"notifier/test/kit"
)

// TestFailingProxyIsNamed: a proxy that is reached and makes no connection is not taken for Slack. Neither its
// password nor its words are shown.
func TestFailingProxyIsNamed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		scheme            string
		replies           []string // one for each read; then the connection is closed
		code, explanation string
	}{
		"SOCKS without a method": {"socks5", []string{"\x05\xff"}, "network_error", "no acceptable authentication methods"},
		"SOCKS without a route": {
			"socks5", []string{"\x05\x00", "\x05\x04\x00\x01\x00\x00\x00\x00\x00\x00"}, "network_error",
			"unknown error host unreachable",
		},
		"SOCKS with another password": {
			"socks5h", []string{"\x05\x02", "\x01\x01"}, "network_error", "username/password authentication failed",
		},
		"SOCKS that closes": {"socks5", []string{""}, "connection_reset", "EOF"},
		"CONNECT closes":    {"http", []string{""}, "connection_reset", "unexpected EOF"},
		"CONNECT garbage":   {"http", []string{"220 smtp SeCrEt\r\n"}, "network_error", "malformed HTTP status code"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := scripted(t, test.replies)
			for _, config := range []Config{
				{Token: testToken, APIURL: "https://slack.invalid/api/", Channel: "C0", Timeout: kit.Patience},
				{WebhookURL: "https://hooks.invalid/services/SeCrEt", Timeout: kit.Patience},
			} {
				p := through(newPoster(t, config), test.scheme, proxy)
				_, err := p.Post(t.Context(), hello())
				wantError(t, err, Error{Class: Retry, Code: test.code})
				failure := AsError(err)
				if want := "proxy " + proxy + ": " + test.explanation; failure.Explanation != want || failure.Cause != cause.Proxy {
					t.Errorf("%v (cause %q), expected %q", err, failure.Cause, want)
				}
				if !failure.Workspace {
					t.Errorf("%v does not count for the workspace", err)
				}
			}
		})
	}
}

func through(p *Poster, scheme, proxy string) *Poster {
	p.http.client.Transport.(*http.Transport).Proxy = http.ProxyURL(&url.URL{
		Scheme: scheme, Host: proxy, User: url.UserPassword("me", "SeCrEt"),
	})
	return p
}

// scripted serves connections with one reply for each read.
func scripted(t *testing.T, replies []string) (addr string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Check(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				for _, reply := range replies {
					if _, err := conn.Read(make([]byte, 1<<10)); err != nil {
						return
					}
					_, _ = conn.Write([]byte(reply))
				}
			}()
		}
	}()
	return listener.Addr().String()
}
