package ratelimit_test

import (
	"math"
	"slices"

	"notifier/internal/ratelimit"
)

// scope is what one budget holds, as a list of charges. Its form decides what their times mean: in an exact scope the time
// of the admission, else the last microsecond of the bucket that the charge is counted in. So the charges with the same time
// are one bucket.
type scope struct {
	charges    []*charge
	buckets    bool
	kept       int64 // how long it keeps its charges: the longest that anybody has asked for since it was empty
	exactUntil int64 // somebody wants it exact until then
}

type charge struct {
	of    *admission // nil: nobody knows any more
	time  int64
	began int64 // the first charge of its bucket; in an exact scope its own time
	cost  int
}

// newest is the time of the newest charge, or 0.
func (s *scope) newest() int64 {
	var newest int64
	for _, c := range s.charges {
		newest = max(newest, c.time)
	}
	return newest
}

// keep is how long a scope keeps its charges when somebody asks for a window.
func (s *scope) keep(window int64) int64 {
	if len(s.charges) == 0 {
		return window
	}
	return max(window, s.kept)
}

// drop takes out the charges for which gone is true.
func (s *scope) drop(gone func(c *charge) bool) { s.charges = slices.DeleteFunc(s.charges, gone) }

// forget takes out what is at most at the time given.
func (s *scope) forget(at int64) { s.drop(func(c *charge) bool { return c.time <= at }) }

// take charges an admission in the form that the scope has. An exact scope has one charge of an id, unless somebody may count
// it for longer than the id is known.
func (s *scope) take(a *admission, end int64, again bool) {
	if !s.buckets {
		if !again {
			s.drop(func(c *charge) bool { return c.of != nil && c.of.is(a.request) })
		}
		s.charges = append(s.charges, &charge{of: a, time: a.at, began: a.at, cost: a.request.Cost})
		return
	}
	began := a.at
	if newest := s.newest(); newest >= a.at { // it joins the newest bucket
		end = min(end, newest)
		for _, c := range s.charges {
			if c.time == newest {
				c.time, began = end, c.began
			}
		}
	}
	s.charges = append(s.charges, &charge{of: a, time: end, began: began, cost: a.request.Cost})
}

// giveBack takes out what an admission was charged. An exact scope knows whose a charge is. A bucket does not: there it is the
// first one that had not ended at the admission, if that had begun by then. One in which less is taken is not it.
func (s *scope) giveBack(a *admission) {
	if !s.buckets {
		s.drop(func(c *charge) bool { return c.of == a })
		return
	}
	var bucket []*charge
	for _, c := range s.charges {
		switch {
		case c.time < a.at || bucket != nil && c.time > bucket[0].time:
		case bucket != nil && c.time == bucket[0].time:
			bucket = append(bucket, c)
		default:
			bucket = []*charge{c}
		}
	}
	taken := 0
	for _, c := range bucket {
		taken += c.cost
	}
	if left := a.request.Cost; taken >= left && bucket[0].began <= a.at {
		for _, c := range bucket {
			less := min(c.cost, left)
			c.cost, left = c.cost-less, left-less
		}
		s.drop(func(c *charge) bool { return c.cost == 0 })
	}
}

// floor is the last multiple of a length up to t. The server knows nothing of what a test has waited for by making it
// older, and multiples are of its own clock.
func (m *model) floor(t, length int64) int64 { return t - (t-m.aged())%length }

// bucketEnd is where a bucket ends that begins at t: before the next multiple of any of the grains.
func (m *model) bucketEnd(grains []int64, t int64) int64 {
	end := int64(math.MaxInt64)
	for _, grain := range grains {
		end = min(end, m.floor(t, grain)+grain-1)
	}
	return end
}

// reform gives a scope the form that a limit asks for, unless somebody still wants it exact. What was in a bucket counts from
// its end, or from the time of the copy if that has not come, and is nobody's any more: an event that is refunded then does not
// find its own there. A bucket begins with the first that is in it. Whoever has a scope copied has also asked for its window.
func (m *model) reform(level level, copied, now int64) {
	s, grains, window := m.scope(level.name), level.grains, level.window
	switch {
	case len(s.charges) == 0:
		s.buckets = grains != nil
	case grains == nil && s.buckets:
		s.buckets, s.kept, s.exactUntil = false, s.keep(window), max(s.exactUntil, now+window)
		for _, c := range s.charges {
			c.of, c.time = nil, min(c.time, copied)
			c.began = c.time
		}
	case grains != nil && !s.buckets && s.exactUntil <= now:
		s.buckets, s.kept = true, s.keep(window)
		m.bucketsUntil = max(m.bucketsUntil, now+2*s.kept)
		began := map[int64]int64{}
		for _, c := range s.charges {
			c.time = m.bucketEnd(grains, c.began)
			if first, found := began[c.time]; !found || c.began < first {
				began[c.time] = c.began
			}
		}
		for _, c := range s.charges {
			c.began = began[c.time]
		}
	}
}

// grainsOf are the lengths of the buckets of a limit, or none: it keeps each event.
func grainsOf(limit ratelimit.Limit) []int64 {
	var grains []int64
	for _, tier := range limit {
		switch {
		case tier.Fixed:
			grains = append(grains, tier.Window.Microseconds())
		case tier.Precision > 0:
			grains = append(grains, tier.Precision.Microseconds())
		default:
			return nil
		}
	}
	return grains
}

func longest(limit ratelimit.Limit) int64 {
	var window int64
	for _, tier := range limit {
		window = max(window, tier.Window.Microseconds())
	}
	return window
}

// counts reports whether a charge of that time counts in a tier.
func (m *model) counts(tier ratelimit.Tier, time, now int64) bool {
	window := tier.Window.Microseconds()
	if tier.Fixed {
		return time >= m.floor(now, window)
	}
	return time > now-window
}

func (m *model) used(s *scope, tier ratelimit.Tier, now int64) int {
	used := 0
	for _, c := range s.charges {
		if m.counts(tier, c.time, now) {
			used += c.cost
		}
	}
	return used
}

// frees is the first time at which an event of this cost fits if nothing else comes, where a tier has this much room: now,
// the next window, or when one of the charges leaves the window. It is never if there is not so much room at all.
func (m *model) frees(s *scope, tier ratelimit.Tier, cost, room int, now int64) (at int64, never bool) {
	window := tier.Window.Microseconds()
	switch {
	case cost > room:
		return 0, true
	case m.used(s, tier, now)+cost <= room:
		return now, false
	case tier.Fixed:
		return m.floor(now, window) + window, false
	}
	var times []int64
	for _, c := range s.charges {
		if m.counts(tier, c.time, now) {
			times = append(times, c.time+window)
		}
	}
	slices.Sort(times)
	for _, at := range times {
		if m.used(s, tier, at)+cost <= room {
			return at, false
		}
	}
	panic("a tier in which nothing is taken has no room")
}
