package steering_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"notifier/internal/steering"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// TestWhatIsInForceIsLikeTheModel plays random histories of orders to workers that follow at their own
// times, and compares the overrides in force in each of them with a model: mutes, limits, version and ends. The
// store loses everything, or the newest changes, in between.
//
// Redis's clock is set, in whole minutes. The workers' own clock runs meanwhile, but no check comes as close
// to an end as that takes.
func TestWhatIsInForceIsLikeTheModel(t *testing.T) {
	t.Parallel()
	embedded := redistest.RunEmbedded(t)
	client := redis.NewClient(&redis.Options{Addr: embedded.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	store, err := steering.NewStore(client, "n")
	kit.Check(t, err)
	var counts historyCounts
	rapid.Check(t, func(r *rapid.T) {
		h := &history{world: &world{T: t, client: client, store: store}, embedded: embedded, counts: &counts}
		h.begin(r)
		defer h.end()
		r.Repeat(map[string]func(*rapid.T){
			"set": h.set, "set again": h.set, "clear": h.clear, "flush": h.flush, "flush again": h.flush, "wait": h.wait,
			"restart": h.restart, "keep a copy": h.keepCopy, "lose": h.lose, "set back": h.setBack, "settle": h.settle, "": h.check,
		})
	})
	t.Logf("%+v", counts)
	if !t.Failed() && !testing.Short() && (counts.ended == 0 || counts.losses == 0 || counts.restored == 0) {
		t.Error("one of these never happens: this compares too little")
	}
}

// historyCounts show that histories are about something.
type historyCounts struct{ ended, losses, restored int }

// history is one random run.
type history struct {
	*world
	embedded  *miniredis.Miniredis
	now       time.Time
	hash      stored
	followers []*follower
	copied    *copied
	// all workers knew them when the store was lost, and they have not changed since
	sure map[string]steering.Order
	// since all agreed after the last loss: before that, another worker may put it back
	cleared map[string]bool
	agreed  bool // all workers and the store, since the last loss
	counts  *historyCounts
}

// follower is a worker, and the model of its knowledge.
type follower struct {
	*replica
	known  stored
	seen   time.Time        // the clock of Redis, as it knows it
	before []steering.Order // in force after its last poll
}

// copied is a copy of the store at some moment.
type copied struct {
	fields map[string]string
	hash   stored
}

const mostFollowers = 3

func (h *history) begin(r *rapid.T) {
	if err := h.client.FlushAll(h.Context()).Err(); err != nil {
		r.Fatal(err)
	}
	h.now = time.Date(2026, 11, 20, 4, 39, 0, 0, time.UTC)
	h.embedded.SetTime(h.now)
	h.sure, h.cleared, h.agreed = map[string]steering.Order{}, map[string]bool{}, true
	for range rapid.IntRange(1, mostFollowers).Draw(r, "workers") {
		h.followers = append(h.followers, h.follower(r))
	}
}

func (h *history) end() {
	for _, f := range h.followers {
		f.Stop()
	}
}

// follower returns a new worker that has read the hash.
func (h *history) follower(r *rapid.T) *follower {
	f := &follower{replica: h.replica(), known: h.hash.copy(), seen: h.now}
	if err := f.Load(h.Context()); err != nil {
		r.Fatal(err)
	}
	h.followed(f)
	return f
}

var (
	historyPatterns = []string{"a", "b", "a.x", "a.>", "a.*", "*", "*.x", ">", "*.>", "a.*.z", "a.x.>", "*.*"}
	historyScopes   = []string{"global", "group/a", "group/b", "category/a", "category/a.x", "category/c"}
)

func (h *history) set(r *rapid.T) {
	by, reason := rapid.SampledFrom([]string{"alice@ops", "bob@ops"}).Draw(r, "by"), rapid.SampledFrom([]string{"", "noise"}).Draw(r, "reason")
	var order steering.Order
	var err error
	if rapid.Bool().Draw(r, "mute") {
		order, err = steering.NewMute(rapid.SampledFrom(historyPatterns).Draw(r, "pattern"), by, reason)
	} else {
		limit := fmt.Sprintf("%d/%dm", rapid.IntRange(1, 9).Draw(r, "count"), rapid.IntRange(1, 3).Draw(r, "window"))
		order, err = steering.NewLimit(rapid.SampledFrom(historyScopes).Draw(r, "scope"), limit, by, reason)
	}
	if err != nil {
		r.Fatal(err)
	}
	length := time.Duration(rapid.SampledFrom([]int{1, 2, 3, 5, 60}).Draw(r, "minutes")) * time.Minute
	got, version, err := h.store.Set(h.Context(), order, length)
	if err != nil {
		r.Fatal(err)
	}
	order.Since, order.Until = h.now, h.now.Add(length)
	if h.hash.version == 0 { // a hash that begins before the lost one is restored takes its place
		h.sure = map[string]steering.Order{}
	}
	h.hash.set(order, h.now)
	delete(h.sure, nameOf(order))
	delete(h.cleared, nameOf(order))
	if difference := diff(order, got); difference != "" || version != h.hash.version {
		r.Fatalf("version %d, expected %d (-model +set):\n%s", version, h.hash.version, difference)
	}
}

func (h *history) clear(r *rapid.T) {
	kind, target := steering.Mute, rapid.SampledFrom(historyPatterns).Draw(r, "pattern")
	if rapid.Bool().Draw(r, "limit") {
		kind, target = steering.Limit, rapid.SampledFrom(historyScopes).Draw(r, "scope")
	}
	if known := slices.Sorted(maps.Keys(h.hash.orders)); len(known) > 0 && rapid.IntRange(0, 3).Draw(r, "known") > 0 {
		o := h.hash.orders[rapid.SampledFrom(known).Draw(r, "of")]
		kind, target = o.Kind, o.Target
	}
	name := string(kind) + " " + target
	want := h.hash.clear(name, h.now)
	found, version, err := h.store.Clear(h.Context(), kind, target)
	if err != nil || found != want || version != h.hash.version {
		r.Fatalf("clear %s: %t, version %d, %v, expected %t, version %d", name, found, version, err, want, h.hash.version)
	}
	if found {
		delete(h.sure, name)
		h.cleared[name] = h.agreed
	}
}

func (h *history) flush(r *rapid.T) { h.follow(rapid.SampledFrom(h.followers).Draw(r, "worker")) }

// follow lets one worker flush its counts.
func (h *history) follow(f *follower) {
	f.flush()
	f.seen = h.now
	defer h.followed(f)
	if h.hash.version == f.known.version {
		return
	}
	if h.hash.version < f.known.version {
		h.hash.restore(f.known, h.now)
		h.counts.restored++
	}
	f.known = h.hash.copy()
}

// wait lets time pass, and a worker or none sees that at once.
func (h *history) wait(r *rapid.T) {
	minutes := rapid.SampledFrom([]int{1, 1, 2, 3, 57, 24 * 60, 33 * 24 * 60}).Draw(r, "minutes")
	h.pass(time.Duration(minutes) * time.Minute)
	if rapid.Bool().Draw(r, "seen") {
		h.flush(r)
	}
}

// pass lets time pass in Redis. No worker sees that before its next flush.
func (h *history) pass(d time.Duration) {
	h.now = h.now.Add(d)
	if h.hash.version != 0 && h.hash.kept.Equal(h.now) { // at that very moment a store may have it or not
		h.now = h.now.Add(time.Minute)
	}
	h.embedded.SetTime(h.now)
	if h.hash.version != 0 && h.now.After(h.hash.kept) {
		h.hash, h.cleared = stored{}, map[string]bool{}
	}
}

// restart replaces a worker by one that has only read the store.
func (h *history) restart(r *rapid.T) {
	i := rapid.IntRange(0, len(h.followers)-1).Draw(r, "worker")
	h.followers[i].Stop()
	h.followers[i] = h.follower(r)
	for name, o := range h.sure { // a worker still has to know it
		if !slices.ContainsFunc(h.followers, func(f *follower) bool { return f.known.orders[name].Until.Equal(o.Until) }) {
			delete(h.sure, name)
		}
	}
}

// keepCopy copies the store.
func (h *history) keepCopy(r *rapid.T) {
	fields, err := h.client.HGetAll(h.Context(), key).Result()
	if err != nil {
		r.Fatal(err)
	}
	h.copied = &copied{fields, h.hash.copy()}
}

// lose empties the store. A new hash begins with the time, which is another one then.
func (h *history) lose(r *rapid.T) {
	h.pass(time.Minute)
	if err := h.client.FlushAll(h.Context()).Err(); err != nil {
		r.Fatal(err)
	}
	h.lost(stored{})
}

// lost leaves the store with a given hash, and notes the overrides that have to be in force again after all
// workers have restored their copies.
func (h *history) lost(left stored) {
	h.sure, h.cleared = map[string]steering.Order{}, map[string]bool{}
	putsBack := func(f *follower) bool { return f.known.version > left.version }
	for name, o := range h.hash.orders {
		known := !slices.ContainsFunc(h.followers, func(f *follower) bool { return diff(o, f.known.orders[name]) != "" })
		if known && slices.ContainsFunc(h.followers, putsBack) {
			h.sure[name] = o
		}
	}
	h.hash, h.agreed = left, false
	h.counts.losses++
}

// setBack takes away the newest changes, as a failover does. All workers restore their copies, in any order,
// before the next change. As with lose, versions are of another time then.
func (h *history) setBack(r *rapid.T) {
	h.pass(time.Minute)
	if h.copied == nil || len(h.copied.fields) == 0 || !h.copied.hash.kept.After(h.now) {
		r.Skip("there is no copy")
	}
	ctx := h.Context()
	pipe := h.client.TxPipeline()
	pipe.FlushAll(ctx)
	pipe.HSet(ctx, key, h.copied.fields)
	pipe.PExpireAt(ctx, key, h.copied.hash.kept)
	if _, err := pipe.Exec(ctx); err != nil {
		r.Fatal(err)
	}
	h.lost(h.copied.hash.copy())
	for _, f := range rapid.Permutation(h.followers).Draw(r, "order") {
		if rapid.Bool().Draw(r, "by its flush") {
			h.follow(f)
			continue
		}
		if err := f.Restore(ctx, h.client); err != nil {
			r.Fatal(err)
		}
		if f.known.version != 0 {
			h.hash.restore(f.known, h.now)
		}
	}
}

// settle lets all workers follow until none has anything to do. Then all agree with the store, and nothing
// is lost or has come back.
func (h *history) settle(r *rapid.T) {
	for range 2 + len(h.followers) {
		for _, f := range h.followers {
			h.follow(f)
		}
	}
	for i, f := range h.followers {
		orders, _ := f.InForce()
		if difference := diff(h.hash.inForce(h.now), orders); difference != "" {
			r.Fatalf("worker %d does not agree with the store (-store +worker):\n%s", i, difference)
		}
		for name, o := range h.sure {
			if o.Until.After(h.now) && !slices.ContainsFunc(orders, func(is steering.Order) bool { return diff(o, is) == "" }) {
				r.Fatalf("%s is lost, and all workers knew it", name)
			}
		}
		for _, o := range orders {
			if h.cleared[nameOf(o)] {
				r.Fatalf("%s is back", nameOf(o))
			}
		}
	}
	h.agreed = true
}

// check compares the store and each worker with the model.
func (h *history) check(r *rapid.T) {
	state := h.read()
	if difference := diff(h.hash.inForce(h.now), state.InForce(h.now, steering.Mute, steering.Limit)); difference != "" ||
		state.Version != h.hash.version || !state.Now.Equal(h.now) {
		r.Fatalf("the store has version %d at %s, expected %d at %s (-model +store):\n%s", state.Version, state.Now, h.hash.version, h.now, difference)
	}
	for i, f := range h.followers {
		want := f.known.inForce(f.seen)
		orders, version := f.InForce()
		if difference := diff(want, orders); difference != "" || version != f.known.version {
			r.Fatalf("worker %d has version %d, expected %d (-model +worker):\n%s", i, version, f.known.version, difference)
		}
		h.checkLimits(r, i, f, want)
	}
}

func (h *history) checkLimits(r *rapid.T, i int, f *follower, want []steering.Order) {
	limits := map[string]string{}
	for _, o := range want {
		if o.Kind == steering.Limit {
			limits[o.Target] = o.Limit
		}
	}
	got, now := map[string]string{}, f.limits.current()
	if len(now.Global) > 0 {
		got["global"] = now.Global.String()
	}
	for name, limit := range now.Groups {
		got["group/"+name] = limit.String()
	}
	for name, limit := range now.Categories {
		got["category/"+name] = limit.String()
	}
	if difference := cmp.Diff(limits, got); difference != "" {
		r.Fatalf("worker %d has asked for other limits (-model +worker):\n%s", i, difference)
	}
}

// followed notes the overrides that began and that ended.
func (h *history) followed(f *follower) {
	want := f.known.inForce(f.seen)
	for _, o := range f.before {
		if !o.Until.After(f.seen) {
			h.counts.ended++
		}
	}
	f.before = want
}

func diff[T any](want, got T) string {
	return cmp.Diff(want, got, cmpopts.IgnoreUnexported(steering.Order{}), cmpopts.EquateEmpty())
}
