package ratelimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"notifier/internal/ratelimit"
)

// TestTheScriptsDecideLikeTheModel plays random histories to the scripts and to the model and compares every answer
// whole: outcome, tier, slots used and freeing time. The model is told the server's clock, nothing else.
func TestTheScriptsDecideLikeTheModel(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		operations := 0
		rapid.Check(t, func(r *rapid.T) {
			h := newHistory(t, r, s)
			r.Repeat(map[string]func(*rapid.T){
				"admit": h.admit, "admit again": h.admit, "wait": h.wait, "sent": h.sent, "refund": h.refund, "forget scripts": h.forgetScripts,
				"": func(*rapid.T) { operations++ },
			})
		})
		t.Logf("%d operations compared", operations)
	})
}

// history is one random run. Its clock either only goes forward, with keys that expire as they will, or it steps back
// too; then keys never expire and nothing is refunded, because after a step back both leave open how much of the past
// is still remembered, which the model does not follow.
type history struct {
	t       *testing.T
	s       *store
	limiter caller
	model   *model
	steps   bool // the clock steps back now and then
	windows []time.Duration
	asked   []ratelimit.Request
	waits   []time.Duration // until what was refused would fit
	longest time.Duration   // the longest window of any rule
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

func newHistory(t *testing.T, r *rapid.T, s *store) *history {
	h := &history{t: t, s: s, steps: rapid.Bool().Draw(r, "steps back"), windows: windows}
	if h.steps {
		h.windows = longWindows
	}
	global, category := anyTiers(h.windows, 8), anyTiers(h.windows, 5)
	chosen := ratelimit.Rules{Global: global.Draw(r, "global"), Category: category.Draw(r, "category"), Overrides: map[string]ratelimit.Limit{}}
	for _, overridden := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"b", "c"}), 0, 2, rapid.ID).Draw(r, "overridden") {
		chosen.Overrides[overridden] = category.Draw(r, "override")
	}
	dedupe := rapid.SampledFrom([]time.Duration{time.Millisecond, 6 * time.Second, 2 * time.Hour}).Draw(r, "dedupe")
	h.model = newModel(chosen, dedupe)
	h.longest = time.Duration(h.model.retention) * time.Microsecond
	if err := s.FlushAll(t.Context()).Err(); err != nil {
		r.Fatal(err)
	}
	h.limiter = s.limiter(t, chosen, dedupe)
	return h
}

// virtual is the server's clock with all that has been waited for. See store.advance.
func (h *history) virtual(clock int64) int64 { return clock + h.s.aged.Microseconds() }

func (h *history) request(r *rapid.T) ratelimit.Request {
	if len(h.asked) > 0 && rapid.IntRange(0, 3).Draw(r, "repeat") == 0 {
		return rapid.SampledFrom(h.asked).Draw(r, "of")
	}
	category := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(r, "category")
	cost := rapid.SampledFrom([]int{1, 1, 1, 1, 2, 3, 6}).Draw(r, "cost")
	return ratelimit.Request{
		ID: fmt.Sprintf("e%d", rapid.IntRange(1, 20).Draw(r, "id")),
		// One message has one category and one cost.
		Delivery: fmt.Sprintf("m%d/%s/%d", rapid.IntRange(1, 2).Draw(r, "message"), category, cost),
		Category: category,
		Cost:     cost,
	}
}

func (h *history) admit(r *rapid.T) {
	batch := make([]ratelimit.Request, rapid.IntRange(1, 7).Draw(r, "size"))
	for i := range batch {
		batch[i] = h.request(r)
	}
	got, err := h.limiter.Admit(h.t.Context(), batch)
	if err != nil {
		r.Fatal(err)
	}
	clock, lag := h.s.clock(h.t)
	clock = h.virtual(clock)
	if want := h.model.now(clock) - clock; lag != want {
		r.Fatalf("the deciding clock is ahead of TIME by %d us, expected %d", lag, want)
	}
	want := make([]ratelimit.Decision, len(batch))
	for i, request := range batch {
		want[i] = h.model.decide(clock, request)
		if want[i].RetryAfter > 0 {
			h.waits = append(h.waits, want[i].RetryAfter)
		}
	}
	if difference := cmp.Diff(want, got); difference != "" {
		r.Fatalf("%+v at %d (-model +script):\n%s\n%s", batch, clock, difference, h.s.contents(h.t))
	}
	h.asked = append(h.asked, batch...)
	h.keep()
}

// keep takes the keys' ends away where the clock steps back.
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
}

func (h *history) sent(r *rapid.T) {
	if len(h.asked) == 0 {
		r.Skip("nothing was asked")
	}
	request := rapid.SampledFrom(h.asked).Draw(r, "request")
	if err := h.limiter.Sent(h.t.Context(), request); err != nil {
		r.Fatal(err)
	}
	at := h.virtual(h.s.latest().(int64))
	// Its reply is the time that it has recorded, which tells of the clock only where that is ahead of all admissions.
	if newest := h.model.now(0); at < newest {
		r.Fatalf("recorded as sent at %d, before the newest admission at %d", at, newest)
	}
	h.model.markSent(request.ID, at)
	h.keep()
}

func (h *history) refund(r *rapid.T) {
	if len(h.asked) == 0 || h.steps {
		r.Skip("nothing to refund")
	}
	request := rapid.SampledFrom(h.asked).Draw(r, "request")
	got, err := h.limiter.Refund(h.t.Context(), request)
	if err != nil {
		r.Fatal(err)
	}
	now := h.virtual(h.s.Time(h.t.Context()).Val().UnixMicro())
	// A record that is stale may be gone by now or not; nothing depends on it.
	stale := true
	for _, a := range h.model.admissions {
		if a.request.ID == request.ID && a.at > now-h.model.retention {
			stale = false
		}
	}
	if want := h.model.refund(request); got != want && !stale {
		r.Fatalf("refund of %+v: %t, expected %t", request, got, want)
	}
}

func (h *history) forgetScripts(r *rapid.T) {
	if err := h.s.ScriptFlush(h.t.Context()).Err(); err != nil {
		r.Fatal(err)
	}
}
