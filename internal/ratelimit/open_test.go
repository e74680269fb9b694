package ratelimit_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// works takes one of two slots after the other and expects the third event to be refused.
func works(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	limiter, err := ratelimit.New(client, "n", kit.Rules("100/30m", "2/30m", ""), day)
	kit.Check(t, err)
	c := caller{Limiter: limiter, t: t}
	kit.Check(t, c.Check(t.Context()))
	c.admits(events(2, "e", "a")...)
	c.sent(event("e-1", "a"))
	c.want(ratelimit.Category, event("e-3", "a"))
	c.refunds(event("e-2", "a"))
	c.admits(event("e-3", "a"))
}

func TestOpenOneServer(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		works(t, kit.OpenRedis(t, s.url()))
	})
}

// A script that touched two slots would be refused here.
func TestOpenACluster(t *testing.T) {
	t.Parallel() // a cluster takes two seconds until it is up
	cluster := redistest.StartCluster(t, 1)
	// one of its nodes may be unavailable
	client := kit.OpenRedis(t, fmt.Sprintf("redis://%s?addr=%s", cluster.Nodes[0].Addr, kit.FreeAddr(t)))
	if _, ok := client.(*redis.ClusterClient); !ok {
		t.Fatalf("addr= makes a %T", client)
	}
	works(t, client)
}

func TestOpenTheMasterThatSentinelsName(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		works(t, kit.OpenRedis(t, startSentinel(t, s.Options().Addr).url()))
	})
}

func TestOpenTrustsTheGivenAuthority(t *testing.T) {
	certificate, authority := selfSigned(t)
	embedded := miniredis.NewMiniRedis()
	kit.Check(t, embedded.StartTLS(&tls.Config{Certificates: []tls.Certificate{certificate}}))
	t.Cleanup(embedded.Close)
	url := "rediss://" + embedded.Addr()

	client, err := ratelimit.Open(url, &tls.Config{RootCAs: authority})
	kit.Check(t, err)
	t.Cleanup(func() { _ = client.Close() })
	works(t, client)

	limiterAt(t, url).fails("certificate")
	if decisions, err := limiterAt(t, "redis://"+embedded.Addr()).Admit(t.Context(), events(1, "e", "a")); err == nil || decisions != nil {
		t.Errorf("without TLS: %v, %v", decisions, err)
	}
}

func TestOpenPresentsAClientCertificate(t *testing.T) {
	certificate, authority := selfSigned(t)
	embedded := miniredis.NewMiniRedis()
	err := embedded.StartTLS(&tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority})
	kit.Check(t, err)
	t.Cleanup(embedded.Close)
	for name, ours := range map[string]*tls.Config{
		"with":    {RootCAs: authority, Certificates: []tls.Certificate{certificate}},
		"without": {RootCAs: authority},
	} {
		client, err := ratelimit.Open("rediss://"+embedded.Addr(), ours)
		kit.Check(t, err)
		if err := client.Ping(t.Context()).Err(); (err == nil) != (name == "with") {
			t.Errorf("%s a certificate: %v", name, err)
		}
		_ = client.Close()
	}
}

func TestOpenSetsShortTimeouts(t *testing.T) {
	// What the script promises makes one retry safe; more would only add to the silence.
	type settings struct {
		Dial, Read, Write time.Duration
		Retries, Dials    int
		Context           bool
	}
	want := func(call time.Duration) settings { return settings{2 * time.Second, call, call, 1, 1, true} }
	of := func(client redis.UniversalClient) (got settings) {
		switch client := client.(type) {
		case *redis.Client:
			o := client.Options()
			got = settings{o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled}
		case *redis.ClusterClient:
			o := client.Options()
			got = settings{o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled}
		}
		return got
	}
	for _, url := range []string{
		"redis://localhost:6379/3?read_timeout=1h&max_retries=9", "rediss://localhost",
		"redis://a:7000?addr=b:7000&addr=c:7000&dial_timeout=1h", "redis://s1:26379/2?master_name=main&addr=s2:26379",
	} {
		if difference := cmp.Diff(want(500*time.Millisecond), of(kit.OpenRedis(t, url))); difference != "" {
			t.Errorf("%s of a worker (-want +got):\n%s", url, difference)
		}
		client, err := ratelimit.Open(url, nil)
		kit.Check(t, err)
		if difference := cmp.Diff(want(5*time.Second), of(client)); difference != "" {
			t.Errorf("%s of a command (-want +got):\n%s", url, difference)
		}
		kit.Check(t, client.Close())
	}
}

