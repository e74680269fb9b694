package ratelimit

import (
	"fmt"
	"sync"
	"time"
)

// mostRemembered bounds how many admissions a replica remembers: the latest ones.
const mostRemembered = 100_000

// remembered is one admission that this replica was given, and what became of it since. Times are
// microseconds of the server's clock.
type remembered struct {
	member, delivery string
	entry            string // of the index: its category, and its source if it has one
	name             string // of its last post; empty after a certain failure, and before the first
	at               int64  // of the admission; 0: not known, it is only recorded as sent
	begun, sent      int64  // of the last post, and when it was recorded as sent; 0: not yet
	cost, posts      int32
	grouped          bool // it was charged to a group
	redelivered      bool // another replica had been given it before
	gone             bool // it was refunded
	superseded       bool // admitted anew, or forfeited: only the slots of this admission matter
}

// record is the text of the event in flight, as admit.lua and begin.lua write it; empty: it is not in flight.
func (r remembered) record() string {
	if r.superseded || r.sent > 0 {
		return ""
	}
	group := ""
	if r.grouped {
		group = "g"
	}
	return fmt.Sprintf("%d%s:%d:%d:%s %s", r.at, group, r.posts, r.begun, r.name, r.delivery)
}

// last is when something last happened to it.
func (r remembered) last() int64 { return max(r.at, r.begun, r.sent) }

const blockSize = 512

// journal is what a replica remembers of its admissions, to put it back into a store that has forgotten it.
// It keeps them for as long as they count, or their ids are known, and no more than mostRemembered of them.
// The zero journal remembers nothing until it is kept.
//
// Healing begins with a new epoch: an answer to a question of an older one may come from a store that has
// been lost since, and is not recorded any more. See Limiter.remember.
type journal struct {
	mu     sync.Mutex
	kept   bool
	keep   int64 // microseconds
	epoch  uint64
	blocks []*[blockSize]remembered // a queue; numbers of entries go up by one from first
	first  uint64                   // number of blocks[0][0]
	oldest uint64
	next   uint64
	number map[string]uint64 // by member
	ahead  int64             // microseconds by which the server's clock is ahead of this host's
	pushed uint64            // how many were given up for others
}

func (j *journal) start(keep time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.kept, j.keep, j.number = true, keep.Microseconds(), map[string]uint64{}
}

// keepFor keeps admissions for so long from now on: a temporary limit can have a longer window. What was
// forgotten before stays so.
func (j *journal) keepFor(keep time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.keep = keep.Microseconds()
}

// begin is the epoch in which a question is asked.
func (j *journal) begin() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.epoch
}

// turn begins an epoch.
func (j *journal) turn() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.epoch++
}

func (j *journal) entry(number uint64) *remembered {
	offset := number - j.first
	return &j.blocks[offset/blockSize][offset%blockSize]
}

func (j *journal) find(member string) *remembered {
	if number, found := j.number[member]; found {
		return j.entry(number)
	}
	return nil
}

// now is the server's time, as far as it can be known here.
func (j *journal) now() int64 { return time.Now().UnixMicro() + j.ahead }

// add remembers one more; mu is held. earlier: it was in flight already, so it may be one that is remembered,
// with its posts.
func (j *journal) add(r remembered, earlier bool) {
	if known := j.find(r.member); known != nil {
		if earlier && known.at == r.at && !known.gone && known.sent == 0 {
			known.superseded = false // a forfeit of it was not made
			return
		}
		known.superseded = true
	}
	if (j.next-j.first)%blockSize == 0 {
		j.blocks = append(j.blocks, new([blockSize]remembered))
	}
	j.next++
	*j.entry(j.next - 1) = r
	j.number[r.member] = j.next - 1
}

// trim forgets what is no longer needed at a time, and what is too much; mu is held.
func (j *journal) trim(now int64) {
	for j.oldest < j.next {
		r := j.entry(j.oldest)
		switch {
		case r.gone || r.last() <= now-j.keep:
		case j.next-j.oldest > mostRemembered:
			j.pushed++
		default:
			return
		}
		if j.number[r.member] == j.oldest {
			delete(j.number, r.member)
		}
		*r = remembered{}
		j.oldest++
		if j.oldest-j.first == blockSize {
			j.blocks, j.first = j.blocks[1:], j.oldest
		}
	}
}

// admitted remembers what was admitted of a batch at a time. It is false if the answer is from before the
// present epoch.
func (j *journal) admitted(epoch uint64, now int64, each func(add func(r remembered, earlier bool))) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.kept {
		return true
	}
	if epoch != j.epoch {
		return false
	}
	j.ahead = now - time.Now().UnixMicro()
	each(j.add)
	j.trim(now)
	return true
}

// begun remembers a post that was permitted. It is false, as admitted is, if the answer is from before the
// present epoch. An event is only posted while it is in flight: if a refund or a forfeit of it was not
// answered, it was not made.
func (j *journal) begun(epoch uint64, member, name string, posts int) bool {
	return j.changed(epoch, member, func(r *remembered) {
		r.gone, r.superseded = false, false
		r.posts, r.name, r.begun = int32(min(posts, 1<<30)), name, j.now()
	})
}

// failed remembers that the post of this name certainly failed. Names are unique, so this holds for any store.
func (j *journal) failed(member, name string) {
	j.change(member, func(r *remembered) {
		if r.name == name {
			r.name = ""
		}
	})
}

// isSent remembers that an event is in Slack, of whoever was given its admission.
func (j *journal) isSent(member, entry string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.kept {
		return
	}
	r := j.find(member)
	if r == nil || r.gone {
		j.add(remembered{member: member, entry: entry}, false)
		r = j.find(member)
	}
	r.sent = max(j.now(), r.at)
	r.delivery, r.name = "", ""
}

// refunded forgets an admission that was given back, or only that it is in flight if it keeps its slots. It
// is false, as admitted is, if the answer is from before the present epoch.
func (j *journal) refunded(epoch uint64, member string, keepsSlots bool) bool {
	return j.changed(epoch, member, func(r *remembered) { r.end(keepsSlots) })
}

// mayBeRefunded is refunded where the refund was not answered.
func (j *journal) mayBeRefunded(member string, keepsSlots bool) {
	j.change(member, func(r *remembered) { r.end(keepsSlots) })
}

func (r *remembered) end(keepsSlots bool) {
	if keepsSlots {
		r.superseded = true
	} else {
		r.gone = true
	}
}

// changed is change, if the epoch is the present one.
func (j *journal) changed(epoch uint64, member string, change func(*remembered)) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.kept && epoch != j.epoch {
		return false
	}
	if r := j.find(member); r != nil {
		change(r)
	}
	return true
}

func (j *journal) change(member string, change func(*remembered)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r := j.find(member); r != nil {
		change(r)
	}
}

// all copies what is remembered.
func (j *journal) all() []remembered {
	j.mu.Lock()
	defer j.mu.Unlock()
	entries := make([]remembered, 0, j.next-j.oldest)
	for number := j.oldest; number < j.next; number++ {
		if r := j.entry(number); !r.gone {
			entries = append(entries, *r)
		}
	}
	return entries
}

// size is how many admissions are remembered, and how many were given up for others.
func (j *journal) size() (remembered int, pushed uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.trim(j.now())
	return len(j.number), j.pushed
}
