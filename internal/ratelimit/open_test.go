package ratelimit_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

func TestTLSOfOneServer(t *testing.T) {
	ours := kit.NewAuthority(t, "ours")
	authority := ours.Pool()
	certificate, err := tls.LoadX509KeyPair(ours.Issue(t, "127.0.0.1"))
	kit.Check(t, err)
	embedded := miniredis.NewMiniRedis()
	kit.Check(t, embedded.StartTLS(&tls.Config{
		Certificates: []tls.Certificate{certificate},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: authority,
	}))
	t.Cleanup(embedded.Close)
	for name, test := range map[string]struct {
		config *tls.Config
		want   string
	}{
		"with both":             {&tls.Config{RootCAs: authority, Certificates: []tls.Certificate{certificate}}, ""},
		"without a certificate": {&tls.Config{RootCAs: authority}, "certificate"},
		"another authority":     {&tls.Config{Certificates: []tls.Certificate{certificate}}, "unknown authority"},
	} {
		client, err := ratelimit.Open("rediss://"+embedded.Addr(), test.config)
		kit.Check(t, err)
		err = client.Ping(t.Context()).Err()
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, expected %q", name, err, test.want)
		}
		_ = client.Close()
	}
	plain := limiterAt(t, "redis://"+embedded.Addr())
	if decisions, err := plain.Admit(t.Context(), events(1, "e", "a")); err == nil || decisions != nil {
		t.Errorf("without TLS: %v, %v", decisions, err)
	}
}

func TestOpenSetsShortTimeouts(t *testing.T) {
	// Scripts are idempotent, so one retry is safe. More retries would only delay the error.
	type settings struct {
		Dial, Read, Write time.Duration
		Retries, Dials    int
		Context           bool
		Pipelines         int
	}
	want := func(dial, call time.Duration) settings { return settings{dial, call, call, 1, 1, true, -1} }
	of := func(client redis.UniversalClient) (got settings) {
		switch client := client.(type) {
		case *redis.Client:
			o := client.Options()
			got = settings{
				o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.MaxRetries, o.DialerRetries,
				o.ContextTimeoutEnabled, o.PipelinePoolSize,
			}
		case *redis.ClusterClient:
			o := client.Options()
			got = settings{
				o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.MaxRetries, o.DialerRetries,
				o.ContextTimeoutEnabled, o.PipelinePoolSize,
			}
			// A Cluster replaces a dead server within seconds.
			if lookups := o.ClusterStateReloadInterval; lookups != time.Second {
				t.Errorf("the servers of a Cluster are looked up every %s", lookups)
			}
		}
		return got
	}
	for url, steps := range map[string]time.Duration{ // round trips that making a connection may take
		"redis://localhost:6379/3?read_timeout=1h&max_retries=9": 3, "rediss://localhost": 3,
		"redis://a:7000?addr=b:7000&addr=c:7000&dial_timeout=1h": 3, "redis://s1:26379/2?master_name=main&addr=s2:26379": 10,
	} {
		if difference := cmp.Diff(want(steps*500*time.Millisecond, 500*time.Millisecond), of(kit.OpenRedis(t, url))); difference != "" {
			t.Errorf("%s of a worker (-want +got):\n%s", url, difference)
		}
		client, err := ratelimit.Open(url, nil)
		kit.Check(t, err)
		if difference := cmp.Diff(want(steps*2*time.Second, 5*time.Second), of(client)); difference != "" {
			t.Errorf("%s of a command (-want +got):\n%s", url, difference)
		}
		kit.Check(t, client.Close())
	}
}

func TestSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "redis.sock")
	s, _ := onFleet(t, "--unixsocket", path)
	s.server.SetUser(t, "s3cret-word", "me", "~*", "+@all")
	m := newFleet(t, "unix://me:s3cret-word@"+path).join(kit.Rules("9/1h", "9/1h", ""), day)
	m.admits(event("e", "a"))
	if options := kit.OpenRedis(t, "unix://"+path+"?db=3").(*redis.Client).Options(); options.Addr != path || options.DB != 3 {
		t.Errorf("%+v", options)
	}
	for _, url := range []string{"unix://", "unix://host" + path, "unix://" + path + "?master_name=main", "unix://" + path + "?addr=b:1"} {
		if _, err := ratelimit.Open(url, nil); err == nil {
			t.Errorf("%s was taken", url)
		}
	}
	if _, err := ratelimit.Open("unix://"+path, &tls.Config{}); err == nil {
		t.Error("TLS files were taken for a socket")
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

// at returns the identity of a server. Its certificate is for these names, or for the address if there are no
// names.
func at(address string, names ...string) redistest.Identity {
	if len(names) == 0 {
		names = []string{address}
	}
	return redistest.Identity{Address: address, Names: names}
}

// on returns the address of a server with another name for its host.
func on(host string, server redistest.TLS) string {
	_, port, _ := net.SplitHostPort(server.Addr)
	return net.JoinHostPort(host, port)
}

// openTLS returns the limiter of a worker that trusts one authority.
func openTLS(t *testing.T, url string, trusted *kit.Authority) *ratelimit.Limiter {
	t.Helper()
	client, _, err := ratelimit.OpenGuarded(url, &tls.Config{RootCAs: trusted.Pool()}, 8)
	kit.Check(t, err)
	t.Cleanup(func() { _ = client.Close() })
	limiter, err := ratelimit.New(client, "n", kit.Rules("100/30m", "10/30m", ""), day)
	kit.Check(t, err)
	return limiter
}

// refuses expects a limiter to reject the certificate of this server.
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
		for _, node := range nodes { // only one of them owns the keys
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

	// A Sentinel may name any server. Its word does not replace a valid certificate.
	impostor := redistest.StartTLSServer(t, authority, at("127.0.0.3", "127.0.0.4", "elsewhere.example"))
	watcher = redistest.StartTLSSentinel(t, authority, at("127.0.0.2"), impostor)
	refuses[x509.HostnameError](t, url(watcher.Addr), authority, impostor)
}

func TestReadyAndCheckStoreNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := limiterAt(t, s.url())
		if err := limiter.Ready(t.Context()); err != nil {
			t.Errorf("ready: %v", err)
		}
		if err := limiter.Check(t.Context()); err != nil {
			t.Errorf("check: %v", err)
		}
		if got := s.contents(t); got != "" {
			t.Errorf("stored:\n%s", got)
		}
	})
}

const emptyDecision = "*7\r\n$7\r\ndecided\r\n:1795149541123457\r\n:0\r\n*0\r\n*0\r\n*0\r\n*0\r\n"

// A store that reports no version is accepted.
func TestCheckRejectsAnOldRedis(t *testing.T) {
	bulk := func(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }
	for info, refused := range map[string]string{
		bulk("# Server\r\nredis_version:6.2.17\r\nredis_mode:standalone\r\n"): "6.2.17",
		bulk("redis_version:unknown\r\n"):                                     "unknown",
		bulk("redis_version:7.0.0\r\n"):                                       "",
		bulk("redis_version:10.0.1\r\n"):                                      "",
		bulk(""):                                                              "",
		bulk("mystery_version:1.2.3"):                                         "",
		"-ERR section (server) is not supported\r\n":                          "",
		"-NOPERM this user has no permissions to run the 'info' command\r\n":  "",
	} {
		addr := fake(t, map[string]string{"INFO": info, "EVALSHA": emptyDecision})
		err := limiterAt(t, "redis://"+addr).Check(t.Context())
		if refused == "" {
			if err != nil {
				t.Errorf("%q: %v", info, err)
			}
			continue
		}
		want := "version " + refused + ", expected 7.0 or newer"
		if !errors.Is(err, ratelimit.ErrUnsuitable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, expected that it is unsuitable: %s", info, err, want)
		}
	}
}

