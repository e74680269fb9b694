package ratelimit_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// fleet starts workers that share a store.
type fleet struct {
	t       testing.TB
	url     string
	started int
}

// member is one worker of a fleet.
type member struct {
	caller
	name   string
	log    *observer.ObservedLogs
	healer *ratelimit.Healer
	run    func() // starts its healer
	kill   func() // stops its healer, as a crash of the worker would
}

func newFleet(t testing.TB, url string) *fleet { return &fleet{t: t, url: url} }

// onFleet starts a redis-server process, marks its store as healed, and returns a fleet without workers.
func onFleet(t *testing.T, extra ...string) (*store, *fleet) {
	t.Helper()
	s := onProcess(t, extra...)
	s.server.Healed(t, "n")
	return s, newFleet(t, s.server.URL())
}

// eachFleet runs a test for each limit, by the name of its form, on separate stores.
func eachFleet(t *testing.T, limits map[string]string, test func(t *testing.T, s *store, f *fleet, rules ratelimit.Rules)) {
	t.Helper()
	t.Parallel()
	for name, limit := range limits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, f := onFleet(t)
			test(t, s, f, kit.Rules(limit, limit, ""))
		})
	}
}

// join starts a worker and waits until it may decide.
func (f *fleet) join(rules ratelimit.Rules, dedupe time.Duration) *member {
	f.t.Helper()
	m := f.start(rules, dedupe, ratelimit.Healing{})
	m.healedAgain()
	return m
}

func (f *fleet) start(rules ratelimit.Rules, dedupe time.Duration, config ratelimit.Healing) *member {
	f.t.Helper()
	client, guard, err := ratelimit.OpenGuarded(f.url, nil, 8)
	kit.Check(f.t, err)
	f.t.Cleanup(func() { _ = client.Close() })
	return f.startOn(client, guard, rules, dedupe, config)
}

// startOn starts a worker that decides through the client and heals the store behind the guard.
func (f *fleet) startOn(
	client redis.UniversalClient, guard *ratelimit.Guard, rules ratelimit.Rules, dedupe time.Duration,
	config ratelimit.Healing,
) *member {
	f.t.Helper()
	limiter, err := ratelimit.New(client, "n", rules, dedupe)
	kit.Check(f.t, err)
	f.started++
	core, lines := observer.New(zapcore.DebugLevel)
	config.Replica, config.Log = fmt.Sprint("replica-", f.started), zap.New(core)
	healer, err := ratelimit.NewHealer(limiter, guard, config)
	kit.Check(f.t, err)
	m := &member{caller: caller{Limiter: limiter, t: f.t}, name: config.Replica, log: lines, healer: healer}
	m.run = func() {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { defer close(ended); healer.Run(ctx) }()
		m.kill = func() { cancel(); <-ended }
	}
	m.run()
	f.t.Cleanup(func() { m.kill() })
	return m
}

// healedAgain waits until the worker may decide.
func (m *member) healedAgain() {
	m.t.Helper()
	kit.EventuallyNil(m.t, func() error { return m.Ready(m.t.Context()) })
}

// printLog prints the worker's log if the test has failed.
func (m *member) printLog() {
	if m.t.Failed() {
		for _, line := range m.log.All() {
			m.t.Log(m.name, line.Time.Format(time.TimeOnly), line.Message, line.ContextMap())
		}
	}
}

// fill admits events of a category until one is refused, and returns the number of admissions.
func (m *member) fill(prefix, category string) int {
	m.t.Helper()
	for n := 0; ; n++ {
		if m.decided(event(fmt.Sprint(prefix, n), category)).Verdict != ratelimit.Admitted {
			return n
		}
	}
}

// token returns the token of the store, or "" without one.
func (s *store) token(t testing.TB) string {
	t.Helper()
	return s.HGet(t.Context(), "{n}:meta", "token").Val()
}

