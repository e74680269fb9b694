package ratelimit_test

import (
	"errors"
	"flag"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// TestTheScriptsDecideLikeTheModel plays random histories to the scripts and to the model, and compares all
// of each decision: verdict, tier, slots used and wait. The model shares only the server's clock.
//
// An operation is one compared verdict, or one refund, record, wait or SCRIPT FLUSH. A redis-server must
// reach 200 for each of rapid's checks. "make prove N=1000" plays more.
func TestTheScriptsDecideLikeTheModel(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		operations := 0
		client := patient(t, s.Client)
		client.AddHook(s.replies)
		// Histories have random lengths. Up to two more rounds follow if the first one falls short.
		least := 0
		if s.server != nil && !testing.Short() {
			checks, err := strconv.Atoi(flag.Lookup("rapid.checks").Value.String())
			kit.Check(t, err)
			least = 200 * checks
		}
		for round := 0; round == 0 || (operations < least && round < 3 && !t.Failed()); round++ {
			for name, replicas := range map[string]int{"one set of rules": 1, "changing rules": 3} {
				t.Run(name, func(t *testing.T) {
					rapid.Check(t, func(r *rapid.T) {
						h := newHistory(t, r, s, client, replicas)
						r.Repeat(map[string]func(*rapid.T){
							"admit": h.admit, "admit again": h.admit, "admit once more": h.admit, "dry run": h.dryRun,
							"wait": h.wait, "sent": h.sent, "refund": h.refund, "begin": h.begin, "answer": h.answer, "trace": h.trace, "forget scripts": h.forgetScripts,
						})
						operations += h.operations
					})
				})
			}
			compared, counts := 0, lossyCounts{}
			t.Run("store loss", func(t *testing.T) {
				rapid.Check(t, func(r *rapid.T) {
					h := newLossyHistory(t, r, s, client)
					r.Repeat(map[string]func(*rapid.T){
						"admit": h.admit, "admit again": h.admit, "admit once more": h.admit, "dry run": h.dryRun,
						"wait": h.wait, "sent": h.sent, "refund": h.refund, "begin": h.begin, "answer": h.answer, "trace": h.trace, "keep a copy": h.keepCopy, "lose": h.lose, "lose more": h.lose,
						"change limits": h.change,
					})
					compared += h.operations
					counts.add(h.lossy.counts)
				})
			})
			t.Logf("%d operations compared around %d losses of the store, %d redelivered events and %d changes of limits",
				compared, counts.losses, counts.redelivered, counts.changes)
			operations += playSteered(t, s, client)
		}
		t.Logf("%d operations compared", operations)
		if operations < least {
			t.Errorf("%d operations, expected %d or more", operations, least)
		}
	})
}

// history is one random run. In some histories the clock also steps back. There keys never expire and
// nothing is refunded, because after a step back either would affect how much of the past Redis remembers,
// which the model does not track.
//
// A history with changing rules has several workers with different rules. They call in any order, as during
// an update, and now and then one leaves, until only one is left.
type history struct {
	t          *testing.T
	s          *store
	limiters   []caller
	replicas   []replica
	model      *model
	mixed      bool // several sets of rules
	steps      bool // the clock also steps back
	windows    []time.Duration
	costs      []int
	posts      int // begun so far; the number is part of the name
	asked      []ratelimit.Request
	waits      []time.Duration // RetryAfter of all refusals
	longest    time.Duration   // the longest window of any rule
	decided    int64           // the latest time of a decision, also before the clock stepped back
	operations int
	lossy      *lossy
	steered    *steered
	unclear    bool // a key expired too close to a decision to compare the rest
}

// patient opens another client of a server, with a long timeout and without retries. If a busy machine made
// a call time out, a retry would see the slots that the first call had charged.
func patient(t *testing.T, client *redis.Client) *redis.Client {
	t.Helper()
	another := redis.NewClient(&redis.Options{Addr: client.Options().Addr, MaxRetries: -1, ReadTimeout: 30 * time.Second})
	t.Cleanup(func() { _ = another.Close() })
	return another
}