func TestCheckNamesMissingPermissions(t *testing.T) {
	server := redistest.StartProcess(t)
	admin := server.Client(t)
	for name, test := range map[string]struct {
		rules    []any
		suitable bool
	}{
		"may do all":                        {[]any{"~*", "+@all"}, true},
		"not EVALSHA":                       {[]any{"~*", "+@all", "-evalsha"}, false},
		"EVALSHA, not EVAL, nothing loaded": {[]any{"~*", "+@all", "-eval"}, false},
		"no scripts at all":                 {[]any{"~*", "+@all", "-@scripting"}, false},
		"other keys only":                   {[]any{"~other:*", "+@all"}, false},
		"its own keys only":                 {[]any{"~{n}:*", "+@all"}, true},
		"no INFO":                           {[]any{"~{n}:*", "+@all", "-info"}, true},
	} {
		kit.Check(t, admin.ScriptFlush(t.Context()).Err())
		user := strings.NewReplacer(" ", "-", ",", "").Replace(name)
		kit.Check(t, admin.Do(t.Context(), append([]any{"ACL", "SETUSER", user, "on", ">s3cret-word"}, test.rules...)...).Err())
		limiter := limiterAt(t, fmt.Sprintf("redis://%s:s3cret-word@%s/0", user, server.Addr))
		err := limiter.Check(t.Context())
		if test.suitable && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !test.suitable {
			if !errors.Is(err, ratelimit.ErrUnsuitable) || !strings.Contains(err.Error(), "expected a user that may run EVALSHA and EVAL on {n}:*") {
				t.Errorf("%s: %v, expected that it is unsuitable and what is expected", name, err)
			}
			if decisions, err := limiter.Admit(t.Context(), events(1, "e", "a")); err == nil || decisions != nil {
				t.Errorf("%s: %v, %v", name, decisions, err)
			}
		}
	}
}

func TestWrongPasswordIsNotShown(t *testing.T) {
	server := redistest.StartProcess(t)
	kit.Check(t, server.Client(t).ConfigSet(t.Context(), "requirepass", "right-word").Err())
	for _, url := range []string{"redis://:wrong-word@" + server.Addr, "redis://somebody:wrong-word@" + server.Addr, "redis://" + server.Addr} {
		err := limiterAt(t, url).Check(t.Context())
		if err == nil || strings.Contains(err.Error(), "wrong-word") {
			t.Errorf("%v, expected an error without the password", err)
		}
	}
	limiterAt(t, "redis://:right-word@"+server.Addr).admits(event("e", "a"))
}

// If there are more calls than connections, calls take turns, even if one waits longer than a call may take.
func TestAWaitForAConnectionIsNoOutage(t *testing.T) {
	t.Parallel()
	proxy := redistest.StartProxy(t, redistest.StartProcess(t).Addr)
	proxy.Delay(200 * time.Millisecond)
	client, _, err := ratelimit.OpenGuarded("redis://"+proxy.Addr, nil, 1)
	kit.Check(t, err)
	t.Cleanup(func() { _ = client.Close() })
	var calls sync.WaitGroup
	for range 20 * client.(*redis.Client).Options().PoolSize {
		calls.Go(func() {
			if err := client.Ping(t.Context()).Err(); errors.Is(err, redis.ErrPoolTimeout) {
				t.Error(err)
			}
		})
	}
	calls.Wait()
}

// fails expects every call to return an error with this reason, and no decision.
func (c caller) fails(why string) {
	c.t.Helper()
	ctx, e := c.t.Context(), event("e", "a")
	for call, attempt := range map[string]func() error{
		"Admit": func() error {
			decisions, err := c.Admit(ctx, []ratelimit.Request{e, event("f", "b")})
			if decisions != nil {
				c.t.Errorf("decided %+v beside the error %v", decisions, err)
			}
			return err
		},
		"Refund": func() error {
			refunded, err := c.Refund(ctx, e, "")
			if refunded {
				c.t.Errorf("refunded beside the error %v", err)
			}
			return err
		},
		"Ready": func() error { return c.Ready(ctx) },
		"Check": func() error { return c.Check(ctx) },
		"Sent":  func() error { return c.Sent(ctx, e) },
	} {
		var err error
		kit.Within(kit.Patience, func() bool { // on a busy machine the call may time out first
			err = attempt()
			return err == nil || !strings.Contains(err.Error(), "timeout")
		})
		if err == nil || !strings.Contains(err.Error(), why) || errors.Is(err, ratelimit.ErrUnsuitable) {
			c.t.Errorf("%s: %v, expected an error that says %q and may pass", call, err, why)
		}
	}
}