// tokenMade returns the time in the store's token.
func (s *store) tokenMade(t testing.TB) time.Time {
	t.Helper()
	_, made, _ := strings.Cut(s.token(t), " ")
	at, err := strconv.ParseInt(made, 10, 64)
	kit.Check(t, err)
	return time.UnixMicro(at)
}

// awaitToken waits until a worker has noticed that the store is new.
func (s *store) awaitToken(t testing.TB) {
	t.Helper()
	kit.Eventually(t, "the store has a token", func() bool { return s.token(t) != "" })
}

// A store that is emptied again during its quarantine is still restored completely.
func TestStoreEmptiedTwiceInAQuarantine(t *testing.T) {
	eachFleet(t, map[string]string{"exact": "60/30m", "buckets": "60/30m:1m"}, func(t *testing.T, s *store, f *fleet, rules ratelimit.Rules) {
		var replicas []*member
		for range 3 {
			replicas = append(replicas, f.join(rules, day))
		}
		admitted := 0
		for _, m := range replicas {
			m.admits(events(10, m.name, "x")...)
			admitted += 10
		}
		for range 2 {
			s.empty(t)
			s.awaitToken(t)
		}
		for _, m := range replicas { // while the others are idle, their slots are restored too
			admitted += m.fill("more of "+m.name+" ", "x")
		}
		if admitted != 60 {
			t.Errorf("%d are admitted, expected 60", admitted)
		}
	})
}

// A worker that was frozen during a quarantine decides nothing before it has restored its admissions.
func TestFrozenWorkerRestoresFirst(t *testing.T) {
	eachFleet(t, forms, func(t *testing.T, s *store, f *fleet, rules ratelimit.Rules) {
		a, frozen := f.join(rules, day), f.join(rules, day)
		a.admits(events(10, "a", "x")...)
		frozen.admits(events(10, "f", "x")...)
		frozen.kill()
		s.empty(t)
		a.admits(event("a", "x"))
		s.wantUsed(t, rules, 11) // without the admissions of the frozen worker
		before := s.everything(t)
		e := event("f-1", "x")
		for what, call := range map[string]func(context.Context) error{
			"admit": func(ctx context.Context) error {
				_, err := frozen.Admit(ctx, []ratelimit.Request{e, event("new", "x")})
				return err
			},
			"begin": func(ctx context.Context) error {
				_, err := frozen.Begin(ctx, ratelimit.Post{Request: e, Channel: "C1", Name: "p", Longest: time.Second})
				return err
			},
			"refund": func(ctx context.Context) error {
				_, err := frozen.Refund(ctx, event("f-2", "x"), "")
				return err
			},
			"sent": func(ctx context.Context) error { return frozen.Sent(ctx, event("f-3", "x")) },
		} {
			// A busy Redis may miss the deadline, so each call is repeated.
			kit.Eventually(t, what+" has to restore first", func() bool {
				// Without a deadline, the call would wait longer for the stopped healer.
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				return errors.Is(call(ctx), ratelimit.ErrHealing)
			})
		}
		s.sameAs(t, before)
		frozen.run()
		frozen.admits(e) // in flight as before
		frozen.admits(event("new", "x"))
		frozen.duplicates(event("f-3", "x")) // recorded as sent in its journal
		s.wantUsed(t, rules, 22)
	})
}

// A refund is not undone by a later loss of the store, also if the store was lost between post and refund.
func TestRefundAfterALossIsNotUndone(t *testing.T) {
	eachFleet(t, forms, func(t *testing.T, s *store, f *fleet, rules ratelimit.Rules) {
		m := f.join(rules, day)
		e, kept := event("e", "x"), event("kept", "x")
		m.admits(kept, e)
		m.posts(1, e, "", "p1")
		s.empty(t)
		if !m.refundAfter(e, "p1") {
			t.Error("nothing was refunded")
		}
		for range 2 {
			s.wantUsed(t, rules, 1) // only the other event
			s.empty(t)
			m.admits(kept)
		}
	})
}

