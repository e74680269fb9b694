package steering_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"notifier/internal/ratelimit"
	"notifier/internal/steering"
	"notifier/test/kit"
	"notifier/test/redistest"
)

func TestMain(m *testing.M) {
	kit.QuietRedis()
	redistest.Main(m)
}

const key = "{n}:steering"

// world is a Redis, and a Store over it.
type world struct {
	*testing.T
	server *redistest.Server
	client redis.UniversalClient
	store  *steering.Store
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	server := redistest.Start(t)
	client := server.ClientFor(t, "{n}")
	store, err := steering.NewStore(client, "n")
	kit.Check(t, err)
	return &world{t, server, client, store}
}

func (w *world) mute(pattern string, length time.Duration) steering.Order {
	w.Helper()
	order, err := steering.NewMute(pattern, "alice@ops", "because")
	kit.Check(w.T, err)
	return w.set(order, length)
}

func (w *world) limit(scope, limit string, length time.Duration) steering.Order {
	w.Helper()
	order, err := steering.NewLimit(scope, limit, "alice@ops", "because")
	kit.Check(w.T, err)
	return w.set(order, length)
}

func (w *world) set(order steering.Order, length time.Duration) steering.Order {
	w.Helper()
	order, _, err := w.store.Set(w.Context(), order, length)
	kit.Check(w.T, err)
	return order
}

func (w *world) read() steering.State {
	w.Helper()
	state, err := w.store.Read(w.Context())
	kit.Check(w.T, err)
	return state
}

// limits notes the limits that a follower applies.
type limits struct {
	mu  sync.Mutex
	now ratelimit.Temporary
}

func (l *limits) SetTemporary(now ratelimit.Temporary) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = now
}

