package steering_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"notifier/internal/ratelimit"
	"notifier/internal/redistest"
	"notifier/internal/stats"
	"notifier/internal/steering"
	"notifier/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.QuietRedis()
	goleak.VerifyTestMain(m)
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
	testkit.Check(t, err)
	return &world{t, server, client, store}
}

func (w *world) mute(pattern string, length time.Duration) steering.Order {
	w.Helper()
	order, err := steering.NewMute(pattern, "alice@ops", "because")
	testkit.Check(w.T, err)
	return w.set(order, length)
}

func (w *world) limit(scope, limit string, length time.Duration) steering.Order {
	w.Helper()
	order, err := steering.NewLimit(scope, limit, "alice@ops", "because")
	testkit.Check(w.T, err)
	return w.set(order, length)
}

func (w *world) set(order steering.Order, length time.Duration) steering.Order {
	w.Helper()
	order, _, err := w.store.Set(w.Context(), order, length)
	testkit.Check(w.T, err)
	return order
}

func (w *world) read() steering.State {
	w.Helper()
	state, err := w.store.Read(w.Context())
	testkit.Check(w.T, err)
	return state
}

// limits notes what a follower asks for.
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

// replica is a follower, with what it has logged and asked for.
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

// flush does what a flush of counts does.
func (r *replica) flush() {
	r.w.Helper()
	state := r.w.read()
	r.Follow(r.w.Context(), stats.Flushed{Now: state.Now, Version: state.Version})
}

func (r *replica) muted(category string) bool {
	_, muted := r.Muted(category)
	return muted
}

func TestWhatIsSetIsReadBack(t *testing.T) {
	w := newWorld(t)
	mute, limit := w.mute("team-a.>", time.Hour), w.limit("category/errors", "50/30m0s", 2*time.Hour)
	if got := mute.Until.Sub(mute.Since); got != time.Hour {
		t.Errorf("the mute lasts %s", got)
	}
	state := w.read()
	if len(state.Orders) != 2 || len(state.Invalid) > 0 {
		t.Fatalf("%+v", state)
	}
	for i, want := range []steering.Order{mute, limit} {
		got := state.Orders[i]
		if got.Kind != want.Kind || got.Target != want.Target || got.Limit != want.Limit || got.By != "alice@ops" ||
			got.Reason != "because" || !got.Until.Equal(want.Until) || !got.Since.Equal(want.Since) {
			t.Errorf("%+v, expected %+v", got, want)
		}
	}
	if state.Orders[1].Limit != "50/30m" {
		t.Errorf("limit %s, expected its shortest form", state.Orders[1].Limit)
	}
	if ttl := w.client.PTTL(t.Context(), key).Val(); ttl < 25*time.Hour || ttl > 27*time.Hour {
		t.Errorf("the hash expires in %s, expected a day after its last end", ttl)
	}
}

// The version grows with each change, also of a hash that begins anew, and nothing is counted that changes nothing.
func TestTheVersionGrows(t *testing.T) {
	w := newWorld(t)
	last := int64(0)
	grew := func(what string) {
		t.Helper()
		if version := w.read().Version; version <= last {
			t.Errorf("%s: version %d after %d", what, version, last)
		} else {
			last = version
		}
	}
	w.mute("a", time.Hour)
	grew("set")
	w.mute("a", time.Hour)
	grew("replaced")
	found, version, err := w.store.Clear(t.Context(), steering.Mute, "a")
	testkit.Check(t, err)
	grew("cleared")
	if !found || version != last {
		t.Errorf("found %v, version %d, expected %d", found, version, last)
	}
	if found, version, err = w.store.Clear(t.Context(), steering.Mute, "a"); err != nil || found || version != last {
		t.Errorf("nothing to clear: %v %d %v", found, version, err)
	}
	testkit.Check(t, w.client.Del(t.Context(), key).Err())
	w.mute("a", time.Hour)
	grew("begun anew")
}

// What has ended, and what is not ours, is removed with the next change; it never fills the hash.
func TestWhatHasEndedIsRemoved(t *testing.T) {
	w := newWorld(t)
	w.mute("a", time.Hour)
	past := time.Now().Add(-time.Hour).UnixMicro()
	testkit.Check(t, w.client.HSet(t.Context(), key, "mute old", fmt.Sprintf("%d %d {}", past-1000, past), "junk", "x", "mute b", "").Err())
	w.mute("c", time.Hour)
	fields := w.client.HKeys(t.Context(), key).Val()
	if len(fields) != 4 || strings.Contains(strings.Join(fields, ","), "old") || strings.Contains(strings.Join(fields, ","), "junk") {
		t.Errorf("%q", fields)
	}
}

