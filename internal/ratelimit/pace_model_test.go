package ratelimit_test

import (
	"maps"
	"slices"
	"time"

	"notifier/internal/ratelimit"
)

// paceModel is what begin.lua and answered.lua promise of posts without an event, as plainly as possible: lists that are
// gone through from their start for every question. Times are microseconds. No window of it is longer than ten seconds, for
// which every slot is kept.
type paceModel struct {
	ids      map[string]string           // channel as the settings name it -> ID
	slots    map[string]map[string]int64 // channel -> name of a post -> its time
	kept     map[string]map[string]int64 // the same, of slots that are kept for a post
	pauses   map[string]int64            // channel or "*" -> end
	probes   map[string]modelProbe       // channel or "*", or "?" and a name whose ID is not known
	refused  map[string]modelRefusal     // channel -> the last post of it that was refused
	refusals map[string]int64            // channel -> when
}

type modelProbe struct {
	began, ends int64
	name        string
}

type modelRefusal struct {
	name  string
	scope ratelimit.PauseScope
}

const (
	modelSecond = int64(1_000_000)
	askSoon     = 200 * time.Millisecond
)

func newPaceModel() *paceModel {
	return &paceModel{
		ids: map[string]string{}, slots: map[string]map[string]int64{}, kept: map[string]map[string]int64{}, pauses: map[string]int64{},
		probes: map[string]modelProbe{}, refused: map[string]modelRefusal{}, refusals: map[string]int64{},
	}
}

func isName(channel string) bool { return channel[0] == '#' }

func (m *paceModel) key(channel string) string {
	if id, known := m.ids[channel]; known {
		return id
	}
	return channel
}

// probing is who probes now; empty: nobody.
func (m *paceModel) probing(scope string, now int64) string {
	if p := m.probes[scope]; p.began <= now && now < p.ends {
		return p.name
	}
	return ""
}

func (m *paceModel) begin(now int64, pace ratelimit.Tier, post ratelimit.Post) ratelimit.Permit {
	key := m.key(post.Channel)
	var probes []string
	for scope, status := range map[string]ratelimit.PermitStatus{"*": ratelimit.WorkspacePaused, key: ratelimit.ChannelPaused} {
		wait, probe := m.pausedFor(scope, now, post.Name)
		if wait > 0 {
			if scope == key { // the workspace's comes first
				if first, _ := m.pausedFor("*", now, post.Name); first > 0 {
					wait, status = first, ratelimit.WorkspacePaused
				}
			}
			return ratelimit.Permit{Status: status, Wait: wait}
		}
		if probe {
			probes = append(probes, scope)
		}
	}
	window := pace.Window.Microseconds()
	if pace.Count == 0 {
		window = 10 * modelSecond
	}
	learning := isName(post.Channel) && m.ids[post.Channel] == ""
	if at, has := m.slots[key][post.Name]; !has || at+window <= now {
		if by := m.probing("?"+post.Channel, now); learning && by != "" && by != post.Name {
			return ratelimit.Permit{Status: ratelimit.Paced, Wait: askSoon}
		}
		if frees := m.frees(key, post.Name, pace.Count, window); frees > now {
			if post.First {
				put(m.kept, key, post.Name, frees)
			}
			return ratelimit.Permit{Status: ratelimit.Paced, Wait: time.Duration(min(frees-now, window)) * time.Microsecond}
		}
		delete(m.kept[key], post.Name)
		put(m.slots, key, post.Name, now+max(0, post.Longest.Microseconds()-window))
	}
	status := ratelimit.Granted
	if len(probes) > 0 {
		status = ratelimit.GrantedAsProbe
	}
	if learning {
		probes = append(probes, "?"+post.Channel)
	}
	for _, scope := range probes {
		if m.probing(scope, now) != post.Name {
			m.probes[scope] = modelProbe{began: now, ends: now + post.Longest.Microseconds(), name: post.Name}
		}
	}
	return ratelimit.Permit{Status: status, Posts: 1}
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
		return askSoon, false
	}
	return 0, true
}

