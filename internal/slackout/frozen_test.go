package slackout

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

// manyPosts is SEND_CONCURRENCY's default.
const manyPosts = 8

// frozenTimeout is long enough for a TLS handshake and a post on a busy machine.
const frozenTimeout = 2 * time.Second

// freeze makes posts at the same time through a proxy to a server of HTTP/2 and HTTP/1.1, then freezes their
// connections. The proxy forwards TCP, or serves CONNECT as an HTTPS_PROXY does.
func freeze(t *testing.T, way way, connect bool) (*devstack.Slack, *Poster) {
	t.Helper()
	s := startSlack(t)
	target, err := url.Parse(s.APIURL())
	kit.Check(t, err)
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: target.Scheme, Host: target.Host})
	}}
	var arrived sync.WaitGroup
	arrived.Add(manyPosts)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The first posts wait for each other, so that each needs a connection unless they share one.
		if s.Requests() < manyPosts {
			arrived.Done()
			arrived.Wait()
		}
		forward.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)

	config := way.config(s)
	config.Timeout = frozenTimeout
	addr := server.Listener.Addr().String()
	var proxy *kit.FreezingProxy
	if connect {
		proxy = kit.StartFreezingProxy(t, kit.Serve(t, http.HandlerFunc(tunnel)))
	} else {
		proxy = kit.StartFreezingProxy(t, addr)
		addr = proxy.Addr
	}
	for _, base := range []*string{&config.APIURL, &config.WebhookURL} {
		*base = strings.Replace(*base, "http://"+target.Host, "https://"+addr, 1)
	}
	p := newPoster(t, config)
	transport := p.http.client.Transport.(*http.Transport)
	trusted := x509.NewCertPool()
	trusted.AddCert(server.Certificate())
	transport.TLSClientConfig = &tls.Config{RootCAs: trusted}
	if connect {
		transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: proxy.Addr})
	}

	for i, err := range atOnce(t, p) {
		if err != nil {
			t.Fatalf("post %d before the freeze: %v", i, err)
		}
	}
	if proxy.Freeze() == 0 {
		t.Fatal("no connection is open to be frozen")
	}
	return s, p
}

// tunnel serves CONNECT.
func tunnel(w http.ResponseWriter, r *http.Request) {
	server, err := net.Dial("tcp", r.Host)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = server.Close()
		return
	}
	_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
	_ = client.Close()
}

// atOnce makes manyPosts posts at the same time.
func atOnce(t *testing.T, p *Poster) []error {
	t.Helper()
	errs := make([]error, manyPosts)
	var posting sync.WaitGroup
	for i := range errs {
		posting.Go(func() { _, errs[i] = p.Post(t.Context(), hello()) })
	}
	posting.Wait()
	return errs
}

// TestADeadConnectionCostsOneTimeout: the other idle connections are as dead as the one that failed, so no
// later try uses one.
func TestADeadConnectionCostsOneTimeout(t *testing.T) {
	for _, way := range ways {
		for name, connect := range map[string]bool{"direct": false, "CONNECT": true} {
			t.Run(way.name+" "+name, func(t *testing.T) {
				t.Parallel()
				s, p := freeze(t, way, connect)
				_, err := p.Post(t.Context(), hello())
				wantError(t, err, Error{Class: Ambiguous, Code: "timeout"})
				for i, err := range atOnce(t, p) {
					if err != nil {
						t.Errorf("post %d after the failure: %v, expected a new connection", i, err)
					}
				}
				if got := s.Accepted(); got != 2*manyPosts {
					t.Errorf("Slack has %d messages, expected %d", got, 2*manyPosts)
				}
			})
		}
	}
}
