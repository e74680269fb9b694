package ratelimit_test

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
)

// TestTheScriptsDecideLikeTheModel plays random histories to the scripts and to the model and compares every answer
// whole: outcome, tier, slots used and freeing time. The model is told the server's clock, nothing else.
//
// An operation is one verdict compared, or one refund, record, wait or SCRIPT FLUSH. On a redis-server 20,000 are the
// least; for more: make prove N=1000.
func TestTheScriptsDecideLikeTheModel(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		operations := 0
		client := patient(t, s.Client)
		client.AddHook(s.replies)
		// How long a history is, chance says; so there is another round where the first one has fallen short.
		wanted := s.server != nil && !testing.Short() && flag.Lookup("rapid.checks").Value.String() == "100"
		for round := 0; round == 0 || (wanted && operations < 20_000 && round < 3 && !t.Failed()); round++ {
			for name, replicas := range map[string]int{"one set of rules": 1, "changing rules": 3} {
				t.Run(name, func(t *testing.T) {
					rapid.Check(t, func(r *rapid.T) {
						h := newHistory(t, r, s, client, replicas)
						r.Repeat(map[string]func(*rapid.T){
							"admit": h.admit, "admit again": h.admit, "admit once more": h.admit,
							"wait": h.wait, "sent": h.sent, "refund": h.refund, "trace": h.trace, "forget scripts": h.forgetScripts,
						})
						operations += h.operations
					})
				})
			}
		}
		t.Logf("%d operations compared", operations)
		if wanted && operations < 20_000 {
			t.Errorf("%d operations, expected 20,000 or more", operations)
		}
	})
}

// history is one random run. Its clock either only goes forward, with keys that expire as they will, or it steps back
// too; then keys never expire and nothing is refunded, because after a step back both leave open how much of the past
// is still remembered, which the model does not follow.
//
// Where rules change, several replicas ask, each with rules of its own: any of them at any time, as when old and new
// ones run side by side, or from some moment on only one.
type history struct {
	t          *testing.T
	s          *store
	limiters   []caller
	replicas   []replica
	model      *model
	mixed      bool // there are several sets of rules
	steps      bool // the clock steps back now and then
	windows    []time.Duration
	asked      []ratelimit.Request
	waits      []time.Duration // until what was refused would fit
	longest    time.Duration   // the longest window of any rule
	operations int
	unclear    bool // a key came to its end at the very moment of a decision: the rest cannot be compared
}

// Where keys must not expire, windows are too long for that to happen between an answer and keep.
var (
	windows     = []time.Duration{time.Millisecond, 3 * time.Millisecond, 40 * time.Millisecond, 400 * time.Millisecond, 10 * time.Second, time.Hour}
	longWindows = []time.Duration{10 * time.Second, 25 * time.Second, 2 * time.Minute, time.Hour}
)

func anyTiers(windows []time.Duration, most int) *rapid.Generator[ratelimit.Limit] {
	return rapid.Custom(func(r *rapid.T) ratelimit.Limit {
		chosen := rapid.SliceOfNDistinct(rapid.SampledFrom(windows), 1, 3, rapid.ID).Draw(r, "windows")
		limit := make(ratelimit.Limit, len(chosen))
		for i, window := range chosen {
			limit[i] = ratelimit.Tier{Count: rapid.IntRange(1, most).Draw(r, "count"), Window: window}
		}
		return limit
	})
}

// patient is one more client of a server. It waits long, and makes no call again: on a busy machine an answer could be
// lost, and a call that is made again is told of what the first has charged.
func patient(t *testing.T, client *redis.Client) *redis.Client {
	t.Helper()
	another := redis.NewClient(&redis.Options{Addr: client.Options().Addr, MaxRetries: -1, ReadTimeout: 30 * time.Second})
	t.Cleanup(func() { _ = another.Close() })
	return another
}

func newHistory(t *testing.T, r *rapid.T, s *store, client redis.UniversalClient, replicas int) *history {
	h := &history{t: t, s: s, windows: windows, model: newModel(), mixed: replicas > 1}
	h.steps = replicas == 1 && rapid.Bool().Draw(r, "steps back")
	if h.steps || replicas > 1 {
		h.windows = longWindows
	}
	if err := s.FlushAll(t.Context()).Err(); err != nil {
		r.Fatal(err)
	}
	global, category := anyTiers(h.windows, 8), anyTiers(h.windows, 5)
	for range replicas {
		chosen := ratelimit.Rules{Global: global.Draw(r, "global"), Category: category.Draw(r, "category")}
		overrides := map[string]ratelimit.Limit{}
		for _, overridden := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"b", "c"}), 0, 2, rapid.ID).Draw(r, "overridden") {
			overrides[overridden] = category.Draw(r, "override")
		}
		chosen.Overrides = pattern.MustTable(overrides)
		dedupe := rapid.SampledFrom([]time.Duration{time.Millisecond, 6 * time.Second, 2 * time.Hour}).Draw(r, "dedupe")
		h.replicas = append(h.replicas, newReplica(chosen, dedupe))
		limiter, err := ratelimit.New(client, "n", chosen, dedupe)
		if err != nil {
			r.Fatal(err)
		}
		h.limiters = append(h.limiters, caller{Limiter: limiter, t: t})
		h.longest = max(h.longest, time.Duration(h.replicas[len(h.replicas)-1].retention)*time.Microsecond)
	}
	return h
}