// meanwhile calls do once, after Redis has run a script and before the caller gets the reply.
type meanwhile struct{ do func() }

func (m *meanwhile) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *meanwhile) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (m *meanwhile) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		err := next(ctx, command)
		if do := m.do; do != nil && err == nil && strings.HasPrefix(command.Name(), "eval") {
			m.do = nil
			do()
		}
		return err
	}
}

// A reply from a store that has been lost and healed since is discarded: its admissions are in no store.
func TestAnswerOfALostStoreIsDiscarded(t *testing.T) {
	eachFleet(t, forms, func(t *testing.T, s *store, f *fleet, rules ratelimit.Rules) {
		client, guard, err := ratelimit.OpenGuarded(f.url, nil, 8)
		kit.Check(t, err)
		t.Cleanup(func() { _ = client.Close() })
		m := f.startOn(client, guard, rules, day, ratelimit.Healing{})
		m.healedAgain()
		refunded := event("refunded", "x")
		m.admits(event("before", "x"), refunded)
		during := &meanwhile{}
		client.AddHook(during)
		lose := func() {
			s.empty(t)
			healings := m.healings() + 1
			kit.Eventually(t, "the store is healed", func() bool { return m.healings() == healings })
		}

		during.do = lose
		m.admits(event("e", "x"))
		s.wantUsed(t, rules, 3)
		during.do = lose
		if m.refund(refunded); s.used(t, rules) != 2 {
			t.Errorf("%d slots are taken after the refund, expected 2", s.used(t, rules))
		}
		during.do = lose
		m.posts(1, event("e", "x"), "", "p1")
		record, _, err := m.InFlight(t.Context(), event("e", "x"))
		if record.Posts != 1 || record.LastName != "p1" {
			t.Errorf("%+v, %v; expected that the post is recorded", record, err)
		}
		during.do = lose
		m.sent(event("e", "x"))
		m.duplicates(event("e", "x"))
	})
}

// healings counts the losses that the worker has healed.
func (m *member) healings() int {
	return m.log.FilterMessageSnippet("restored what Redis had forgotten").Len()
}

// The healer checks the server's role before it writes: a Redis replica may accept writes, but loses them.
func TestHealerWritesToNoReplica(t *testing.T) {
	t.Parallel()
	s, f := onFleet(t)
	replica := s.server.StartReplica(t)
	there := onServer(t, replica)
	kit.Check(t, there.ConfigSet(t.Context(), "replica-read-only", "no").Err())
	before := there.token(t)
	f.url = replica.URL()
	m := f.start(kit.Rules("9/30m", "9/30m", ""), day, ratelimit.Healing{})
	kit.Eventually(t, "it names the replica", func() bool {
		return m.log.FilterField(zap.Error(ratelimit.ErrReplica)).Len() > 0
	})
	if after := there.token(t); after != before {
		t.Errorf("the replica's token is %q, expected %q as before", after, before)
	}
}

