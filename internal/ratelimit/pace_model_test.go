package ratelimit_test

import (
	"maps"
	"slices"
	"time"

	"notifier/internal/ratelimit"
)

// paceModel is what begin.lua and answered.lua promise of posts without an event, as plainly as possible:
// lists that are gone through from their start for every question. Times are microseconds. Nothing is ever
// removed but what has ended.
type paceModel struct {
	slots   map[string]map[string]int64        // channel -> name of a post -> its time
	kept    map[string]map[string]int64        // the same, of slots that are kept for a post
	waiting map[string]map[string]modelWaiting // channel -> worker
	pauses  map[string]int64                   // channel or "*" -> end
	probes  map[string]modelProbe              // channel or "*"
	refused map[string]bool                    // channels that were refused since the last post was made
}

type modelProbe struct {
	began, ends int64
	name        string
}

// modelWaiting is the post of a worker that has waited longest.
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

// probing is the post that probes now; empty: none.
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
		put(m.slots, post.Channel, post.Name, now+max(0, post.Longest.Microseconds()-window))
	}
	if probesWorkspace {
		m.probe("*", now, post)
	}
	if probesChannel {
		m.probe(post.Channel, now, post)
	}
	return ratelimit.Permit{Status: ratelimit.Granted, Posts: 1}
}

func (m *paceModel) probe(scope string, now int64, post ratelimit.Post) {
	if m.probing(scope, now) != post.Name {
		m.probes[scope] = modelProbe{began: now, ends: now + post.Longest.Microseconds(), name: post.Name}
	}
}

// pausedFor is how long a pause keeps the post from beginning, or whether it would be the probe after it.
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

// older is how many posts wait that come before this one: one of each worker.
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

// wait notes that a post will ask again, unless an older one of its worker will.
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

// frees is when there is room for a post and so many others, as far as the posts that are made go. As many as
// the pace takes in a window are made in one.
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
				// with a later refusal it would have gone: so the pause is over, also when the clock was set back
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

// revives reports whether a pause that no longer counts would count again if the clock was set back to then.
// The scripts may have removed it, which is right either way; the model keeps everything.
func (m *paceModel) revives(now, then int64) bool {
	for _, ends := range m.pauses {
		if ends+60*modelSecond <= now && ends+60*modelSecond > then {
			return true
		}
	}
	return false
}
