package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"notifier/internal/ratelimit"
	"notifier/internal/redistest"
	"notifier/internal/testkit"
)

// fleet is several replicas of notifier that use the same store, and know of each other by heartbeats.
type fleet struct {
	t   testing.TB
	url string

	mu    sync.Mutex
	alive []string
}

// member is one of them.
type member struct {
	caller
	name string
	log  *observer.ObservedLogs
	kill func() // ends its healing, as the death of the process would; the others do not know it yet
}

func newFleet(t testing.TB, url string) *fleet { return &fleet{t: t, url: url} }

// peers are the replicas with a heartbeat.
func (f *fleet) peers() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.alive)
}

// seen lets all know of a replica.
func (f *fleet) seen(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.alive = append(f.alive, name)
}

// join starts a replica and waits until it may decide.
func (f *fleet) join(rules ratelimit.Rules, dedupe time.Duration) *member {
	f.t.Helper()
	f.mu.Lock()
	name := fmt.Sprint("replica-", len(f.alive)+1)
	f.alive = append(f.alive, name)
	f.mu.Unlock()
	m := f.start(name, rules, dedupe, ratelimit.Healing{Peers: f.peers})
	testkit.EventuallyNil(f.t, func() error { return m.Ready(f.t.Context()) })
	return m
}

// start starts a replica.
func (f *fleet) start(name string, rules ratelimit.Rules, dedupe time.Duration, config ratelimit.Healing) *member {
	f.t.Helper()
	client, guard, err := ratelimit.OpenGuarded(f.url, nil)
	testkit.Check(f.t, err)
	f.t.Cleanup(func() { _ = client.Close() })
	limiter, err := ratelimit.New(client, "n", rules, dedupe)
	testkit.Check(f.t, err)
	core, lines := observer.New(zapcore.DebugLevel)
	config.Replica, config.Log = name, zap.New(core)
	healer, err := ratelimit.NewHealer(limiter, guard, config)
	testkit.Check(f.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); healer.Run(ctx) }()
	kill := func() { cancel(); <-ended }
	f.t.Cleanup(kill)
	return &member{caller: caller{Limiter: limiter, t: f.t}, name: name, log: lines, kill: kill}
}

// printLog shows what a replica has logged, where the test has failed.
func (m *member) printLog() {
	if m.t.Failed() {
		for _, line := range m.log.All() {
			m.t.Log(m.name, line.Time.Format(time.TimeOnly), line.Message, line.ContextMap())
		}
	}
}

// fill lets a replica admit events of a category until the limit refuses one, and returns how many it admitted.
func (m *member) fill(prefix, category string) int {
	m.t.Helper()
	for n := 0; ; n++ {
		if m.decided(event(fmt.Sprint(prefix, n), category)).Outcome != ratelimit.Admitted {
			return n
		}
	}
}

// The mark of a healed store is in the register, and is not taken for an entry there that is too old.
func TestTheMarkOfAHealedStoreStays(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		m := newFleet(t, s.url()).join(testkit.Rules("9/1h", "9/1h", ""), time.Hour)
		for i := range 3 {
			m.ForgetIndexed() // each is followed by tidy.lua
			m.want(ratelimit.Admitted, event(fmt.Sprint("e", i), "a"))
		}
		if marked := s.ZScore(t.Context(), "{n}:register", " healed").Val(); marked < 1<<52 || marked >= 1<<53 {
			t.Errorf("the mark is %.0f, expected a number later than all times", marked)
		}
	})
}

func TestAnEmptiedStoreGetsBackWhatReplicasRemember(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]string{"exact": "40/30m", "buckets": "40/30m:1m", "fixed": "40/24h:fixed"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := onProcess(t)
			f := newFleet(t, s.server.URL())
			rules := testkit.Rules(limit, limit, "")
			rules.Group = mustParse(limit)
			a, b := f.join(rules, day), f.join(rules, day)
			for i := range 10 {
				a.want(ratelimit.Admitted, event(fmt.Sprint("a", i), "x.a"))
				b.want(ratelimit.Admitted, event(fmt.Sprint("b", i), "x.b"))
			}
			testkit.Check(t, s.FlushAll(t.Context()).Err())
			if n := a.fill("more-", "x.a"); n != 20 {
				t.Errorf("%d more are admitted, expected 20", n)
			}
			if got := b.decided(event("another", "x.b")); got.Outcome == ratelimit.Admitted {
				t.Errorf("%+v", got)
			}
			b.want(ratelimit.Admitted, event("b1", "x.b")) // in flight as before
			b.want(ratelimit.Duplicate, by("another delivery", event("b1", "x.b")))
		})
	}
}