// frees is when there is room for a post, as far as the posts of all others go.
func (m *paceModel) frees(key, name string, count int, window int64) int64 {
	times := slices.Collect(maps.Values(m.slots[key]))
	for other, at := range m.kept[key] {
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

func put(in map[string]map[string]int64, key, name string, at int64) {
	if in[key] == nil {
		in[key] = map[string]int64{}
	}
	in[key][name] = at
}

func (m *paceModel) answered(now int64, pace ratelimit.Tier, a ratelimit.Answer) (ratelimit.PauseScope, time.Duration) {
	key := m.key(a.Channel)
	id := key
	workspaces, channels := m.probes["*"].name == a.Name, m.probes[key].name == a.Name
	if m.probes["?"+a.Channel].name == a.Name {
		delete(m.probes, "?"+a.Channel)
	}
	if isName(a.Channel) && a.ID != "" {
		id = a.ID
		m.learn(a, key, now)
	}
	put(m.slots, id, a.Name, now)
	if a.RetryAfter == 0 {
		if workspaces {
			m.endPause("*", now)
		}
		if channels {
			m.endPause(id, now)
		}
		return ratelimit.NoPause, 0
	}
	left := func(scope ratelimit.PauseScope) time.Duration {
		ends := m.pauses[id]
		if scope == ratelimit.PausedWorkspace {
			ends = m.pauses["*"]
		}
		return max(0, time.Duration(ends-now)*time.Microsecond)
	}
	if again := m.refused[id]; again.name == a.Name {
		return again.scope, left(again.scope)
	}
	others := 0
	for name, at := range m.slots[id] {
		if name != a.Name && at > now-10*modelSecond {
			others++
		}
	}
	if !channels {
		m.refusals[id] = now
	}
	maps.DeleteFunc(m.refusals, func(_ string, at int64) bool { return at <= now-modelSecond })
	scope := ratelimit.PausedChannel
	m.pause(id, now+a.RetryAfter.Microseconds())
	if workspaces || !channels && (others <= 1 || pace.Count > 0 && len(m.refusals) >= 3) {
		scope = ratelimit.PausedWorkspace
		m.pause("*", now+a.RetryAfter.Microseconds())
	}
	m.refused[id] = modelRefusal{a.Name, scope}
	return scope, left(scope)
}

// learn takes over the ID in an answer. What was known of the name is the ID's from then on.
func (m *paceModel) learn(a ratelimit.Answer, key string, now int64) {
	first := m.ids[a.Channel] == ""
	m.ids[a.Channel] = a.ID
	if !first {
		if key != a.ID {
			delete(m.slots[key], a.Name)
		}
		return
	}
	for name, at := range m.slots[key] {
		put(m.slots, a.ID, name, at)
	}
	for name, at := range m.kept[key] {
		put(m.kept, a.ID, name, at)
	}
	delete(m.slots, key)
	delete(m.kept, key)
	if ends, paused := m.pauses[key]; paused && ends > now-60*modelSecond {
		delete(m.pauses, key)
		delete(m.probes, key)
		m.pause(a.ID, ends)
	}
}

func (m *paceModel) pause(scope string, ends int64) {
	m.pauses[scope] = max(m.pauses[scope], ends)
	delete(m.probes, scope)
}

func (m *paceModel) endPause(scope string, now int64) {
	delete(m.probes, scope)
	if m.pauses[scope] <= now {
		delete(m.pauses, scope)
	}
}

// revives reports whether something that no longer counts would count again if the clock was set back to then. The scripts may
// have removed it, which is right either way; the model keeps everything.
func (m *paceModel) revives(now, then int64) bool {
	over := func(at, window int64) bool { return at+window <= now && at+window > then }
	for _, byName := range append(slices.Collect(maps.Values(m.slots)), slices.Collect(maps.Values(m.kept))...) {
		for _, at := range byName {
			if over(at, 10*modelSecond) {
				return true
			}
		}
	}
	for _, ends := range m.pauses {
		if over(ends, 60*modelSecond) {
			return true
		}
	}
	for _, at := range m.refusals {
		if over(at, modelSecond) {
			return true
		}
	}
	return false
}