// which replica asks next. Now and then one of them is gone for good.
func (h *history) which(r *rapid.T) (caller, replica) {
	if n := len(h.replicas); n > 1 && rapid.IntRange(0, 19).Draw(r, "one leaves") == 0 {
		h.replicas, h.limiters = h.replicas[1:], h.limiters[1:]
	}
	i := rapid.IntRange(0, len(h.replicas)-1).Draw(r, "replica")
	return h.limiters[i], h.replicas[i]
}

// virtual is the server's clock with all that has been waited for. See store.advance.
func (h *history) virtual(clock int64) int64 { return clock + h.s.aged.Microseconds() }

// Where rules change it matters that a set has expired: with it goes what a longer window would still count. Its end
// is in whole milliseconds of the server's clock, one after the last that it must live; a redis-server looks at its
// clock a moment before the script does. So nothing is decided close to an end.
const (
	endsBefore = 25 * time.Millisecond // more than most calls take
	endsAfter  = 3 * time.Millisecond
)

func (h *history) end(at int64) int64 {
	return h.virtual(((at-h.s.aged.Microseconds())/1000 + 1) * 1000)
}

func (h *history) stepOverEnds() {
	if h.steps || h.s.server == nil {
		return
	}
	for near := true; near; {
		near = false
		now := h.virtual(h.s.Time(h.t.Context()).Val().UnixMicro())
		for _, at := range h.model.ends() {
			if left := h.end(at) - now; left > -endsAfter.Microseconds() && left < endsBefore.Microseconds() {
				near = true
			}
		}
		if near {
			h.s.advance(h.t, endsBefore+endsAfter)
		}
	}
}

func (h *history) expire(clock int64) {
	if h.steps {
		return
	}
	for scope, at := range h.model.ends() {
		over := clock - h.end(at)
		if over >= 0 {
			h.model.expire(scope)
			h.unclear = h.unclear || h.s.server != nil && over < endsAfter.Microseconds()
		}
	}
}

func (h *history) request(r *rapid.T) ratelimit.Request {
	if len(h.asked) > 0 && rapid.IntRange(0, 3).Draw(r, "repeat") == 0 {
		return rapid.SampledFrom(h.asked).Draw(r, "of")
	}
	category := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(r, "category")
	source := rapid.SampledFrom([]string{"", "", "", "s", "a source"}).Draw(r, "source")
	cost := rapid.SampledFrom([]int{1, 1, 1, 1, 2, 3, 6}).Draw(r, "cost")
	return ratelimit.Request{
		ID:     fmt.Sprintf("e%d", rapid.IntRange(1, 12).Draw(r, "id")),
		Source: source,
		// One message has one category, one source and one cost.
		Delivery: fmt.Sprintf("m%d/%s/%s/%d", rapid.IntRange(1, 2).Draw(r, "message"), category, source, cost),
		Category: category,
		Cost:     cost,
	}
}

func (h *history) admit(r *rapid.T) {
	if h.unclear {
		return
	}
	most := 15
	if h.s.embedded != nil { // its Lua is slow
		most = 6
	}
	batch := make([]ratelimit.Request, rapid.IntRange(1, most).Draw(r, "size"))
	for i := range batch {
		batch[i] = h.request(r)
	}
	limiter, asking := h.which(r)
	h.stepOverEnds()
	got, err := limiter.Admit(h.t.Context(), batch)
	if err != nil {
		r.Fatal(err)
	}
	clock, lag := h.s.clock(h.t)
	clock = h.virtual(clock)
	if h.expire(clock); h.unclear {
		return
	}
	if want := h.model.now(clock) - clock; lag != want {
		r.Fatalf("the deciding clock is ahead of TIME by %d us, expected %d", lag, want)
	}
	want := make([]ratelimit.Decision, len(batch))
	for i, request := range batch {
		want[i] = h.model.decide(asking, clock, request)
		if want[i].RetryAfter > 0 {
			h.waits = append(h.waits, want[i].RetryAfter)
		}
	}
	if difference := cmp.Diff(want, got); difference != "" {
		r.Fatalf("%+v at %d (-model +script):\n%s\n%s", batch, clock, difference, h.s.contents(h.t))
	}
	h.operations += len(batch)
	h.asked = append(h.asked, batch...)
	h.keep()
}