func newHistory(t *testing.T, r *rapid.T, s *store, client redis.UniversalClient, replicas int) *history {
	h := &history{t: t, s: s, windows: windows, mixed: replicas > 1}
	h.model = newModel(func() int64 { return s.aged.Microseconds() })
	h.steps = replicas == 1 && rapid.Bool().Draw(r, "steps back")
	if h.steps || replicas > 1 {
		h.windows = longWindows
	}
	if err := s.FlushAll(t.Context()).Err(); err != nil {
		r.Fatal(err)
	}
	// The start is drawn too, so that replaying a history repeats its fixed windows.
	if s.embedded != nil {
		s.startAt(time.Duration(rapid.Int64Range(0, 2*time.Hour.Microseconds()).Draw(r, "begins after")) * time.Microsecond)
	}
	// A short dedupe window forgets sent ids at once, and lets keys expire during a history.
	dedupes := []time.Duration{time.Hour, 2 * time.Hour}
	if !h.steps {
		dedupes = append(dedupes, 6*time.Second, time.Millisecond)
	}
	for range replicas {
		chosen, dedupe := anyRules(r, h.windows), rapid.SampledFrom(dedupes).Draw(r, "dedupe")
		h.replicas = append(h.replicas, newReplica(chosen, dedupe))
		limiter, err := ratelimit.New(client, "n", chosen, dedupe)
		if err != nil {
			r.Fatal(err)
		}
		h.limiters = append(h.limiters, caller{Limiter: limiter, t: t})
		h.longest = max(h.longest, chosen.LongestWindow())
	}
	h.costs = costsFor(h.replicas)
	return h
}

// which draws the worker that makes the next call. Now and then it removes one for good.
func (h *history) which(r *rapid.T) (caller, replica) {
	if n := len(h.replicas); n > 1 && h.lossy == nil && rapid.IntRange(0, 19).Draw(r, "one leaves") == 0 {
		h.replicas, h.limiters = h.replicas[1:], h.limiters[1:]
	}
	i := rapid.IntRange(0, len(h.replicas)-1).Draw(r, "worker")
	return h.limiters[i], h.replicas[i]
}

// virtual adds all advances of a redis-server to a time by its clock; see store.advance.
func (h *history) virtual(clock int64) int64 { return clock + h.s.aged.Microseconds() }

// Histories decide nothing close to the expiry of a key. If rules change, it matters whether a key has
// expired, because its slots would still count in a longer window. A key expires with the whole millisecond
// of the server's clock after the last time that it must reach. A redis-server reads its clock slightly
// before the script does, and the embedded store rounds.
const (
	endsBefore  = 25 * time.Millisecond // more than most calls take
	endsAfter   = 3 * time.Millisecond
	endsRounded = time.Millisecond
)

func (h *history) stepOverEnds() {
	if h.steps || h.s.server == nil {
		return
	}
	for near := true; near; {
		near = false
		now := h.virtual(h.s.Time(h.t.Context()).Val().UnixMicro())
		for _, at := range h.model.ends() {
			if left := h.model.end(at) - now; left > -endsAfter.Microseconds() && left < endsBefore.Microseconds() {
				near = true
			}
		}
		if near {
			h.advance(endsBefore + endsAfter)
		}
	}
}

func (h *history) expire(clock int64) {
	if h.steps {
		return
	}
	after := endsAfter
	if h.s.embedded != nil {
		after = endsRounded
	}
	for scope, at := range h.model.ends() {
		over := clock - h.model.end(at)
		if over >= 0 {
			h.model.expire(scope)
			h.unclear = h.unclear || over < after.Microseconds()
		}
	}
}

func (h *history) admit(r *rapid.T) {
	if h.unclear {
		return
	}
	most := 15
	if h.s.embedded != nil { // slow Lua
		most = 6
	}
	batch := make([]ratelimit.Request, rapid.IntRange(1, most).Draw(r, "size"))
	limiter, asking := caller{}, replica{}
	if h.lossy != nil {
		limiter, asking = h.requestsOfOne(r, batch)
	} else {
		for i := range batch {
			batch[i] = h.request(r)
		}
		limiter, asking = h.which(r)
	}
	h.stepOverEnds()
	got, err := limiter.Admit(h.t.Context(), batch)
	if err != nil {
		r.Fatal(err)
	}
	clock, lag := h.s.clock(h.t)
	clock = h.virtual(clock)
	h.decided = max(h.decided, h.model.now(clock))
	if h.expire(clock); h.unclear {
		return
	}
	if want := h.model.now(clock) - clock; lag != want {
		r.Fatalf("the deciding clock is ahead of TIME by %d us, expected %d", lag, want)
	}
	before := h.model.copy()
	want := h.model.decideBatch(asking, clock, batch)
	for _, decision := range want {
		if decision.RetryAfter > 0 {
			h.waits = append(h.waits, decision.RetryAfter)
		}
	}
	if difference := cmp.Diff(want, got); difference != "" {
		r.Fatalf("%+v under %+v at %d (-model +script):\n%s\n%s\n%s", batch, asking, clock, difference, before, h.s.contents(h.t))
	}
	h.noteSteered(asking, batch, want)
	h.operations += len(batch)
	h.asked = append(h.asked, batch...)
	h.keep()
}

