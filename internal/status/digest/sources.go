package digest

import (
	"time"

	"notifier/internal/status/stats"
)

// blame says who has caused what was not sent of a category. Sources are counted by tens of minutes, and for
// an hour, and a digest is about any time: so it names only who has caused most of it for certain, or says
// that it knows the last hour alone.
type blame struct {
	slots []stats.SourceSlot // the oldest first; empty: nothing is known
	since time.Time          // when the time begins that the digest is about
}

// hour is how many of the slots are the last hour.
const hour = 6

// mostOf is "most from https://ci.example/job1", of the n events of a category that the digest reports;
// empty: that is not known.
func (b blame) mostOf(category string, n int64) string {
	var slots []stats.SourceSlot
	for _, slot := range b.slots {
		if slot.End.After(b.since) {
			slots = append(slots, slot)
		}
	}
	worst, all := worstOf(slots, category)
	// Of what these slots have, so many were refused before the digest's time, by whomever.
	before := max(0, all-n)
	switch certain := worst.Refused - before; {
	case certain <= 0:
	case certain >= n && n > 1:
		return "all from " + nameOf(worst)
	case certain >= n:
		return "from " + nameOf(worst)
	case 2*certain > n:
		return "most from " + nameOf(worst)
	}
	if len(b.slots) == 0 || !b.since.Before(b.slots[0].Start) {
		return ""
	}
	// It is about more than what is known. A tenth of it, at least, is worth a word.
	worst, all = worstOf(slots[max(0, len(slots)-hour):], category)
	if 2*worst.Refused > all && 10*worst.Refused >= n {
		return "in the last hour most from " + nameOf(worst)
	}
	return ""
}

// worstOf is who has caused the most refused events of a category, and how many there were in total.
func worstOf(slots []stats.SourceSlot, category string) (worst stats.SourceCount, all int64) {
	for _, count := range stats.SumSources(slots)[category] {
		all += count.Refused
		if count.Source != "" && count.Refused > worst.Refused {
			worst = count
		}
	}
	return worst, all
}

func nameOf(count stats.SourceCount) string {
	if count.Source == stats.OtherSource {
		return "many sources"
	}
	return escape(shorten(count.Source))
}
