package ratelimit_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"notifier/internal/ratelimit"
)

// lossy is the state of a history with losses: the store is emptied or set back, and all workers restore the
// admissions that they remember. Afterwards decisions must be as if nothing had been lost.
//
// All workers have the same rules, which change now and then. The dedupe window is at least as long as any
// other window. Events are redelivered to other workers in one direction only: buckets charge an event once
// only if its first worker also restores it first (see the package comment). An event that several workers
// know is not refunded, because the others would restore it.
type lossy struct {
	copied  *copied // nil if the store can only be emptied
	order   []int   // in which workers restore; events are redelivered to later ones
	counts  lossyCounts
	unnamed int // events that got a new id
}

// lossyCounts counts the operations that make a history worth comparing.
type lossyCounts struct {
	losses      int
	redelivered int // admissions repeated by another worker
	changes     int // of limits
}

func (c *lossyCounts) add(other lossyCounts) {
	c.losses, c.redelivered, c.changes = c.losses+other.losses, c.redelivered+other.redelivered, c.changes+other.changes
}

// copied is a copy of the store, with the model at that time.
type copied struct {
	keys  map[string]savedKey
	aged  time.Duration
	model *model
}

type savedKey struct {
	entries []redis.Z
	fields  map[string]string
	text    string
	kind    string
	ends    time.Duration // since 1970; negative if the key never expires
}

const lossyReplicas = 3

func newLossyHistory(t *testing.T, r *rapid.T, s *store, client redis.UniversalClient) *history {
	h := newHistory(t, r, s, client, 1)
	h.lossy, h.steps = &lossy{order: rapid.Permutation([]int{0, 1, 2}).Draw(r, "order")}, false
	chosen := anyRules(r, longWindows)
	dedupe := rapid.SampledFrom([]time.Duration{time.Hour, 2 * time.Hour}).Draw(r, "dedupe of all")
	h.windows = longWindows
	h.allHave(r, client, chosen, dedupe, lossyReplicas)
	for i, limiter := range h.limiters {
		limiter.KeepJournal(fmt.Sprint("replica", i))
	}
	return h
}

// advance lets time pass. If the data of the store gets older instead, so do the journals of the workers.
func (h *history) advance(d time.Duration) {
	h.s.advance(h.t, d)
	if h.lossy != nil && h.s.embedded == nil {
		for _, limiter := range h.limiters {
			limiter.AgeJournal(d.Microseconds())
		}
	}
}

// mayAsk reports whether a worker may get an event: in the order, it may not precede one that has had it.
func (h *history) mayAsk(by int, request ratelimit.Request) bool {
	rank := func(of int) int { return slices.Index(h.lossy.order, of) }
	for _, a := range h.model.admissions {
		if a.is(request) && rank(a.by) > rank(by) {
			return false
		}
	}
	return rank(ownerOf(request)) <= rank(by)
}

// requestsOfOne fills a batch for one worker. The suffix of an id names the first worker of the event.
func (h *history) requestsOfOne(r *rapid.T, batch []ratelimit.Request) (caller, replica) {
	by := rapid.IntRange(0, lossyReplicas-1).Draw(r, "worker")
	var before []ratelimit.Request
	for _, request := range h.asked {
		if h.mayAsk(by, request) {
			before = append(before, request)
		}
	}
	// Only earlier events can show a loss.
	repeats := len(before) > 0 && rapid.IntRange(0, 2).Draw(r, "known") > 0
	for i := range batch {
		if repeats && rapid.IntRange(0, 2).Draw(r, "known too") > 0 {
			batch[i] = rapid.SampledFrom(before).Draw(r, "of")
		} else {
			batch[i] = h.request(r)
		}
		if id, _, named := strings.Cut(batch[i].ID, "@"); !named {
			batch[i].ID = fmt.Sprint(id, "@", by)
		}
		if !h.mayAsk(by, batch[i]) {
			h.lossy.unnamed++
			batch[i].ID = fmt.Sprint("n", h.lossy.unnamed, "@", by)
		}
		if a := h.model.inFlight(batch[i]); a != nil && !slices.Contains(a.known, by) {
			h.lossy.counts.redelivered++
		}
	}
	return h.limiters[by], h.replicas[by]
}

