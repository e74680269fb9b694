package ratelimit

import (
	"fmt"
	"sync"
	"time"
)

// maxRemembered bounds the admissions that a worker remembers. The oldest ones go first.
const maxRemembered = 100_000

// remembered is one admission and its fate. Times are microseconds by the clock of Redis. Zero means that the
// time is unknown or has not come.
//
// An exact limit keeps a log in Redis, a sorted set whose members are slots; the index lists the categories
// and sources that have one. A healing restores both, and the event's record, unless the admission has ended:
// gone, nothing is restored; superseded, only its slots; released, only its record, and that only after a
// post.
type remembered struct {
	member, delivery string
	entry            string // in the index
	name             string // of the last post. Empty before the first, or if it certainly failed.
	at               int64  // admission
	begun, sent      int64  // last post, and record as sent
	moved            int64  // time to which a post moved the slots. Zero if none did.
	cost, posts      int32
	grouped          bool // charged to a group
	redelivered      bool // the event was in flight already, perhaps through another worker
	gone             bool // refunded
	superseded       bool // forfeited, or admitted again: only its slots matter
	released         bool // decided again: it has no slots in logs any more
}

// record returns the in-flight record that the scripts would have written. It is empty if the event is not in
// flight.
func (r remembered) record() string {
	if r.superseded || r.sent > 0 || r.released && r.posts == 0 {
		return ""
	}
	group := ""
	if r.grouped {
		group = "g"
	}
	return fmt.Sprintf("%d%s:%d:%d:%s %s", r.at, group, r.posts, r.begun, r.name, r.delivery)
}

func (r remembered) lastChange() int64 { return max(r.at, r.moved, r.sent) }

// countsFrom returns the time from which the slots count in logs.
func (r remembered) countsFrom() int64 { return max(r.at, r.moved) }

// end marks a refunded or forfeited admission.
func (r *remembered) end(keepsSlots bool) {
	if keepsSlots {
		r.superseded = true
	} else {
		r.gone = true
	}
}

const blockSize = 512

// journal holds the admissions of one worker while they count or their ids are known, to restore them into a
// store that has lost them. The zero journal remembers nothing until start.
//
// Every healing begins a new epoch. A reply to a call from an earlier epoch may come from a store that was
// lost since, so the journal rejects it and the call is repeated.
type journal struct {
	mu      sync.Mutex
	kept    bool
	keep    int64 // microseconds
	epoch   uint64
	blocks  []*[blockSize]remembered // a queue of entries with consecutive numbers
	first   uint64                   // number of blocks[0][0]
	oldest  uint64
	next    uint64
	number  map[string]uint64 // by member
	ahead   int64             // microseconds by which the clock of Redis is ahead of this host
	evicted uint64            // entries dropped for lack of room
}

func (j *journal) start(keep time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.kept, j.keep, j.number = true, keep.Microseconds(), map[string]uint64{}
}

// keepFor changes the retention. It cannot bring back entries that were dropped before.
func (j *journal) keepFor(keep time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.keep = keep.Microseconds()
}

// currentEpoch returns the epoch. Callers read it before they call Redis.
func (j *journal) currentEpoch() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.epoch
}