func TestOpenReadsDatabaseAndUser(t *testing.T) {
	client := kit.OpenRedis(t, "redis://somebody:s3cret-word@localhost:7001/3").(*redis.Client).Options()
	if client.Addr != "localhost:7001" || client.DB != 3 || client.Username != "somebody" || client.Password != "s3cret-word" {
		t.Errorf("%s, database %d, user %q", client.Addr, client.DB, client.Username)
	}
	cluster := kit.OpenRedis(t, "rediss://somebody:s3cret-word@a:7000?addr=b:7000").(*redis.ClusterClient).Options()
	if !cmp.Equal(cluster.Addrs, []string{"a:7000", "b:7000"}) || cluster.Password != "s3cret-word" || cluster.TLSConfig == nil {
		t.Errorf("nodes %v, TLS %t", cluster.Addrs, cluster.TLSConfig != nil)
	}
}

func TestOpenErrorsShowNoPartOfTheURL(t *testing.T) {
	for _, url := range []string{
		"", "localhost:6379", "s3cret-word@localhost", "http://:s3cret-word@localhost", "redis://", "redis:///3",
		"redis://:s3cret-word@localhost:port", "redis://:s3cret-word@localhost/db", "redis://:s3cret-word@localhost/1/2",
		"redis://:s3cret-word%zz@localhost", "redis://:s3cret-word@localhost?dial_timeout=s3cret-word", "redis://:s3cret-word@localhost?no=such",
		"redis://:s3cret-word@localhost?addr=b:1&no=such", "http://:s3cret-word@localhost?addr=b:1",
		"redis://:s3cret-word@localhost?master_name=m&no=such", "http://:s3cret-word@localhost?master_name=m",
		"redis://us er:s3cret-word@localhost", "\x7f://s3cret-word",
	} {
		client, err := ratelimit.Open(url, nil)
		if err == nil {
			_ = client.Close()
			t.Errorf("%q was taken", url)
			continue
		}
		if strings.Contains(err.Error(), "s3cret-word") || !strings.Contains(err.Error(), "expected redis://[user:password@]host:port/db") {
			t.Errorf("%q: %v", url, err)
		}
	}
	if _, err := ratelimit.Open("redis://:s3cret-word@localhost", &tls.Config{}); err == nil || strings.Contains(err.Error(), "s3cret-word") || !strings.Contains(err.Error(), "expected a rediss:// URL") {
		t.Errorf("TLS files beside redis://: %v", err)
	}
}

func TestErrorsHideThePassword(t *testing.T) {
	for name, url := range map[string]string{
		"one server": "redis://somebody:s3cret-word@" + kit.FreeAddr(t), "TLS": "rediss://somebody:s3cret-word@" + kit.FreeAddr(t),
		"cluster":  fmt.Sprintf("redis://somebody:s3cret-word@%s?addr=%s", kit.FreeAddr(t), kit.FreeAddr(t)),
		"sentinel": "redis://somebody:s3cret-word@" + kit.FreeAddr(t) + "?master_name=main",
	} {
		within(t, func() {
			if err := limiterAt(t, url).Check(t.Context()); err == nil || strings.Contains(err.Error(), "s3cret-word") {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// selfSigned is a certificate for 127.0.0.1 that is its own authority.
func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	kit.Check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	kit.Check(t, err)
	parsed, err := x509.ParseCertificate(der)
	kit.Check(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}