// change replaces the temporary limits of all workers. No window exceeds the longest one of the rules: which
// slots a longer one still counted would depend on the expiry of keys.
func (h *history) change(r *rapid.T) {
	if h.unclear {
		return
	}
	windows := slices.DeleteFunc(slices.Clone(h.windows), func(w time.Duration) bool { return w > h.replicas[0].rules.LongestWindow() })
	instead, pairs := map[string]ratelimit.Limit{}, []string(nil)
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{globalScope, categoryScope("a"), categoryScope("b.x")}),
		0, 3, rapid.ID).Draw(r, "instead of") {
		instead[name] = anyTiers(windows, 10, anyForm(r)).Draw(r, "instead")
		pairs = append(pairs, strings.Replace(name, " ", "/", 1), instead[name].String())
	}
	for i := range h.replicas {
		h.limiters[i].SetTemporary(temporaryLimits(pairs...))
		h.replicas[i] = h.replicas[i].during(instead)
	}
	h.lossy.counts.changes++
	h.operations++
}

func ownerOf(request ratelimit.Request) int {
	_, by, found := strings.Cut(request.ID, "@")
	if n, err := strconv.Atoi(by); found && err == nil {
		return n
	}
	return -1
}

// whichFor draws the worker that makes a call about an event. With losses, it is one that knows it.
func (h *history) whichFor(r *rapid.T, request ratelimit.Request) (caller, replica) {
	if h.lossy == nil {
		return h.which(r)
	}
	by := ownerOf(request)
	if a := h.model.inFlight(request); a != nil {
		by = rapid.SampledFrom(a.known).Draw(r, "of those that were given it")
	}
	return h.limiters[by], h.replicas[by]
}

// refundsForSure reports whether an event is certainly in flight, and known to one worker only. If so, it
// drops the copy of the store: the copy still has the slots that are going to be refunded.
func (h *history) refundsForSure(request ratelimit.Request, asking replica) bool {
	now := h.virtual(h.s.Time(h.t.Context()).Val().UnixMicro())
	a := h.model.inFlight(request)
	if a == nil || len(a.known) > 1 || !h.model.stillCounts(asking, a, now+endsBefore.Microseconds()) {
		return false
	}
	h.lossy.copied = nil
	return true
}

// keepCopy copies the store.
func (h *history) keepCopy(r *rapid.T) {
	if h.unclear {
		return
	}
	ctx := h.t.Context()
	h.stepOverEnds()
	if h.expire(h.virtual(h.s.Time(ctx).Val().UnixMicro())); h.unclear {
		return
	}
	kept := &copied{keys: map[string]savedKey{}, aged: h.s.aged, model: h.model.copy()}
	for _, name := range h.s.Keys(ctx, "*").Val() {
		key := savedKey{kind: h.s.Type(ctx, name).Val(), ends: h.s.PExpireTime(ctx, name).Val()}
		switch key.kind {
		case "zset":
			key.entries = h.s.ZRangeWithScores(ctx, name, 0, -1).Val()
		case "hash":
			key.fields = h.s.HGetAll(ctx, name).Val()
		case "string":
			key.text = h.s.Get(ctx, name).Val()
		}
		if len(key.entries)+len(key.fields)+len(key.text) > 0 { // false if the key has just expired
			kept.keys[name] = key
		}
	}
	h.lossy.copied = kept
	h.operations++
}