// An old primary that is still reachable has another token. It decides nothing for workers that have healed
// the new one.
func TestOldPrimaryDecidesNothing(t *testing.T) {
	t.Parallel()
	s, f := onFleet(t)
	rules := kit.Rules("9/30m", "9/30m", "")
	f.join(rules, day).admits(event("before", "x"))
	promoted := s.server.StartReplica(t)
	promoted.Part(t)
	_, guard, err := ratelimit.OpenGuarded(promoted.URL(), nil, 8)
	kit.Check(t, err)
	// Its calls still reach the old primary.
	m := f.startOn(s.connect(t), guard, rules, day, ratelimit.Healing{})
	e := event("e", "x")
	s.unlessChanged(t, func() {
		kit.Eventually(t, "the new primary has a token of its own", func() bool {
			there := onServer(t, promoted)
			return there.token(t) != "" && there.token(t) != s.token(t)
		})
		for range 2 {
			if decisions, err := m.Admit(t.Context(), []ratelimit.Request{e}); !errors.Is(err, ratelimit.ErrHealing) {
				t.Errorf("%v, %v; expected that nothing is decided", decisions, err)
			}
		}
		if decision, err := m.DryRun(t.Context(), "x", 1); !errors.Is(err, ratelimit.ErrHealing) {
			t.Errorf("%+v, %v; expected no verdict", decision, err)
		}
		if _, err := m.Refund(t.Context(), event("before", "x"), ""); !errors.Is(err, ratelimit.ErrHealing) {
			t.Errorf("%v; expected that nothing is refunded", err)
		}
		if err := m.Sent(t.Context(), event("before", "x")); !errors.Is(err, ratelimit.ErrHealing) {
			t.Errorf("%v; expected that nothing is recorded", err)
		}
		post := ratelimit.Post{Request: event("before", "x"), Channel: "C1", Name: "p", Longest: time.Second}
		if permit, err := m.Begin(t.Context(), post); !errors.Is(err, ratelimit.ErrHealing) {
			t.Errorf("%+v, %v; expected no permit", permit, err)
		}
	})
}

// unlessChanged expects that do changes no event in the store.
func (s *store) unlessChanged(t *testing.T, do func()) {
	t.Helper()
	before := s.everything(t)
	do()
	s.sameAs(t, before)
}

// Slack's reply during a healing is recorded afterwards, because a 429 concerns all workers.
func TestSlacksAnswerWaitsForHealing(t *testing.T) {
	t.Parallel()
	s, f := onFleet(t)
	m := f.join(kit.Rules("9/1h", "9/1h", ""), day)
	m.postsTo(aChannel, "p")
	s.server.Stop(t)
	s.server.Restart(t)
	scope, left, err := m.Answered(t.Context(), ratelimit.Answer{Channel: aChannel, Name: "p", RetryAfter: time.Minute})
	if err != nil || scope != ratelimit.PausedChannel || left != time.Minute {
		t.Errorf("%v for %s, %v; expected that the channel is paused for a minute", scope, left, err)
	}
}

// After a restart that loses nothing, no slot counts twice.
func TestLosslessRestartRestoresNothing(t *testing.T) {
	eachFleet(t, forms, func(t *testing.T, s *store, f *fleet, rules ratelimit.Rules) {
		a, b := f.join(rules, day), f.join(rules, day)
		a.admits(events(5, "a", "x")...)
		b.admits(events(5, "b", "x")...)
		a.admits(costing(event("costly", "x"), 20))
		token := s.token(t)
		for range 2 {
			kit.Check(t, s.Save(t.Context()).Err())
			s.server.Stop(t)
			s.server.Restart(t)
			a.decided(event("a-1", "x")) // in flight
			b.decided(event("b-1", "x"))
			s.wantUsed(t, rules, 30)
		}
		if s.token(t) == token {
			t.Error("the store has the token of before")
		}
	})
}

// The first worker on an empty store waits: the store may have been lost, and other workers may remember
// admissions.
func TestNewStoreIsQuarantined(t *testing.T) {
	t.Parallel()
	s := onProcess(t)
	m := newFleet(t, s.server.URL()).join(kit.Rules("9/1h", "9/1h", ""), day)
	if waited := s.Time(t.Context()).Val().Sub(s.tokenMade(t)); waited < 1500*time.Millisecond {
		t.Errorf("the store was open after %s, expected 1.5s", waited)
	}
	for _, line := range m.log.FilterField(zap.Int64("slots", 0)).All() {
		if took := line.ContextMap()["took_s"].(float64); took < 1.2 {
			t.Errorf("%s after %g s, before the store was open", line.Message, took)
		}
	}
	m.admits(event("e", "a"))
}