// within fails if a call takes more than 5 s, which is longer than the timeouts of a dial and a call allow,
// with room for a slow machine.
func within(t *testing.T, call func()) {
	t.Helper()
	started := time.Now()
	call()
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestRedisDownDecidesNothing(t *testing.T) {
	limiter := limiterAt(t, "redis://"+kit.FreeAddr(t))
	within(t, func() { limiter.fails("connection refused") })
}

func TestCancelledCallEndsAtOnce(t *testing.T) {
	limiter := limiterAt(t, "redis://"+silent(t))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	within(t, func() {
		if _, err := limiter.Admit(ctx, events(1, "e", "a")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, expected the deadline's error", err)
		}
	})
}

func TestReadOnlyReplicaAdmitsNothing(t *testing.T) {
	s := onProcess(t)
	limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
	limiter.admit(event("before", "a"))
	before := s.contents(t)
	kit.Check(t, s.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
	decisions, err := limiter.Admit(t.Context(), events(2, "e", "a"))
	if err == nil || decisions != nil || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("%v, %v; expected an error that says READONLY", decisions, err)
	}
	if got := limiter.dryRun("a", 1); got.Verdict != ratelimit.Admitted {
		t.Errorf("dry run: %+v, expected an admission", got)
	}
	if err := limiter.Sent(t.Context(), event("before", "a")); err == nil {
		t.Error("recorded as sent on a replica")
	}
	s.unchanged(t, before)
	kit.Check(t, s.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	limiter.admits(events(2, "e", "a")...)
}

func TestOutOfMemoryAdmitsNothing(t *testing.T) {
	s := onProcess(t, "--maxmemory-policy", "noeviction")
	limiter := s.limiter(t, kit.Rules("100/30m", "2/30m", ""), day)
	limiter.admit(events(2, "before", "a")...)
	before := s.contents(t)
	s.ConfigSet(t.Context(), "maxmemory", "1")
	decisions, err := limiter.Admit(t.Context(), events(2, "e", "b"))
	if err == nil || decisions != nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("%v, %v; expected an error that says OOM", decisions, err)
	}
	if got := limiter.dryRun("b", 1); got.Verdict != ratelimit.Admitted {
		t.Errorf("dry run: %+v, expected an admission", got)
	}
	s.unchanged(t, before)
	s.ConfigSet(t.Context(), "maxmemory", "0")
	limiter.admits(events(2, "e", "b")...)
	limiter.want(ratelimit.Category, event("x", "a"))
}

// fake starts a server that speaks the Redis protocol, and returns its address. The key of a raw reply is a
// command's name, or its name and first argument. All other commands fail.
func fake(t *testing.T, replies map[string]string) string {
	t.Helper()
	listening, err := server.NewServer("127.0.0.1:0")
	kit.Check(t, err)
	t.Cleanup(listening.Close)
	listening.SetPreHook(func(peer *server.Peer, command string, arguments ...string) bool {
		reply, found := replies[command]
		if len(arguments) > 0 && !found {
			reply, found = replies[command+" "+arguments[0]]
		}
		if found {
			peer.WriteRaw(reply)
		}
		return found
	})
	return listening.Addr().String()
}

// silent starts a server that accepts connections and never replies.
func silent(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Check(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = connection.Close() })
		}
	}()
	return listener.Addr().String()
}

// limiterAt returns a limiter under 100/30m and 10/30m for a URL.
func limiterAt(t *testing.T, url string) caller {
	t.Helper()
	limiter, err := ratelimit.New(kit.OpenRedis(t, url), "n", kit.Rules("100/30m", "10/30m", ""), day)
	kit.Check(t, err)
	return caller{Limiter: limiter, t: t}
}
