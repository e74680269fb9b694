package ratelimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// TestPermitsAreAsTheModelGivesThem plays random histories of posts, answers, repeated calls and clock steps,
// by replicas with different paces, and compares each answer to the microsecond. It needs a clock that stands
// still between two calls, so it runs on the embedded store; what it finds there the other tests of the pace
// hold against a redis-server.
func TestPermitsAreAsTheModelGivesThem(t *testing.T) {
	redistest.EachStore(t, func(t *testing.T, _ *redistest.Server) {
		t.Skip("the clock of a redis-server cannot be set")
	}, func(t *testing.T, embedded *miniredis.Miniredis) {
		s := newEmbedded(t, embedded)
		client := patient(t, s.Client) // one for all histories, of which there may be thousands
		rapid.Check(t, func(r *rapid.T) {
			h := newPaceHistory(t, r, s, client)
			r.Repeat(map[string]func(*rapid.T){
				"begin": h.begin, "begin one more": h.begin, "begin again": h.beginAgain, "answer": h.answer, "wait": h.wait, "pauses": h.pauses,
			})
		})
	})
}

// paceHistory is one random run.
type paceHistory struct {
	t        *testing.T
	s        *store
	model    *paceModel
	replicas []caller
	paces    []ratelimit.Tier
	asked    []ratelimit.Post // in any order of answers
	waits    []time.Duration  // the last ones that were asked for
	names    int
}

func newPaceHistory(t *testing.T, r *rapid.T, s *store, client redis.UniversalClient) *paceHistory {
	kit.Check(t, client.FlushAll(t.Context()).Err())
	s.startAt(0) // a history that is played again begins at the same time
	h := &paceHistory{t: t, s: s, model: newPaceModel()}
	for range rapid.IntRange(1, 3).Draw(r, "replicas") {
		pace := ratelimit.Tier{}
		if rapid.IntRange(0, 4).Draw(r, "off") > 0 {
			pace.Count = rapid.IntRange(1, 4).Draw(r, "count")
			pace.Window = time.Duration(rapid.IntRange(1, 100).Draw(r, "window")) * 100 * time.Millisecond
		}
		rules := kit.Rules("10/30m", "10/30m", "")
		rules.Pace = pace
		h.paces = append(h.paces, pace)
		limiter, err := ratelimit.New(client, "n", rules, day)
		kit.Check(t, err)
		h.replicas = append(h.replicas, caller{Limiter: limiter, t: t})
	}
	return h
}

func (h *paceHistory) now() int64 { return h.s.now.UnixMicro() }

func (h *paceHistory) begin(r *rapid.T) {
	h.names++
	worker := rapid.SampledFrom([]string{"", "v", "w", "x"}).Draw(r, "worker")
	h.ask(r, ratelimit.Post{
		Worker: worker, Since: h.s.now.Add(-time.Duration(rapid.IntRange(0, 20).Draw(r, "waits for")) * time.Second),
		Name: fmt.Sprint("p", h.names), Channel: rapid.SampledFrom([]string{"#a", "C000000A", "C000000B"}).Draw(r, "channel"),
		Longest: time.Duration(rapid.IntRange(1, 12).Draw(r, "longest")) * time.Second,
		First:   worker == "" && rapid.IntRange(0, 2).Draw(r, "first") == 0,
	})
}

// beginAgain is a call whose answer was lost, or was to wait.
func (h *paceHistory) beginAgain(r *rapid.T) {
	if len(h.asked) > 0 {
		h.ask(r, rapid.SampledFrom(h.asked).Draw(r, "post"))
	}
}

func (h *paceHistory) ask(r *rapid.T, post ratelimit.Post) {
	i := rapid.IntRange(0, len(h.replicas)-1).Draw(r, "replica")
	want := h.model.begin(h.now(), h.paces[i], post)
	got, err := h.replicas[i].Begin(h.t.Context(), post)
	if err != nil {
		r.Fatal(err)
	}
	if difference := cmp.Diff(want, got); difference != "" {
		r.Fatalf("%+v (-model +script):\n%s\n%s", post, difference, h.s.contents(h.t))
	}
	if want.Wait > 0 {
		h.waits = append(h.waits, want.Wait)
	}
	h.asked = append(h.asked, post)
	h.asked = h.asked[max(0, len(h.asked)-8):]
}

func (h *paceHistory) answer(r *rapid.T) {
	if len(h.asked) == 0 {
		return
	}
	post := rapid.SampledFrom(h.asked).Draw(r, "post")
	answer := ratelimit.Answer{Channel: post.Channel, Name: post.Name}
	if rapid.IntRange(0, 2).Draw(r, "refused") == 0 {
		answer.RetryAfter = time.Duration(rapid.IntRange(1, 20).Draw(r, "retry after")) * time.Second
	}
	if answer.RetryAfter == 0 {
		answer.Posted = rapid.IntRange(0, 3).Draw(r, "failed") > 0
	}
	i := rapid.IntRange(0, len(h.replicas)-1).Draw(r, "replica")
	for range rapid.IntRange(1, 2).Draw(r, "times") {
		wantScope, wantLeft := h.model.answered(h.now(), answer)
		scope, left, err := h.replicas[i].Answered(h.t.Context(), answer)
		if err != nil || scope != wantScope || left != wantLeft {
			r.Fatalf("%+v: %d for %s, %v; expected %d for %s\n%s", answer, scope, left, err, wantScope, wantLeft, h.s.contents(h.t))
		}
	}
}

// wait lets some time pass, often just as much as a caller has to wait, or steps the clock back.
func (h *paceHistory) wait(r *rapid.T) {
	d := time.Duration(rapid.IntRange(0, 6_000_000).Draw(r, "microseconds")) * time.Microsecond
	switch how := rapid.IntRange(0, 5).Draw(r, "how"); {
	case how == 0:
		if d = -d / 6; h.model.revives(h.now(), h.now()+d.Microseconds()) {
			d = 0
		}
	case how <= 3 && len(h.waits) > 0:
		d = h.waits[len(h.waits)-1]
	}
	h.s.advance(h.t, d)
}

func (h *paceHistory) pauses(r *rapid.T) {
	got, err := h.replicas[0].Pauses(h.t.Context())
	if err != nil {
		r.Fatal(err)
	}
	found := map[string]int64{}
	for _, pause := range got {
		scope := pause.Channel
		if scope == "" {
			scope = "*"
		}
		found[scope] = h.now() + pause.Left.Microseconds()
	}
	want := map[string]int64{}
	for scope, ends := range h.model.pauses {
		if ends > h.now() {
			want[scope] = ends
		}
	}
	if difference := cmp.Diff(want, found); difference != "" {
		r.Fatalf("pauses (-model +script):\n%s", difference)
	}
}
