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
	slots   map[string]map[string]int64 // channel -> name of a post -> its time
	kept    map[string]map[string]int64 // the same, of slots that are kept for a post
	pauses  map[string]int64            // channel or "*" -> end
	probes  map[string]modelProbe       // channel or "*"
	refused map[string]bool             // channels that were refused since the last post was made
}

type modelProbe struct {
	began, ends int64
	name        string
}

const (
	modelSecond = int64(1_000_000)
	askAgain    = 200 * time.Millisecond
)

func newPaceModel() *paceModel {
	return &paceModel{
		slots: map[string]map[string]int64{}, kept: map[string]map[string]int64{},
		pauses: map[string]int64{}, probes: map[string]modelProbe{}, refused: map[string]bool{},
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
		if frees := m.frees(post.Channel, post.Name, pace.Count, window); frees > now {
			if post.First {
				put(m.kept, post.Channel, post.Name, frees)
			}
			return ratelimit.Permit{Status: ratelimit.Paced, Wait: time.Duration(min(frees-now, window)) * time.Microsecond}
		}
		delete(m.kept[post.Channel], post.Name)
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

// frees is when there is room for a post, as far as the posts of all others go.
func (m *paceModel) frees(channel, name string, count int, window int64) int64 {
	times := slices.Collect(maps.Values(m.slots[channel]))
	for other, at := range m.kept[channel] {
		if other != name {
			times = append(times, at)
		}
	}
	slices.Sort(times)
	slices.Reverse(times)
	if count == 0 || len(times) < count {
		return 0
	}
	return times[count-1] + window
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