func (l *limits) current() ratelimit.Temporary {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// replica is a follower with its log and its limits.
type replica struct {
	*steering.Follower
	w      *world
	limits *limits
	log    *observer.ObservedLogs
}

func (w *world) replica() *replica {
	w.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	r := &replica{w: w, limits: &limits{}, log: logs}
	r.Follower = steering.NewFollower(w.store, r.limits, zap.New(core))
	w.Cleanup(r.Stop)
	return r
}

// flush polls, as Run does every second.
func (r *replica) flush() { r.Poll(r.w.Context()) }

func (r *replica) muted(category string) bool {
	_, muted := r.Muted(category)
	return muted
}

// The next change removes entries that have ended and foreign fields, so they never fill the hash.
func TestWhatHasEndedIsRemoved(t *testing.T) {
	w := newWorld(t)
	w.mute("a", time.Hour)
	past := time.Now().Add(-time.Hour).UnixMicro()
	kit.Check(t, w.client.HSet(t.Context(), key, "mute old", fmt.Sprintf("%d %d {}", past-1000, past), "junk", "x", "mute b", "").Err())
	w.mute("c", time.Hour)
	fields := w.client.HKeys(t.Context(), key).Val()
	if len(fields) != 3 || strings.Contains(strings.Join(fields, ","), "old") || strings.Contains(strings.Join(fields, ","), "junk") {
		t.Errorf("%q", fields)
	}
}

func TestThereIsABound(t *testing.T) {
	w := newWorld(t)
	for i := range steering.MostOrders {
		w.mute(fmt.Sprintf("c%d", i), time.Hour)
	}
	order, err := steering.NewMute("one-more", "", "")
	kit.Check(t, err)
	if _, _, err := w.store.Set(t.Context(), order, time.Hour); !errors.Is(err, steering.ErrFull) {
		t.Errorf("%v, expected ErrFull", err)
	}
	w.mute("c7", 2*time.Hour) // replaces
	if n := len(w.read().Orders); n != steering.MostOrders {
		t.Errorf("%d orders", n)
	}
	r := w.replica()
	kit.Check(t, r.Load(t.Context()))
	if !r.muted("c999") || r.muted("one-more") {
		t.Error("not all are followed")
	}
}

// Values that others have written are skipped and named, and the valid ones hold.
func TestHostileValues(t *testing.T) {
	w := newWorld(t)
	w.mute("good", time.Hour)
	now := time.Now().UnixMicro()
	times := fmt.Sprintf("%d %d ", now, now+3_600_000_000)
	long := strings.Repeat("x", 201)
	hostile := map[string]string{
		"mute a..b":          times + "{}",
		"mute a\x1b[31m":     times + "{}",
		"mute c":             times + `{"reason":"` + long + `"}`,
		"mute e":             times + `{"limit":"1/1m"}`,
		"mute b":             times + "[]",
		"mute f":             "1 2",
		"mute h":             fmt.Sprintf("%d %d {}", now, now-1),
		"limit group/a.b":    times + `{"limit":"1/1m"}`,
		"mute g":             fmt.Sprintf("%d %d {}", now, now+32*24*3_600_000_000),
		"mute i":             "99999999999999999999 99999999999999999999 {}",
		"mute j":             times + strings.Repeat(" ", 9000) + "{}",
		"limit global":       times + `{"limit":"0/1m"}`,
		"limit category/a.>": times + `{"limit":"1/1m"}`,
		"order everything":   times + `{}`,
		"":                   "",
	}
	for field, value := range hostile {
		kit.Check(t, w.client.HSet(t.Context(), key, field, value).Err())
	}
	r := w.replica()
	kit.Check(t, r.Load(t.Context()))
	orders, _ := r.InForce()
	if len(orders) != 1 || orders[0].Target != "good" {
		t.Errorf("in force: %+v", orders)
	}
	if n := r.log.FilterMessage("mutes or limits are not valid, and are skipped").Len(); n != 1 {
		t.Errorf("%d lines", n)
	}
	r.flush()
	r.flush()
	if n := r.log.FilterMessage("mutes or limits are not valid, and are skipped").Len(); n != 1 {
		t.Errorf("%d lines after two flushes, expected one for a version", n)
	}
}

// A huge hash, which steer.lua cannot have written, is not read. The known overrides stay in force.
func TestAHugeHashIsNotRead(t *testing.T) {
	w := newWorld(t)
	w.mute("a", time.Hour)
	r := w.replica()
	kit.Check(t, r.Load(t.Context()))
	fields := map[string]any{"version": "9000000000000000"}
	for i := range 10_000 {
		fields[fmt.Sprintf("mute x%d", i)] = "x"
	}
	kit.Check(t, w.client.HSet(t.Context(), key, fields).Err())
	if _, err := w.store.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "fields") {
		t.Errorf("%v", err)
	}
	for range 3 {
		r.flush()
	}
	if !r.muted("a") {
		t.Error("what was known is forgotten")
	}
	if n := r.log.FilterMessage("mutes and limits cannot be followed").Len(); n != 1 {
		t.Errorf("%d lines, expected one", n)
	}
	kit.Check(t, w.client.Del(t.Context(), key).Err())
	kit.Check(t, w.client.Set(t.Context(), key, "text", 0).Err())
	if _, err := w.store.Read(t.Context()); err == nil || !strings.Contains(err.Error(), key) {
		t.Errorf("%v, expected the key's name", err)
	}
}

func TestOrdersThatAreRefused(t *testing.T) {
	long := strings.Repeat("ä", 201)
	for _, test := range []struct {
		err  error
		want string
	}{
		{second(steering.NewMute("a..b", "", "")), "empty token"},
		{second(steering.NewMute("a", "", long)), "201 characters"},
		{second(steering.NewMute("a", "", "one\ntwo")), "one line"},
		{second(steering.NewLimit("global", "0/1m", "", "")), "count"},
		{second(steering.NewLimit("Global", "1/1m", "", "")), "expected global, group/NAME"},
		{second(steering.NewLimit("group/a.b", "1/1m", "", "")), "not a group"},
		{second(steering.NewLimit("category/a b", "1/1m", "", "")), "a space"},
		{second(steering.NewLimit("group/", "1/1m", "", "")), "is empty"},
		{second(steering.NewLimit("category/a.*", "1/1m", "", "")), "pattern"},
	} {
		if test.err == nil || !strings.Contains(test.err.Error(), test.want) {
			t.Errorf("%v, expected %q", test.err, test.want)
		}
	}
}

func second(_ steering.Order, err error) error { return err }