// A connection to a Redis replica is refused. Otherwise it would outlive a promotion of the replica without
// another check.
func TestConnectionToAReplicaIsRefused(t *testing.T) {
	t.Parallel()
	primary := redistest.StartProcess(t)
	host, port, err := net.SplitHostPort(primary.Addr)
	kit.Check(t, err)
	replica := redistest.StartProcess(t, "--replicaof", host+" "+port)
	client, guard, err := ratelimit.OpenGuarded(replica.URL(), nil, 8)
	kit.Check(t, err)
	t.Cleanup(func() { _ = client.Close() })
	rules := kit.Rules("9/1h", "9/1h", "")
	m := newFleet(t, replica.URL()).startOn(client, guard, rules, day, ratelimit.Healing{})
	kit.Eventually(t, "it says that this is a replica", func() bool {
		err := m.Ready(t.Context())
		return err != nil && strings.Contains(err.Error(), "connected to a Redis replica")
	})
	if err := client.Ping(t.Context()).Err(); !errors.Is(err, ratelimit.ErrReplica) {
		t.Errorf("%v, expected that no connection is made", err)
	}
	kit.Check(t, replica.Client(t).Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	m.healedAgain()
}

// TestDistantStoreIsHealed puts servers with TLS on another continent.
func TestDistantStoreIsHealed(t *testing.T) {
	t.Parallel()
	const roundTrip = 260 * time.Millisecond
	authority := kit.NewAuthority(t, "ours")
	primary := redistest.StartTLSServer(t, authority, at("127.0.0.2", "127.0.0.1"))
	front := redistest.StartProxy(t, primary.Addr)
	front.Delay(roundTrip)
	watcher := redistest.StartTLSSentinel(t, authority, at("127.0.0.2", "127.0.0.1"), redistest.TLS{Server: primary.Server, Addr: front.Addr})
	watcherFront := redistest.StartProxy(t, watcher.Addr)
	watcherFront.Delay(roundTrip)
	for name, url := range map[string]string{
		"one server": "rediss://" + front.Addr,
		"Sentinel":   "rediss://" + watcherFront.Addr + "?master_name=main",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, guard, err := ratelimit.OpenGuarded(url, &tls.Config{RootCAs: authority.Pool()}, 8)
			kit.Check(t, err)
			t.Cleanup(func() { _ = client.Close() })
			m := newFleet(t, url).startOn(client, guard, kit.Rules("9/1h", "9/1h", ""), day, ratelimit.Healing{})
			m.healedAgain()
			m.want(ratelimit.Admitted, event(name, "a"))
		})
	}
}

// TestWaitForAnUnseenStoreNamesTheReason: the worker's connections stay, and the healer can make none.
func TestWaitForAnUnseenStoreNamesTheReason(t *testing.T) {
	t.Parallel()
	s, f := onFleet(t)
	m := f.join(kit.Rules("9/1h", "9/1h", ""), day)
	m.kill()
	kit.Check(t, s.ConfigSet(t.Context(), "maxclients", "1").Err())
	kit.Check(t, s.FlushAll(t.Context()).Err())
	m.run()
	_, err := m.Admit(t.Context(), events(1, "f", "a"))
	if err == nil || !strings.Contains(err.Error(), "cannot look at the store: ") {
		t.Errorf("%v, expected the reason why the store is not healed", err)
	}
	kit.Check(t, s.ConfigSet(t.Context(), "maxclients", "1000").Err())
	m.healedAgain()
}

// Without INFO a worker restores nothing, and logs that once.
func TestWithoutInfoNothingIsPutBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		arguments []string
		log       string
	}{
		"forbidden": {nil, "may not run INFO"},
		"renamed":   {[]string{"--rename-command", "INFO", ""}, "refuses INFO (ERR unknown command"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.StartProcess(t, test.arguments...)
			server.SetUser(t, "secret", "blind", "~*", "+@all", "-info")
			url := strings.Replace(server.URL(), "redis://", "redis://blind:secret@", 1)
			m := newFleet(t, url).join(kit.Rules("2/1h", "2/1h", ""), day)
			m.admits(events(2, "e", "a")...)
			kit.Check(t, server.Client(t).FlushAll(t.Context()).Err())
			m.admits(events(2, "f", "a")...)
			if lines := m.log.FilterMessageSnippet(test.log).Len(); lines != 1 {
				t.Errorf("%d lines about %q, expected one: %v", lines, test.log, m.log.All())
			}
			kit.Check(t, m.Check(t.Context()))
		})
	}
}