func TestThereIsABound(t *testing.T) {
	w := newWorld(t)
	for i := range steering.MostOrders {
		w.mute(fmt.Sprintf("c%d", i), time.Hour)
	}
	order, err := steering.NewMute("one-more", "", "")
	testkit.Check(t, err)
	if _, _, err := w.store.Set(t.Context(), order, time.Hour); !errors.Is(err, steering.ErrFull) {
		t.Errorf("%v, expected ErrFull", err)
	}
	w.mute("c7", 2*time.Hour) // replaces
	if n := len(w.read().Orders); n != steering.MostOrders {
		t.Errorf("%d orders", n)
	}
	r := w.replica()
	testkit.Check(t, r.Load(t.Context()))
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
		"mute a..b":            times + "{}",
		"mute ":                times + "{}",
		"mute a\x1b[31m":       times + "{}",
		"mute b":               times + "[]",
		"mute c":               times + `{"reason":"` + long + `"}`,
		"mute d":               times + `{"by":"a\nb"}`,
		"mute e":               times + `{"limit":"1/1m"}`,
		"mute f":               "1 2",
		"mute g":               fmt.Sprintf("%d %d {}", now, now+32*24*3_600_000_000),
		"mute h":               fmt.Sprintf("%d %d {}", now, now-1),
		"mute i":               "99999999999999999999 99999999999999999999 {}",
		"mute j":               times + strings.Repeat(" ", 9000) + "{}",
		"limit global":         times + `{"limit":"0/1m"}`,
		"limit group/a.b":      times + `{"limit":"1/1m"}`,
		"limit category/a.>":   times + `{"limit":"1/1m"}`,
		"limit planet/earth":   times + `{"limit":"1/1m"}`,
		"limit category/empty": times + `{}`,
		"order everything":     times + `{}`,
		"":                     "",
	}
	for field, value := range hostile {
		testkit.Check(t, w.client.HSet(t.Context(), key, field, value).Err())
	}
	r := w.replica()
	testkit.Check(t, r.Load(t.Context()))
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

// A hash that is none of ours is not read, and what is known stays in force.
func TestAHugeHashIsNotRead(t *testing.T) {
	w := newWorld(t)
	w.mute("a", time.Hour)
	r := w.replica()
	testkit.Check(t, r.Load(t.Context()))
	fields := map[string]any{"version": "9000000000000000"}
	for i := range 10_000 {
		fields[fmt.Sprintf("mute x%d", i)] = "x"
	}
	testkit.Check(t, w.client.HSet(t.Context(), key, fields).Err())
	if _, err := w.store.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "fields") {
		t.Errorf("%v", err)
	}
	for range 3 {
		r.Follow(t.Context(), stats.Flushed{Now: time.Now(), Version: 9_000_000_000_000_000})
	}
	if !r.muted("a") {
		t.Error("what was known is forgotten")
	}
	if n := r.log.FilterMessage("mutes and limits cannot be followed").Len(); n != 1 {
		t.Errorf("%d lines, expected one", n)
	}
	testkit.Check(t, w.client.Del(t.Context(), key).Err())
	testkit.Check(t, w.client.Set(t.Context(), key, "text", 0).Err())
	if _, err := w.store.Read(t.Context()); err == nil || !strings.Contains(err.Error(), key) {
		t.Errorf("%v, expected the key's name", err)
	}
}