// keep removes the keys' expiry where the clock steps back.
func (h *history) keep() {
	if !h.steps {
		return
	}
	for _, key := range h.s.Keys(h.t.Context(), "*").Val() {
		h.s.Persist(h.t.Context(), key)
	}
}

// wait lets time pass: any, or until just before, at or after the time for which a refusal has asked.
func (h *history) wait(r *rapid.T) {
	if h.unclear {
		return
	}
	steps := []*rapid.Generator[time.Duration]{
		rapid.Map(rapid.Int64Range(0, 5000), func(us int64) time.Duration { return time.Duration(us) * time.Microsecond }),
		rapid.Map(rapid.SampledFrom(h.windows), func(w time.Duration) time.Duration { return min(w, h.longest) }),
		rapid.Map(rapid.SampledFrom(h.windows), func(w time.Duration) time.Duration { return min(w, h.longest) / 3 }),
	}
	if n := len(h.waits); n > 0 {
		steps = append(steps, rapid.Map(rapid.IntRange(-1, 1), func(us int) time.Duration {
			return max(0, h.waits[n-1]+time.Duration(us)*time.Microsecond)
		}))
	}
	step := rapid.OneOf(steps...).Draw(r, "for")
	if h.steps && rapid.IntRange(0, 3).Draw(r, "back") == 0 {
		step = -step
	}
	h.s.advance(h.t, step)
	h.operations++
}

func (h *history) sent(r *rapid.T) {
	if h.unclear {
		return
	}
	if len(h.asked) == 0 {
		r.Skip("nothing was asked")
	}
	request := rapid.SampledFrom(h.asked).Draw(r, "request")
	limiter, asking := h.which(r)
	h.stepOverEnds()
	if err := limiter.Sent(h.t.Context(), request); err != nil {
		r.Fatal(err)
	}
	at := h.virtual(h.s.latest().(int64))
	if h.expire(at); h.unclear {
		return
	}
	// Its reply is the time that it has recorded, which tells of the clock only where that is ahead of all admissions.
	if newest := h.model.now(0); at < newest {
		r.Fatalf("recorded as sent at %d, before the newest admission at %d", at, newest)
	}
	h.model.markSent(asking, request, at)
	h.operations++
	h.keep()
}

func (h *history) refund(r *rapid.T) {
	if h.unclear {
		return
	}
	if len(h.asked) == 0 || h.steps {
		r.Skip("nothing to refund")
	}
	request := rapid.SampledFrom(h.asked).Draw(r, "request")
	limiter, asking := h.which(r)
	h.stepOverEnds()
	got, err := limiter.Refund(h.t.Context(), request, "")
	if err != nil {
		r.Fatal(err)
	}
	now := h.virtual(h.s.Time(h.t.Context()).Val().UnixMicro())
	if h.expire(now); h.unclear {
		return
	}
	// A record that is stale may be gone by now or not; nothing depends on it.
	stale := true
	for _, a := range h.model.admissions {
		if a.is(request) && a.at > now-h.model.keep(globalScope, asking.retention) {
			stale = false
		}
	}
	if want := h.model.refund(request); got != want && !stale {
		r.Fatalf("refund of %+v: %t, expected %t", request, got, want)
	}
	h.operations++
}

// trace asks for an id without its category. Where rules change, the index may forget what only another replica's dedupe
// window still knows.
func (h *history) trace(r *rapid.T) {
	if h.unclear || len(h.asked) == 0 || h.mixed {
		r.Skip("nothing to find")
	}
	id := rapid.SampledFrom(h.asked).Draw(r, "request").ID
	limiter, asking := h.which(r)
	h.stepOverEnds()
	traces, err := limiter.Trace(h.t.Context(), id, "")
	if err != nil {
		r.Fatal(err)
	}
	now := h.virtual(h.s.Time(h.t.Context()).Val().UnixMicro())
	if h.expire(now); h.unclear {
		return
	}
	got := map[identity]ratelimit.Trace{}
	for _, trace := range traces {
		for _, t := range []*time.Time{&trace.Admitted, &trace.Sent} {
			if !t.IsZero() {
				*t = microTime(h.virtual(t.UnixMicro()))
			}
		}
		got[identity{trace.Category, trace.Source, id}] = trace
	}
	want := h.model.trace(id)
	for of := range want { // this test also records as sent what nothing was admitted for
		if _, found := got[of]; !found && h.model.indexed[identity{category: of.category, source: of.source}] <= h.model.now(now)-asking.dedupe-asking.retention {
			delete(want, of)
		}
	}
	if difference := cmp.Diff(want, got); difference != "" {
		r.Fatalf("trace of %s (-model +found):\n%s\n%s", id, difference, h.s.contents(h.t))
	}
	h.operations++
}

func (h *history) forgetScripts(r *rapid.T) {
	if err := h.s.ScriptFlush(h.t.Context()).Err(); err != nil {
		r.Fatal(err)
	}
	h.operations++
}