// dryRun compares the decision of a dry run. The model does not change, so a later decision would differ if
// the dry run wrote anything.
func (h *history) dryRun(r *rapid.T) {
	if h.unclear {
		return
	}
	request := anyRequest(h.costs).Draw(r, "request")
	limiter, asking := h.which(r)
	h.stepOverEnds()
	got, err := limiter.DryRun(h.t.Context(), request.Category, request.Cost)
	if h.lossy != nil && errors.Is(err, ratelimit.ErrHealing) {
		return
	}
	if err != nil {
		r.Fatal(err)
	}
	clock, _ := h.s.clock(h.t)
	clock = h.virtual(clock)
	if h.expire(clock); h.unclear {
		return
	}
	want := h.model.copy().decideBatch(asking, clock, []ratelimit.Request{{Category: request.Category, Cost: request.Cost}})[0]
	if difference := cmp.Diff(want, got); difference != "" {
		r.Fatalf("dry run of %+v under %+v at %d (-model +script):\n%s\n%s", request, asking, clock, difference, h.s.contents(h.t))
	}
	h.noteSteered(asking, []ratelimit.Request{request}, []ratelimit.Decision{want})
	h.operations++
}

// keep removes the expiry of all keys if the history steps back.
func (h *history) keep() {
	if !h.steps {
		return
	}
	for _, key := range h.s.Keys(h.t.Context(), "*").Val() {
		h.s.Persist(h.t.Context(), key)
	}
}

// wait advances the clock by a random time, or by the wait of the latest refusal, give or take a
// microsecond. In a history that steps back, it may step back instead.
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
	h.advance(step)
	h.operations++
}

// trace looks up an id without its category. It skips changing rules: there the index may forget an event
// that only the dedupe window of another worker still covers.
func (h *history) trace(r *rapid.T) {
	if h.unclear || len(h.asked) == 0 || h.mixed {
		r.Skip("nothing to find")
	}
	id := rapid.SampledFrom(h.asked).Draw(r, "request").ID
	limiter, asking := h.which(r)
	h.stepOverEnds()
	traces, err := limiter.Trace(h.t.Context(), id)
	if err != nil {
		r.Fatal(err)
	}
	now := h.virtual(h.s.Time(h.t.Context()).Val().UnixMicro())
	if h.expire(now); h.unclear {
		return
	}
	got := map[identity]ratelimit.Trace{}
	for _, trace := range traces {
		for _, t := range []*time.Time{&trace.Admitted, &trace.Sent, &trace.LastPost} {
			if !t.IsZero() {
				*t = microTime(h.virtual(t.UnixMicro()))
			}
		}
		got[identity{trace.Category, trace.Source, id}] = trace
	}
	want := h.model.trace(id)
	unindexed := max(h.decided, h.model.now(now)) - asking.dedupe - asking.retention
	for of := range want { // sent also records events that were never admitted
		if _, found := got[of]; !found && h.model.indexed[identity{category: of.category, source: of.source}] <= unindexed {
			delete(want, of)
		}
	}
	if h.lossy != nil { // a store that was set back may still have entries that no longer count
		over := func(_ identity, t ratelimit.Trace) bool {
			life := asking.retention
			if t.Posts > 0 {
				life = asking.remembers()
			}
			if t.InFlight {
				return max(t.Admitted.UnixMicro(), t.LastPost.UnixMicro()) <= now-life
			}
			return t.Sent.UnixMicro() <= now-asking.dedupe
		}
		maps.DeleteFunc(got, over)
		maps.DeleteFunc(want, over)
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