// nextEpoch begins an epoch.
func (j *journal) nextEpoch() {
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

// now estimates the clock of Redis.
func (j *journal) now() int64 { return time.Now().UnixMicro() + j.ahead }

// add appends an entry. It keeps the present entry of a redelivered event, which knows its posts. The caller
// holds mu.
func (j *journal) add(r remembered) {
	if known := j.find(r.member); known != nil {
		if r.redelivered && known.at == r.at && !known.gone && known.sent == 0 {
			known.superseded = false // its forfeit did not reach Redis
			return
		}
		known.released = known.released || known.record() != "" // admit.lua has taken its slots out
		known.superseded = true
	}
	if (j.next-j.first)%blockSize == 0 {
		j.blocks = append(j.blocks, new([blockSize]remembered))
	}
	j.next++
	*j.entry(j.next - 1) = r
	j.number[r.member] = j.next - 1
}

// trim drops entries from the old end while they are obsolete or too many. The caller holds mu.
func (j *journal) trim(now int64) {
	for j.oldest < j.next {
		r := j.entry(j.oldest)
		switch {
		case r.gone || r.lastChange() <= now-j.keep:
		case j.next-j.oldest > maxRemembered:
			j.evicted++
		default:
			return
		}
		if j.number[r.member] == j.oldest {
			delete(j.number, r.member)
		}
		*r = remembered{}
		j.oldest++
		if j.oldest-j.first == blockSize {
			j.blocks[0] = nil // the array behind the slice would keep it
			j.blocks, j.first = j.blocks[1:], j.oldest
		}
	}
}

// recordDecided adds the admissions of a batch, and releases the slots of earlier admissions that were
// decided again and refused. It returns false if the epoch has passed.
func (j *journal) recordDecided(epoch uint64, now int64, entries []remembered, released []string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.kept {
		return true
	}
	if epoch != j.epoch {
		return false
	}
	j.ahead = now - time.Now().UnixMicro()
	for _, member := range released { // first: the same batch may admit the event with another stream message
		if r := j.find(member); r != nil && r.record() != "" {
			r.released = true
		}
	}
	for _, r := range entries {
		j.add(r)
	}
	j.trim(now)
	return true
}

// recordPost records a permitted post. It returns false if the epoch has passed. The permit proves that the
// event is in flight, so a refund or forfeit without a reply never reached Redis. The slots count from at.
func (j *journal) recordPost(epoch uint64, member, name string, posts int, at int64) bool {
	return j.changeIn(epoch, member, func(r *remembered) {
		r.gone, r.superseded = false, false
		r.posts, r.name, r.begun, r.moved = int32(min(posts, 1<<30)), name, at, max(r.moved, at)
	})
}

// recordFailure records that a post certainly failed. Names are unique, so no epoch is needed.
func (j *journal) recordFailure(member, name string) {
	j.change(member, func(r *remembered) {
		if r.name == name {
			r.name = ""
		}
	})
}

// recordMove records that a script has moved the slots of an event, unless at is 0.
func (j *journal) recordMove(member string, at int64) {
	j.change(member, func(r *remembered) { r.moved = max(r.moved, at) })
}

// recordSent records that an event is in Slack, even if another worker admitted it.
func (j *journal) recordSent(member, entry string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.kept {
		return
	}
	r := j.find(member)
	if r == nil || r.gone {
		j.add(remembered{member: member, entry: entry})
		r = j.find(member)
	}
	r.sent = max(j.now(), r.at)
	r.delivery, r.name = "", ""
}

// recordRefund records a refund, or a forfeit if the slots stay taken. It returns false if the epoch has
// passed.
func (j *journal) recordRefund(epoch uint64, member string, keepsSlots bool) bool {
	return j.changeIn(epoch, member, func(r *remembered) { r.end(keepsSlots) })
}

// recordPossibleRefund records a refund or forfeit that may have reached Redis.
func (j *journal) recordPossibleRefund(member string, keepsSlots bool) {
	j.change(member, func(r *remembered) { r.end(keepsSlots) })
}

// changeIn changes an entry unless the epoch has passed.
func (j *journal) changeIn(epoch uint64, member string, change func(*remembered)) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.kept && epoch != j.epoch {
		return false
	}
	j.apply(member, change)
	return true
}

func (j *journal) change(member string, change func(*remembered)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.apply(member, change)
}

// apply changes an entry if there is one. The caller holds mu.
func (j *journal) apply(member string, change func(*remembered)) {
	if r := j.find(member); r != nil {
		change(r)
	}
}

// all returns a copy of the entries to restore.
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

// size counts remembered events, and entries dropped for lack of room.
func (j *journal) size() (events int, evicted uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.trim(j.now())
	return len(j.number), j.evicted
}

// remember adds the admissions of a reply to the journal. It returns false if the epoch has passed.
func (l *Limiter) remember(c admitCall, reply admitReply, epoch uint64) bool {
	var entries []remembered
	var released []string
	for i, decision := range reply.decisions {
		before, again := reply.redecided[i]
		if decision.Verdict != Admitted {
			if again && before.name == "" { // else it may be in Slack
				released = append(released, c.members[i])
			}
			continue
		}
		origin := c.origins.of[i]
		at, earlier := reply.readmitted[i]
		if !earlier {
			at = reply.now
		}
		entries = append(entries, remembered{
			member: c.members[i], delivery: c.batch[i].Delivery, entry: origin.entry,
			at: at, cost: int32(c.batch[i].Cost), redelivered: earlier,
			name: before.name, begun: before.begun, posts: int32(min(before.count, 1<<30)),
			grouped: len(c.plan.rules.limitOf(groupScope(origin.origin.category))) > 0,
		})
	}
	return l.journal.recordDecided(epoch, reply.now, entries, released)
}
