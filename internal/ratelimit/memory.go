package ratelimit

import "time"

// What one entry takes in Redis, in bytes, its share of the set's tables included: at most, with an id of 56
// bytes, which is the longest, in a large set or hash of a 64-bit server. TestWhatEntriesTake measures them.
// With an id of 24 bytes, which NATS gives, a slot takes 150 and an id that was sent 134. Not in it: what a
// key takes by itself, some 200 bytes for each category in use.
const (
	slotBytes   = 200 // of a sorted set: a slot of an exact limit, in each of its scopes
	sentBytes   = 168 // of a sorted set: an id that was sent
	flightBytes = 240 // of the hash: an id in flight
	bucketBytes = 160 // of a sorted set: a bucket; less than half of that in a set of up to 128
)

// MeasuredScopes is for how many categories, and groups, Memory counts buckets: otherwise nothing bounds
// their number.
const MeasuredScopes = 1000

// Memory is what a notifier can take in Redis at most, in bytes, while its limits are full all the time.
type Memory struct {
	Limits int64 // the slots of all levels, and for MeasuredScopes of each level the buckets
	IDs    int64 // the ids in flight and sent
}

// Memory returns how much of Redis's memory these limits can take, with the ids of events that were sent
// within dedupe.
func (r Rules) Memory(dedupe time.Duration) Memory {
	inFlight := int64(r.Global.Most(r.LongestWindow()))
	sent := int64(r.Global.Most(dedupe))
	known := Memory{IDs: inFlight*flightBytes + max(0, sent-inFlight)*sentBytes}
	if r.Global.Exact() {
		known.Limits = int64(r.Global.Most(r.Global.longestWindow())) * slotBytes
	} else {
		known.Limits = r.Global.buckets() * bucketBytes
	}
	categories := []Limit{r.Category}
	for _, limit := range r.Overrides.All() {
		categories = append(categories, limit)
	}
	known.Limits += r.levelBytes(categories, len(r.Reserve) > 0)
	if len(r.Group) > 0 || len(r.GroupOverrides) > 0 {
		groups := []Limit{r.Group}
		for _, limit := range r.GroupOverrides {
			groups = append(groups, limit)
		}
		known.Limits += r.levelBytes(groups, false)
	}
	return known
}

// levelBytes is what all scopes of one level take. Each admission is in one of them, so that the global limit
// bounds their slots, however many scopes there are. reserves: some keep their entries as long as the global
// scope does.
func (r Rules) levelBytes(limits []Limit, reserves bool) int64 {
	var exact, coarse time.Duration // the longest windows
	var buckets int64               // of the scope that has most of them
	for _, limit := range limits {
		switch {
		case limit.Exact():
			exact = max(exact, limit.longestWindow())
		case len(limit) > 0:
			coarse, buckets = max(coarse, limit.longestWindow()), max(buckets, limit.buckets())
		}
	}
	if reserves && exact > 0 {
		exact = max(exact, r.Global.longestWindow())
	}
	var bytes int64
	if exact > 0 {
		bytes += int64(r.Global.Most(exact)) * slotBytes
	}
	if coarse > 0 {
		bytes += min(int64(r.Global.Most(coarse)), MeasuredScopes*buckets) * bucketBytes
	}
	return bytes
}

// buckets is how many of them a scope of a limit without exact tiers has at once: one ends at each multiple
// of its width, and none is empty.
func (l Limit) buckets() int64 {
	window, width := l.longestWindow(), l.bucketWidth()
	return min(int64((window+width-1)/width)+1, int64(l.Most(window+time.Microsecond)))
}