func TestAReplicaFollows(t *testing.T) {
	w := newWorld(t)
	r := w.replica()
	r.Follow(t.Context(), stats.Flushed{Now: time.Now(), Version: 7}) // before it has read anything
	testkit.Check(t, r.Load(t.Context()))
	if r.muted("errors") {
		t.Error("muted from the start")
	}
	w.mute("errors.>", time.Hour)
	w.limit("global", "5/1m", time.Hour)
	w.limit("group/team-a", "6/1m", time.Hour)
	w.limit("category/errors.db", "7/1m", time.Hour)
	r.flush()
	if !r.muted("errors.db") || r.muted("errors") || r.muted("other") {
		t.Error("the mute is not followed")
	}
	now := r.limits.current()
	if now.Global.String() != "5/1m" || now.Groups["team-a"].String() != "6/1m" || now.Categories["errors.db"].String() != "7/1m" {
		t.Errorf("%+v", now)
	}
	select {
	case <-r.NewMutes():
	default:
		t.Error("nobody is woken by a new mute")
	}
	lines := r.log.FilterMessage("mute is in force").All()
	if len(lines) != 1 || lines[0].ContextMap()["by"] != "alice@ops" || lines[0].ContextMap()["reason"] != "because" {
		t.Errorf("%v", lines)
	}
	_, _, err := w.store.Clear(t.Context(), steering.Mute, "errors.>")
	testkit.Check(t, err)
	_, _, err = w.store.Clear(t.Context(), steering.Limit, "global")
	testkit.Check(t, err)
	r.flush()
	if r.muted("errors.db") || len(r.limits.current().Global) > 0 || len(r.limits.current().Groups) != 1 {
		t.Error("what was cleared is still in force")
	}
	if r.log.FilterMessage("mute is over").Len() != 1 || r.log.FilterMessage("limit for a while is over").Len() != 1 {
		t.Errorf("%v", r.log.All())
	}
}

// An order ends at its time by the clock of Redis, without a call: also while Redis is away, and the less specific one goes on.
func TestAnOrderEndsByItself(t *testing.T) {
	w := newWorld(t)
	w.mute("errors", 1500*time.Millisecond)
	w.mute("errors.db", time.Second)
	w.mute(">", time.Hour)
	w.limit("global", "5/1m", time.Second)
	_, _, err := w.store.Clear(t.Context(), steering.Mute, ">")
	testkit.Check(t, err)
	r := w.replica()
	testkit.Check(t, r.Load(t.Context()))
	if !r.muted("errors") || !r.muted("errors.db") {
		t.Fatal("not in force")
	}
	until := w.read().Orders[0].Until
	testkit.Eventually(t, "the mute is over", func() bool { return !r.muted("errors") })
	if now := w.read().Now; now.Before(until) {
		t.Errorf("over %s too early", until.Sub(now))
	}
	testkit.Eventually(t, "the limit is over", func() bool { return len(r.limits.current().Global) == 0 })
	testkit.Eventually(t, "the ends are logged", func() bool {
		return r.log.FilterMessage("mute is over").Len() == 2 && r.log.FilterMessage("limit for a while is over").Len() == 1
	})
}

// The clock is Redis's, however wrong our own is.
func TestTheClockIsThatOfRedis(t *testing.T) {
	w := newWorld(t)
	w.mute("a", time.Hour)
	r := w.replica()
	testkit.Check(t, r.Load(t.Context()))
	version := w.read().Version
	r.Follow(t.Context(), stats.Flushed{Now: time.Now().Add(2 * time.Hour), Version: version})
	if r.muted("a") {
		t.Error("the mute goes on although the clock of Redis is past its end")
	}
	r.Follow(t.Context(), stats.Flushed{Now: time.Now(), Version: version})
	if !r.muted("a") {
		t.Error("the mute has ended although the clock of Redis was set back")
	}
}

// Of two mutes the most specific one is named; when it ends, the other one holds without a gap.
func TestMutesOverlap(t *testing.T) {
	w := newWorld(t)
	w.mute("errors", time.Second)
	w.mute(">", time.Hour)
	r := w.replica()
	testkit.Check(t, r.Load(t.Context()))
	if mute, _ := r.Muted("errors"); mute.Target != "errors" {
		t.Errorf("muted by %s", mute.Target)
	}
	gap := false
	testkit.Eventually(t, "the first is over", func() bool {
		mute, muted := r.Muted("errors")
		gap = gap || !muted
		return muted && mute.Target == ">"
	})
	if gap {
		t.Error("for a moment nothing was muted")
	}
}

// A store that has lost the hash gets it back from whoever knows it, once; what was set since stays.
func TestWhatWasLostIsPutBack(t *testing.T) {
	w := newWorld(t)
	w.mute("a", time.Hour)
	w.mute("b", 3*time.Hour)
	r, other := w.replica(), w.replica()
	testkit.Check(t, errors.Join(r.Load(t.Context()), other.Load(t.Context())))
	before := w.read()
	testkit.Check(t, w.client.Del(t.Context(), key).Err())
	r.flush()
	other.flush()
	after := w.read()
	if len(after.Orders) != 2 || after.Version != before.Version || !after.Orders[1].Until.Equal(before.Orders[1].Until) {
		t.Errorf("%+v, expected %+v", after, before)
	}
	if n := r.log.FilterMessage("mutes and limits put back").Len() + other.log.FilterMessage("mutes and limits put back").Len(); n != 1 {
		t.Errorf("%d lines, expected one", n)
	}

	testkit.Check(t, w.client.Del(t.Context(), key).Err()) // and somebody sets another one before that is noticed
	w.mute("c", time.Hour)
	r.flush()
	r.flush()
	other.flush()
	for _, category := range []string{"a", "b", "c"} {
		if !r.muted(category) || !other.muted(category) {
			t.Errorf("%s is lost", category)
		}
	}
	if len(w.read().Orders) != 3 {
		t.Errorf("%+v", w.read().Orders)
	}
}

