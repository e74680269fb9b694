package slackout

import (
	"strings"
	"sync"
	"testing"
	"time"

	"notifier/internal/devstack"
	"notifier/internal/devstack/https"
	"notifier/test/kit"
)

// manyPosts is SEND_CONCURRENCY's default.
const manyPosts = 8

// frozenTimeout is long enough for a TLS handshake and a post on a busy machine.
const frozenTimeout = 4 * time.Second

// freeze makes posts at the same time through a proxy, then freezes their connections. The proxy forwards
// TCP, or serves CONNECT as an HTTPS_PROXY does.
func freeze(t *testing.T, way way, route route) (*devstack.Slack, *Poster) {
	t.Helper()
	s := startSlackTLS(t, &https.Server{Certificate: trusted(), HTTP1Only: route.http1Only})
	// The first posts wait for each other, so that each needs a connection unless they share one.
	var arrived sync.WaitGroup
	arrived.Add(manyPosts)
	s.Respond(func(devstack.Request) *devstack.Response {
		if s.Requests() <= manyPosts {
			arrived.Done()
			arrived.Wait()
		}
		return nil
	})

	config := way.config(s)
	config.Timeout = frozenTimeout
	addr := strings.TrimPrefix(s.URL(), "https://")
	var proxy *kit.FreezingProxy
	if route.connect {
		proxy = kit.StartFreezingProxy(t, route.startTunnel(t, addr))
	} else {
		proxy = kit.StartFreezingProxy(t, addr)
		for _, base := range []*string{&config.APIURL, &config.WebhookURL} {
			*base = strings.Replace(*base, addr, proxy.Addr, 1)
		}
	}
	p := newPoster(t, config)
	if route.connect {
		route.through(p, proxy.Addr)
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
		for _, route := range routes {
			t.Run(way.name+" "+route.name, func(t *testing.T) {
				t.Parallel()
				s, p := freeze(t, way, route)
				begun := time.Now()
				_, err := p.Post(t.Context(), hello())
				wantError(t, err, Error{Class: Ambiguous, Code: "timeout"})
				for i, err := range atOnce(t, p) {
					if err != nil {
						t.Errorf("post %d after the failure: %v, expected a new connection", i, err)
					}
				}
				if took := time.Since(begun); took > frozenTimeout*3/2 {
					t.Errorf("the dead connection cost %s, expected at most one and a half timeouts of %s", took, frozenTimeout)
				}
				if got := s.Accepted(); got != 2*manyPosts {
					t.Errorf("Slack has %d messages, expected %d", got, 2*manyPosts)
				}
			})
		}
	}
}