// lose empties the store or sets it back to the copy, and lets all workers restore their admissions.
func (h *history) lose(r *rapid.T) {
	if h.unclear {
		return
	}
	ctx := h.t.Context()
	back := h.lossy.copied
	if rapid.Bool().Draw(r, "empty") {
		back = nil
	}
	order := h.lossy.order
	if h.replicas[0].keepsEach() { // logs count a slot once, in any order of restoring
		order = rapid.Permutation([]int{0, 1, 2}).Draw(r, "another order")
	}
	h.stepOverEnds()
	began := h.virtual(h.s.Time(ctx).Val().UnixMicro())
	if h.expire(began); h.unclear {
		return
	}
	if err := h.s.FlushAll(ctx).Err(); err != nil {
		r.Fatal(err)
	}
	if back != nil {
		h.setBack(r, back)
	}
	connection := h.s.Conn()
	defer func() { _ = connection.Close() }()
	for _, by := range order {
		if err := h.limiters[by].Restore(ctx, connection); err != nil {
			r.Fatal(err)
		}
	}
	now := h.virtual(h.s.Time(ctx).Val().UnixMicro())
	had, unclear := back.stillThere(began, now)
	h.unclear = h.model.lose(h.replicas[0], had, order, began, now) || unclear
	h.learnEnds(r)
	// Real healing takes time, so later admissions never share the time of an earlier one.
	if h.s.embedded != nil {
		h.advance(time.Microsecond)
	}
	h.lossy.counts.losses++
	h.operations++
}

// learnEnds copies the expiry of restored keys to the model. Other tests check these times.
func (h *history) learnEnds(r *rapid.T) {
	learn := func(key string, holds bool, ends *int64) {
		at := h.s.PExpireTime(h.t.Context(), key).Val()
		switch {
		case at == -1:
			r.Fatalf("%s never expires\n%s", key, h.s.contents(h.t))
		case holds && at < 0: // without the key, none of its entries counted
			*ends = 0
		case holds:
			*ends = h.virtual(at.Microseconds()) - 1000
		}
	}
	for name, s := range h.model.scopes {
		key := strings.Replace(name, " ", ":", 1)
		learn("{n}:"+key, len(s.log) > 0, &s.logEnds)
		learn("{n}:buckets:"+key, len(s.buckets) > 0, &s.bucketsEnd)
	}
	learn("{n}:inflight", h.model.anyInFlight(), &h.model.inFlightEnds)
	learn("{n}:sent", len(h.model.sent) > 0, &h.model.sentEnds)
}

// stillThere returns the model of a copy without the keys that have expired by now, or nil without a copy.
// The store was set back between began and now. unclear reports that a key expires too close to that.
func (back *copied) stillThere(began, now int64) (had *model, unclear bool) {
	if back == nil {
		return nil, false
	}
	had = back.model.copy()
	for set, at := range had.ends() {
		end := had.end(at)
		if end <= now+endsBefore.Microseconds() {
			had.expire(set)
			unclear = unclear || end > began-endsAfter.Microseconds()
		}
	}
	return had, unclear
}

// setBack fills an empty store with the copy, made older by all advances since.
func (h *history) setBack(r *rapid.T, back *copied) {
	ctx := h.t.Context()
	pipe := h.s.Pipeline()
	for name, key := range back.keys {
		switch key.kind {
		case "zset":
			pipe.ZAdd(ctx, name, key.entries...)
		case "hash":
			pipe.HSet(ctx, name, key.fields)
		case "string":
			pipe.Set(ctx, name, key.text, 0)
		}
		if key.ends > 0 {
			pipe.PExpireAt(ctx, name, time.UnixMilli(key.ends.Milliseconds()))
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		r.Fatal(err)
	}
	if passed := h.s.aged - back.aged; passed != 0 && h.s.embedded == nil {
		if err := age.Run(ctx, h.s.Client, nil, passed.Microseconds()).Err(); err != nil && err != redis.Nil {
			r.Fatal(err)
		}
	}
}

// begunInStore returns the stored time at which a post began, and corrects the worker's journal to it.
func (h *history) begunInStore(r *rapid.T, limiter caller, post ratelimit.Post) int64 {
	for _, record := range h.s.HGetAll(h.t.Context(), "{n}:inflight").Val() {
		state, _, _ := strings.Cut(record, " ")
		if fields := strings.Split(state, ":"); len(fields) == 4 && fields[3] == post.Name {
			begun, err := strconv.ParseInt(fields[2], 10, 64)
			if err != nil {
				r.Fatal(err)
			}
			limiter.JournalTimes(post.Request, begun, 0)
			return begun
		}
	}
	r.Fatalf("%+v has begun, and is not found\n%s", post, h.s.contents(h.t))
	return 0
}
