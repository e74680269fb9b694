package ratelimit_test

import (
	"fmt"
	"maps"
	"slices"
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

// paceModel models begin.lua and answered.lua for posts without an event, as plainly as possible. It searches
// all entries on every call, and keeps slots and pauses that no longer count. Times are microseconds.
type paceModel struct {
	slots   map[string]map[string]int64        // channel -> name of a post -> its time
	kept    map[string]map[string]int64        // the same for slots kept for a post
	waiting map[string]map[string]modelWaiting // channel -> worker
	pauses  map[string]int64                   // channel or "*" -> end
	probes  map[string]modelProbe              // channel or "*"
	refused map[string]bool                    // channels refused since the last successful post
}

type modelProbe struct {
	began, ends int64
	name        string
}

// modelWaiting is a worker's post that has waited longest.
type modelWaiting struct {
	name        string
	since, ends int64
}

const (
	modelSecond = int64(1_000_000)
	askAgain    = 200 * time.Millisecond
)

func newPaceModel() *paceModel {
	return &paceModel{
		slots: map[string]map[string]int64{}, kept: map[string]map[string]int64{},
		waiting: map[string]map[string]modelWaiting{},
		pauses:  map[string]int64{}, probes: map[string]modelProbe{}, refused: map[string]bool{},
	}
}

// probing returns the name of the post that probes a scope now, or "".
func (m *paceModel) probing(scope string, now int64) string {
	if p := m.probes[scope]; p.began <= now && now < p.ends {
		return p.name
	}
	return ""
}

func (m *paceModel) begin(now int64, pace ratelimit.Tier, post ratelimit.Post) ratelimit.Permit {
	wait, probesWorkspace := m.pausedFor("*", now, post.Name)
	if wait > 0 {
		return ratelimit.Permit{Status: ratelimit.WorkspacePaused, Wait: wait}
	}
	wait, probesChannel := m.pausedFor(post.Channel, now, post.Name)
	if wait > 0 {
		return ratelimit.Permit{Status: ratelimit.ChannelPaused, Wait: wait}
	}
	window := pace.Window.Microseconds()
	if pace.Count == 0 {
		window = 10 * modelSecond
	}
	if at, has := m.slots[post.Channel][post.Name]; !has || at+window <= now {
		older := m.older(now, pace, post)
		if frees := m.frees(now, post, older, pace.Count, window); frees > now {
			if post.First {
				put(m.kept, post.Channel, post.Name, frees)
			}
			late := min(modelSecond, window)
			room := max(0, m.frees(now, post, 0, pace.Count, window)-now)
			wait := min(frees-now, window, room+late)
			m.wait(post, now+wait+late)
			return ratelimit.Permit{Status: ratelimit.Paced, Wait: time.Duration(wait) * time.Microsecond}
		}
		delete(m.kept[post.Channel], post.Name)
		if pace.Count > 0 && post.Worker != "" && m.waiting[post.Channel][post.Worker].name == post.Name {
			delete(m.waiting[post.Channel], post.Worker)
		}
	}
	put(m.slots, post.Channel, post.Name, now+max(0, post.Longest.Microseconds()-window)) // also of a repeated call
	if probesWorkspace {
		m.probe("*", now, post)
	}
	if probesChannel {
		m.probe(post.Channel, now, post)
	}
	return ratelimit.Permit{Status: ratelimit.Granted, Posts: 1}
}

func (m *paceModel) probe(scope string, now int64, post ratelimit.Post) {
	m.probes[scope] = modelProbe{began: now, ends: now + post.Longest.Microseconds(), name: post.Name}
}

// pausedFor returns how long a pause holds the post back, and whether the post would be the probe after the
// pause.
func (m *paceModel) pausedFor(scope string, now int64, name string) (time.Duration, bool) {
	ends, is := m.pauses[scope]
	if !is || ends+60*modelSecond <= now {
		return 0, false
	}
	switch by := m.probing(scope, now); {
	case by == name:
		return 0, true
	case ends > now:
		return time.Duration(ends-now) * time.Microsecond, false
	case by != "":
		return askAgain, false
	}
	return 0, true
}

// older counts the waiting posts that come before this one, at most one of each worker.
func (m *paceModel) older(now int64, pace ratelimit.Tier, post ratelimit.Post) (older int) {
	if pace.Count == 0 || post.Worker == "" {
		return 0
	}
	waiting := m.waiting[post.Channel]
	window := pace.Window.Microseconds()
	latest := now + window + 2*min(modelSecond, window)
	maps.DeleteFunc(waiting, func(_ string, w modelWaiting) bool { return w.ends <= now || w.ends > latest })
	for _, w := range waiting {
		if w.name != post.Name && w.since < post.Since.UnixMicro() {
			older++
		}
	}
	return older
}

// wait enters a post for its worker, unless an older one is entered.
func (m *paceModel) wait(post ratelimit.Post, ends int64) {
	if post.Worker == "" {
		return
	}
	if m.waiting[post.Channel] == nil {
		m.waiting[post.Channel] = map[string]modelWaiting{}
	}
	w, waits := m.waiting[post.Channel][post.Worker]
	if !waits || w.name == post.Name || w.since >= post.Since.UnixMicro() {
		m.waiting[post.Channel][post.Worker] = modelWaiting{post.Name, post.Since.UnixMicro(), ends}
	}
}

// frees returns when the pace has room for a post behind others that wait, by the slots taken so far. Each
// window takes up to count of the others.
func (m *paceModel) frees(now int64, post ratelimit.Post, others, count int, window int64) int64 {
	if count > 0 && others >= count {
		return max(now, m.frees(now, post, others-count, count, window)) + window
	}
	times := slices.Collect(maps.Values(m.slots[post.Channel]))
	for other, at := range m.kept[post.Channel] {
		if other != post.Name {
			times = append(times, at)
		}
	}
	slices.Sort(times)
	slices.Reverse(times)
	if count == 0 || len(times) < count-others {
		return 0
	}
	return times[count-others-1] + window
}

func put(in map[string]map[string]int64, channel, name string, at int64) {
	if in[channel] == nil {
		in[channel] = map[string]int64{}
	}
	in[channel][name] = at
}

func (m *paceModel) answered(now int64, a ratelimit.Answer) (ratelimit.PauseScope, time.Duration) {
	put(m.slots, a.Channel, a.Name, now)
	if a.RetryAfter == 0 {
		if a.Posted {
			clear(m.refused)
		}
		for _, scope := range []string{"*", a.Channel} {
			if m.probes[scope].name == a.Name {
				// A later refusal would have removed the probe. So the pause ends, even after a set-back
				// of the clock.
				delete(m.probes, scope)
				delete(m.pauses, scope)
			}
		}
		return ratelimit.NoPause, 0
	}
	m.refused[a.Channel] = true
	scope, paused := ratelimit.PausedChannel, a.Channel
	m.pause(a.Channel, now+a.RetryAfter.Microseconds())
	if len(m.refused) > 1 {
		scope, paused = ratelimit.PausedWorkspace, "*"
		m.pause("*", now+a.RetryAfter.Microseconds())
	}
	return scope, time.Duration(m.pauses[paused]-now) * time.Microsecond
}

func (m *paceModel) pause(scope string, ends int64) {
	m.pauses[scope] = max(m.pauses[scope], ends)
	delete(m.probes, scope)
}

// revives reports whether a pause that no longer counts would count again if the clock were set back to then.
// The scripts may keep such a pause or remove it; the model keeps it.
func (m *paceModel) revives(now, then int64) bool {
	for _, ends := range m.pauses {
		if ends+60*modelSecond <= now && ends+60*modelSecond > then {
			return true
		}
	}
	return false
}

// TestPermitsAreAsTheModelGivesThem plays random histories of posts, responses, repeated calls and clock
// steps, by workers with different paces, and compares each reply to the microsecond. The clock has to stand
// still between two calls, so the test runs on the embedded store. The other tests of the pace also run on a
// redis-server.
func TestPermitsAreAsTheModelGivesThem(t *testing.T) {
	redistest.EachStore(t, func(t *testing.T, _ *redistest.Server) {
		t.Skip("the clock of a redis-server cannot be set")
	}, func(t *testing.T, embedded *miniredis.Miniredis) {
		s := newEmbedded(t, embedded)
		client := patient(t, s.Client) // shared by all histories, perhaps thousands
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
	asked    []ratelimit.Post // the last few; Slack may respond in any order
	waits    []time.Duration  // from the replies
	names    int
}

func newPaceHistory(t *testing.T, r *rapid.T, s *store, client redis.UniversalClient) *paceHistory {
	kit.Check(t, client.FlushAll(t.Context()).Err())
	s.startAt(0) // so that a replayed history begins at the same time
	h := &paceHistory{t: t, s: s, model: newPaceModel()}
	for range rapid.IntRange(1, 3).Draw(r, "workers") {
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

// beginAgain repeats a call after a lost reply or a wait.
func (h *paceHistory) beginAgain(r *rapid.T) {
	if len(h.asked) > 0 {
		h.ask(r, rapid.SampledFrom(h.asked).Draw(r, "post"))
	}
}

func (h *paceHistory) ask(r *rapid.T, post ratelimit.Post) {
	i := rapid.IntRange(0, len(h.replicas)-1).Draw(r, "worker")
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
	i := rapid.IntRange(0, len(h.replicas)-1).Draw(r, "worker")
	for range rapid.IntRange(1, 2).Draw(r, "times") {
		wantScope, wantLeft := h.model.answered(h.now(), answer)
		scope, left, err := h.replicas[i].Answered(h.t.Context(), answer)
		if err != nil || scope != wantScope || left != wantLeft {
			r.Fatalf("%+v: %d for %s, %v; expected %d for %s\n%s", answer, scope, left, err, wantScope, wantLeft, h.s.contents(h.t))
		}
	}
}

// wait lets some time pass, often exactly the wait in the last reply that had one, or steps the clock back.
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