// A connection to a server that is a replica now is refused: it would outlive its promotion.
func TestAConnectionToAReplicaIsRefused(t *testing.T) {
	t.Parallel()
	primary := redistest.StartProcess(t)
	host, port, err := net.SplitHostPort(primary.Addr)
	testkit.Check(t, err)
	replica := redistest.StartProcess(t, "--replicaof", host+" "+port)
	m := newFleet(t, replica.URL()).start("r", testkit.Rules("9/1h", "9/1h", ""), day, ratelimit.Healing{})
	testkit.Eventually(t, "it says that this is a replica", func() bool {
		err := m.Ready(t.Context())
		return err != nil && strings.Contains(err.Error(), "connected to a replica")
	})
	testkit.Check(t, replica.Client(t).Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	m.healedAgain()
}

// Without the permission to ask which store it is, nothing is put back, and a worker says so.
func TestWithoutInfoNothingIsPutBack(t *testing.T) {
	t.Parallel()
	server := redistest.StartProcess(t)
	server.SetUser(t, "secret", "blind", "~*", "+@all", "-info")
	url := strings.Replace(server.URL(), "redis://", "redis://blind:secret@", 1)
	m := newFleet(t, url).start("r", testkit.Rules("2/1h", "2/1h", ""), day, ratelimit.Healing{})
	testkit.EventuallyNil(t, func() error { return m.Ready(t.Context()) })
	m.want(ratelimit.Admitted, events(2, "e", "a")...)
	testkit.Check(t, server.Client(t).FlushAll(t.Context()).Err())
	m.want(ratelimit.Admitted, events(2, "f", "a")...)
	if lines := m.log.FilterMessageSnippet("may not run INFO").Len(); lines != 1 {
		t.Errorf("%d lines, expected one", lines)
	}
}

// A store that is emptied while it is healed is healed again, with all that was put back before.
func TestAStoreThatIsEmptiedWhileItIsHealed(t *testing.T) {
	t.Parallel()
	s := onProcess(t)
	f := newFleet(t, s.server.URL())
	rules := testkit.Rules("40/30m", "40/30m", "")
	a := f.join(rules, day)
	empties := 0
	b := f.start("b", rules, day, ratelimit.Healing{Peers: f.peers, PutBack: []func(context.Context, *redis.Conn) error{
		func(ctx context.Context, store *redis.Conn) error {
			if empties++; empties != 2 { // not the first time, which is its start
				return nil
			}
			time.Sleep(100 * time.Millisecond) // the other one is done by then
			return store.FlushAll(ctx).Err()
		},
	}})
	b.healedAgain()
	f.seen("b")
	a.want(ratelimit.Admitted, events(10, "a", "x")...)
	b.want(ratelimit.Admitted, events(10, "b", "x")...)
	testkit.Check(t, s.FlushAll(t.Context()).Err())
	b.healedAgain()
	if n := b.fill("more", "x"); n != 20 {
		t.Errorf("%d more are admitted, expected 20", n)
	}
	if empties < 3 {
		t.Errorf("%d healings, expected 3 or more", empties)
	}
}

// A replica that starts on a store that has forgotten everything does not decide before the others have put back what they know.
func TestAReplicaThatJoinsWaitsForStrangers(t *testing.T) {
	t.Parallel()
	s := onProcess(t)
	f := newFleet(t, s.server.URL())
	rules := testkit.Rules("10/30m", "10/30m", "")
	a := f.join(rules, day)
	a.want(ratelimit.Admitted, events(10, "a", "x")...)
	testkit.Check(t, s.FlushAll(t.Context()).Err())
	b := f.start("newcomer", rules, day, ratelimit.Healing{}) // it knows nobody
	b.want(ratelimit.Category, event("new", "x"))
}

// A Cluster: each node is asked, one of them has the keys, and its replica takes over.
func TestAClusterIsHealed(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	owner := cluster.Owner(t, "{n}")
	replica := cluster.AddReplica(t, owner)
	f := newFleet(t, cluster.URL())
	rules := testkit.Rules("30/30m", "30/30m", "")
	a, b := f.join(rules, day), f.join(rules, day)
	a.want(ratelimit.Admitted, events(5, "a", "x")...)
	b.want(ratelimit.Admitted, events(5, "b", "x")...)
	testkit.Check(t, owner.Client(t).FlushAll(t.Context()).Err())
	for _, m := range []*member{a, b} {
		if got := m.decided(event("after the loss of "+m.name, "x")); got.Outcome != ratelimit.Admitted {
			t.Errorf("%+v", got)
		}
	}
	cluster.Promote(t, replica)
	if n := a.fill("more", "x"); n != 18 {
		t.Errorf("%d more are admitted, expected 18", n)
	}
}

// A store that has the mark of another generation, as a replica has that was promoted, decides nothing on a connection made since.
func TestACopyOfAHealedStoreIsNotHealed(t *testing.T) {
	t.Parallel()
	s := onProcess(t)
	m := newFleet(t, s.server.URL()).join(testkit.Rules("9/1h", "9/1h", ""), day)
	m.kill() // nobody heals the next one
	testkit.Check(t, s.Save(t.Context()).Err())
	s.server.Stop(t)
	s.server.Restart(t)
	testkit.Eventually(t, "it is not healed", func() bool { return errors.Is(m.Ready(t.Context()), ratelimit.ErrHealing) })
	if s.ZScore(t.Context(), "{n}:register", " healed").Val() == 0 {
		t.Error("it has no mark, expected the one of the generation before")
	}
}