// TestErrorThatPassesIsNoLackOfInfo: else the admissions that a starting server has lost would not be restored.
func TestErrorThatPassesIsNoLackOfInfo(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{
		"LOADING Redis is loading the dataset in memory", "BUSY Redis is busy running a script.",
		"MASTERDOWN Link with MASTER is down", "ERR max number of clients reached",
	} {
		client := redis.NewClient(&redis.Options{Addr: fake(t, map[string]string{"INFO": "-" + reply + "\r\n"}), MaxRetries: -1})
		t.Cleanup(func() { _ = client.Close() })
		info, err := ratelimit.Info(t.Context(), client, "replication")
		if err == nil || errors.As(err, new(ratelimit.NoInfo)) {
			t.Errorf("%s: %v, %v; expected the error", reply, info, err)
		}
	}
}

// TestOneNodeOfACluster: the worker decides while the node has the keys, and says what is wrong.
func TestOneNodeOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	owner, other := cluster.Owner(t, "{n}"), cluster.Other(t, "{n}")
	m := newFleet(t, owner.URL()).join(kit.Rules("9/1h", "9/1h", ""), day)
	m.admits(event("e", "a"))
	kit.Eventually(t, "the log warns", func() bool { return m.log.FilterMessageSnippet(ratelimit.OneNode).Len() == 1 })
	_, err := limiterAt(t, other.URL()).Admit(t.Context(), events(1, "f", "a"))
	if err == nil || !strings.Contains(err.Error(), "MOVED ") || !strings.Contains(err.Error(), ratelimit.OneNode) {
		t.Errorf("%v, expected MOVED with the remedy", err)
	}
	pipeline := kit.OpenRedis(t, other.URL()).Pipeline()
	one := pipeline.HLen(t.Context(), "{n}:meta")
	_, err = pipeline.Exec(t.Context())
	for _, err := range []error{err, one.Err()} {
		if err == nil || !strings.Contains(err.Error(), ratelimit.OneNode) {
			t.Errorf("%v in a pipeline, expected the remedy", err)
		}
	}
	all := newFleet(t, cluster.URL()).join(kit.Rules("9/1h", "9/1h", ""), day)
	all.admits(event("g", "a"))
	if lines := all.log.FilterMessageSnippet(ratelimit.OneNode).Len(); lines > 0 {
		t.Errorf("%d warnings about a whole Cluster", lines)
	}
}

