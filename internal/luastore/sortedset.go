//go:build !production

package luastore

import (
	"cmp"
	"slices"
	"sort"
)

// sortedSet is sorted by score and member. It is one slice, because the scripts add at its end and remove at its beginning:
// anywhere else in it an addition or removal moves what follows.
type sortedSet struct {
	scores  map[string]float64
	entries []entry
}

type entry struct {
	score  float64
	member string
}

func compareEntries(a, b entry) int {
	return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.member, b.member))
}

func newSortedSet() *sortedSet { return &sortedSet{scores: map[string]float64{}} }

func (z *sortedSet) len() int { return len(z.entries) }

// add adds a member or changes its score, and reports whether it is new.
func (z *sortedSet) add(member string, score float64) bool {
	old, found := z.scores[member]
	if found && old == score {
		return false
	}
	if found {
		at := z.rank(member)
		z.removeAt(at, at+1)
	}
	e := entry{score, member}
	z.scores[member] = score
	if n := len(z.entries); n == 0 || compareEntries(z.entries[n-1], e) < 0 {
		z.entries = append(z.entries, e)
	} else {
		at, _ := slices.BinarySearchFunc(z.entries, e, compareEntries)
		z.entries = slices.Insert(z.entries, at, e)
	}
	return !found
}

// rank is the place of a member that is in the set, from 0.
func (z *sortedSet) rank(member string) int {
	at, _ := slices.BinarySearchFunc(z.entries, entry{z.scores[member], member}, compareEntries)
	return at
}

// remove removes a member, and reports whether it was there.
func (z *sortedSet) remove(member string) bool {
	if _, found := z.scores[member]; !found {
		return false
	}
	at := z.rank(member)
	z.removeAt(at, at+1)
	return true
}

// removeAt removes the entries from one place up to, not including, another.
func (z *sortedSet) removeAt(from, to int) {
	for _, e := range z.entries[from:to] {
		delete(z.scores, e.member)
	}
	if from == 0 {
		clear(z.entries[:to]) // what is cut off stays in memory until the slice grows
		z.entries = z.entries[to:]
		return
	}
	z.entries = slices.Delete(z.entries, from, to)
}

// between returns the places of the scores in a range: from the first up to, not including, the second.
func (z *sortedSet) between(least, most bound) (from, to int) {
	from = sort.Search(len(z.entries), func(i int) bool {
		return z.entries[i].score > least.score || !least.open && z.entries[i].score == least.score
	})
	to = sort.Search(len(z.entries), func(i int) bool {
		return z.entries[i].score > most.score || most.open && z.entries[i].score == most.score
	})
	return from, max(from, to)
}

// bound is one end of a range of scores.
type bound struct {
	score float64
	open  bool // the score itself is not in the range
}
