package ratelimit_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// at returns the identity of a server at an address, with a certificate for these names; by default for the
// address.
func at(address string, names ...string) redistest.Identity {
	if len(names) == 0 {
		names = []string{address}
	}
	return redistest.Identity{Address: address, Names: names}
}

// on returns the address of a server under another name of its host.
func on(host string, server redistest.TLS) string {
	_, port, _ := net.SplitHostPort(server.Addr)
	return net.JoinHostPort(host, port)
}

// openTLS opens a URL as a worker does that trusts one authority.
func openTLS(t *testing.T, url string, trusted *kit.Authority) *ratelimit.Limiter {
	t.Helper()
	client, _, err := ratelimit.OpenGuarded(url, &tls.Config{RootCAs: trusted.Pool()}, 8)
	kit.Check(t, err)
	t.Cleanup(func() { _ = client.Close() })
	limiter, err := ratelimit.New(client, "n", kit.Rules("100/30m", "10/30m", ""), day)
	kit.Check(t, err)
	return limiter
}

// refuses expects that the limiter stops at the certificate of this server.
func refuses[E error](t *testing.T, url string, trusted *kit.Authority, server redistest.TLS) {
	t.Helper()
	err := openTLS(t, url, trusted).Check(t.Context())
	var reason E
	if !errors.As(err, &reason) || !strings.Contains(err.Error(), server.Addr) {
		t.Errorf("%v, expected %T about %s", err, reason, server.Addr)
	}
}

func TestTLSOfACluster(t *testing.T) {
	t.Parallel()
	authority, other := kit.NewAuthority(t, "ours"), kit.NewAuthority(t, "another")
	t.Run("a certificate each", func(t *testing.T) {
		t.Parallel()
		nodes := redistest.StartTLSCluster(t, authority, at("127.0.0.2"), at("127.0.0.3"), at("127.0.0.4"))
		for _, node := range nodes { // whichever of them has the keys
			kit.Check(t, openTLS(t, "rediss://"+node.Addr+"?addr="+nodes[0].Addr, authority).Check(t.Context()))
		}
		refuses[x509.UnknownAuthorityError](t, "rediss://"+nodes[0].Addr+"?addr="+nodes[0].Addr, other, nodes[0])
	})
	t.Run("one certificate for the host of the URL", func(t *testing.T) {
		t.Parallel()
		var who []redistest.Identity
		for _, address := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"} {
			who = append(who, at(address, "localhost"))
		}
		nodes := redistest.StartTLSCluster(t, authority, who...)
		url := "rediss://" + on("localhost", nodes[0]) + "?addr=" + nodes[1].Addr
		kit.Check(t, openTLS(t, url, authority).Check(t.Context()))
	})
	t.Run("a certificate of another server", func(t *testing.T) {
		t.Parallel()
		nodes := redistest.StartTLSCluster(t, authority, at("127.0.0.2", "127.0.0.3", "elsewhere.example"))
		refuses[x509.HostnameError](t, "rediss://"+nodes[0].Addr+"?addr="+nodes[0].Addr, authority, nodes[0])
	})
}

func TestTLSOfSentinels(t *testing.T) {
	t.Parallel()
	authority, other := kit.NewAuthority(t, "ours"), kit.NewAuthority(t, "another")
	primary := redistest.StartTLSServer(t, authority, at("127.0.0.3"))
	watcher := redistest.StartTLSSentinel(t, authority, at("127.0.0.2"), primary)
	url := func(watcher string) string { return "rediss://" + watcher + "?master_name=main" }
	kit.Check(t, openTLS(t, url(watcher.Addr), authority).Check(t.Context()))
	refuses[x509.UnknownAuthorityError](t, url(watcher.Addr), other, watcher)
	kit.Check(t, openTLS(t, url(watcher.Addr)+"&skip_verify=true", other).Check(t.Context()))

	shared := redistest.StartTLSServer(t, authority, at("127.0.0.3", "localhost"))
	watcher = redistest.StartTLSSentinel(t, authority, at("127.0.0.2", "localhost"), shared)
	kit.Check(t, openTLS(t, url(on("localhost", watcher)), authority).Check(t.Context()))

	// A Sentinel may name any server, and none is trusted for that.
	impostor := redistest.StartTLSServer(t, authority, at("127.0.0.3", "127.0.0.4", "elsewhere.example"))
	watcher = redistest.StartTLSSentinel(t, authority, at("127.0.0.2"), impostor)
	refuses[x509.HostnameError](t, url(watcher.Addr), authority, impostor)
}