// TestRedisThatEvictsIsReported until its setting is changed.
func TestRedisThatEvictsIsReported(t *testing.T) {
	t.Parallel()
	s, f := onFleet(t, "--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru")
	m := f.join(kit.Rules("9/1h", "9/1h", ""), day)
	kit.Eventually(t, "it is reported", func() bool {
		err := m.Evicts()
		return err != nil && strings.HasPrefix(err.Error(), "maxmemory-policy allkeys-lru: at 64.0 MiB Redis forgets admissions")
	})
	kit.Check(t, s.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	m.kill()
	m.healer.LookAtSettingsAgain()
	m.run()
	kit.Eventually(t, "it is no longer reported", func() bool { return m.Evicts() == nil })
}

// A store that is emptied during its healing is healed again, from the beginning and by all workers.
func TestStoreEmptiedDuringHealing(t *testing.T) {
	t.Parallel()
	s, f := onFleet(t)
	rules := kit.Rules("40/30m", "40/30m", "")
	a := f.join(rules, day)
	healings := 0
	empties := func(ctx context.Context, connection *redis.Conn) error {
		if healings++; healings != 2 { // the first healing is the start of the worker
			return nil
		}
		kit.Eventually(t, "the other one has restored", func() bool {
			return connection.ZCard(ctx, "{n}:global").Val() == 20
		})
		return connection.FlushAll(ctx).Err()
	}
	b := f.start(rules, day, ratelimit.Healing{Restore: empties})
	b.healedAgain()
	a.admits(events(10, "a", "x")...)
	b.admits(events(10, "b", "x")...)
	s.empty(t)
	if n := b.fill("more", "x"); n != 20 {
		t.Errorf("%d more are admitted, expected 20", n)
	}
	b.kill() // its healer no longer writes healings
	if healings < 3 {
		t.Errorf("%d healings, expected 3 or more", healings)
	}
}

// A worker that starts on an emptied store does not decide before the other workers have restored theirs.
func TestJoiningWorkerWaits(t *testing.T) {
	t.Parallel()
	s, f := onFleet(t)
	rules := kit.Rules("10/30m", "10/30m", "")
	f.join(rules, day).admits(events(10, "a", "x")...)
	s.empty(t)
	newcomer := f.start(rules, day, ratelimit.Healing{})
	if got := newcomer.decided(event("new", "x")); got.Verdict == ratelimit.Admitted {
		t.Errorf("%+v, expected that it is refused", got)
	}
}

// In a Cluster, workers heal the node with the keys, and its replica after a promotion.
func TestClusterIsHealed(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	owner := cluster.Owner(t, "{n}")
	replica := cluster.AddReplica(t, owner)
	f := newFleet(t, cluster.URL())
	rules := kit.Rules("30/30m", "30/30m", "")
	a, b := f.join(rules, day), f.join(rules, day)
	a.admits(events(5, "a", "x")...)
	b.admits(events(5, "b", "x")...)
	kit.Check(t, owner.Client(t).FlushAll(t.Context()).Err())
	for _, m := range []*member{a, b} {
		if got := m.decided(event("after the loss of "+m.name, "x")); got.Verdict != ratelimit.Admitted {
			t.Errorf("%+v", got)
		}
	}
	late := newFleet(t, "redis://"+replica.Addr+"?addr="+replica.Addr) // knows only a replica
	late.join(rules, day)
	cluster.Promote(t, replica)
	if n := a.fill("more", "x"); n != 18 {
		t.Errorf("%d more are admitted, expected 18", n)
	}
}

// A store with the token of another generation, as after a promotion, decides nothing on a new connection.
func TestCopyOfAStoreIsNotHealed(t *testing.T) {
	t.Parallel()
	s, f := onFleet(t)
	m := f.join(kit.Rules("9/1h", "9/1h", ""), day)
	m.kill() // the restarted store is not healed
	token := s.token(t)
	kit.Check(t, s.Save(t.Context()).Err())
	s.server.Stop(t)
	s.server.Restart(t)
	kit.Eventually(t, "it is not healed", func() bool {
		return errors.Is(m.Ready(t.Context()), ratelimit.ErrHealing)
	})
	if got := s.token(t); got != token {
		t.Errorf("the token is %q, expected %q, of the generation before", got, token)
	}
}

// The embedded store has no generation. A connection may be checked just before the healer notices and gives
// up. Calls on it must not wait forever.
func TestDoubtAboutAnUnhealableStoreEnds(t *testing.T) {
	t.Parallel()
	embedded := redistest.RunEmbedded(t)
	m := newFleet(t, "redis://"+embedded.Addr()).start(kit.Rules("2/1h", "2/1h", ""), day, ratelimit.Healing{})
	kit.Eventually(t, "it has given up", func() bool {
		return m.log.FilterMessageSnippet("does not name its generation").Len() == 1
	})
	m.healer.Wake()
	kit.Eventually(t, "calls go on", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return m.healer.Healed(ctx)
	})
	m.admits(events(2, "e", "a")...)
	embedded.FlushAll()
	m.admits(events(2, "f", "a")...)
}