// An older version of the same hash, from a replica that was promoted, is replaced as a whole; a newer one is left alone.
func TestAnOlderVersionIsReplaced(t *testing.T) {
	w := newWorld(t)
	w.mute("a", time.Hour)
	old := w.client.HGetAll(t.Context(), key).Val()
	stale := w.replica()
	testkit.Check(t, stale.Load(t.Context()))
	_, _, err := w.store.Clear(t.Context(), steering.Mute, "a")
	testkit.Check(t, err)
	w.mute("b", time.Hour)
	r := w.replica()
	testkit.Check(t, r.Load(t.Context()))
	testkit.Check(t, stale.PutBack(t.Context(), w.client))
	if state := w.read(); len(state.Orders) != 1 || state.Orders[0].Target != "b" {
		t.Errorf("a stale replica has put back %+v", state.Orders)
	}
	testkit.Check(t, w.client.Del(t.Context(), key).Err())
	testkit.Check(t, w.client.HSet(t.Context(), key, old).Err())
	testkit.Check(t, r.PutBack(t.Context(), w.client))
	testkit.Check(t, r.PutBack(t.Context(), w.client))
	if state := w.read(); len(state.Orders) != 1 || state.Orders[0].Target != "b" {
		t.Errorf("%+v", state.Orders)
	}
}

// A mute that was cleared does not come back through a worker that was cut off, nor does one that has ended.
func TestWhatWasClearedStaysCleared(t *testing.T) {
	w := newWorld(t)
	w.mute("a", time.Hour)
	cut := w.replica()
	testkit.Check(t, cut.Load(t.Context()))
	_, _, err := w.store.Clear(t.Context(), steering.Mute, "a")
	testkit.Check(t, err)
	testkit.Check(t, cut.PutBack(t.Context(), w.client))
	cut.flush()
	if cut.muted("a") || len(w.read().Orders) != 0 {
		t.Error("it is back")
	}
	if ttl := w.client.PTTL(t.Context(), key).Val(); ttl < 24*time.Hour {
		t.Errorf("the version is kept for %s, expected a day after the mute would have ended", ttl)
	}
}

// While Redis is away everything stays as it is known.
func TestRedisIsAway(t *testing.T) {
	w := newWorld(t)
	w.mute("a", time.Hour)
	r := w.replica()
	testkit.Check(t, r.Load(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.Follow(ctx, stats.Flushed{Now: time.Now(), Version: 1})
	if !r.muted("a") {
		t.Error("forgotten")
	}
	fresh := w.replica()
	if err := fresh.Load(ctx); err == nil {
		t.Error("it has read nothing, and reports no error")
	}
}

func TestOrdersThatAreRefused(t *testing.T) {
	long := strings.Repeat("ä", 201)
	for _, test := range []struct {
		err  error
		want string
	}{
		{second(steering.NewMute("a..b", "", "")), "empty token"},
		{second(steering.NewMute("", "", "")), "is empty"},
		{second(steering.NewMute("a", "", long)), "201 characters"},
		{second(steering.NewMute("a", "", "one\ntwo")), "one line"},
		{second(steering.NewMute("a", strings.Repeat("x", 101), "")), "101 characters"},
		{second(steering.NewLimit("global", "0/1m", "", "")), "count"},
		{second(steering.NewLimit("Global", "1/1m", "", "")), "expected global, group/NAME"},
		{second(steering.NewLimit("group/a.b", "1/1m", "", "")), "not a group"},
		{second(steering.NewLimit("group/", "1/1m", "", "")), "is empty"},
		{second(steering.NewLimit("category/a.*", "1/1m", "", "")), "pattern"},
		{second(steering.NewLimit("category/a b", "1/1m", "", "")), "white space"},
	} {
		if test.err == nil || !strings.Contains(test.err.Error(), test.want) {
			t.Errorf("%v, expected %q", test.err, test.want)
		}
	}
}

func second(_ steering.Order, err error) error { return err }
