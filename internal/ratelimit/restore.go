package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/lua"
)

// restoreChunk is about how many admissions, or slots, one call of restore.lua puts back: a few milliseconds'
// work for Redis.
const (
	restoreChunk = 500
	restoreSlots = 10 * restoreChunk
)

var restoreScript = redis.NewScript(lua.Restore)

// remember records what was admitted, and is false if the answer is from before the present epoch: then it
// counts for nothing, and the question is to be asked again.
func (l *Limiter) remember(q admitCall, batch []Request, a admitReply, epoch uint64) bool {
	return l.journal.admitted(epoch, a.now, func(add func(r remembered, earlier bool)) {
		for i, decision := range a.decisions {
			if decision.Verdict != Admitted {
				continue
			}
			origin := q.origins.of[i]
			at, earlier := a.earlier[i]
			if !earlier {
				at = a.now
			}
			before := a.posted[i]
			add(remembered{
				name: before.name, begun: before.begun, posts: int32(min(before.count, 1<<30)),
				member: q.members[i], delivery: batch[i].Delivery, entry: origin.entry, at: at,
				cost:        int32(batch[i].Cost),
				grouped:     len(q.plan.rules.GroupLimit(GroupOf(origin.category))) > 0,
				redelivered: earlier,
			}, earlier)
		}
	})
}

// putBackTally is what a store did not have.
type putBackTally struct{ Slots, InFlight, Sent int64 }

// putBack puts back all that the journal has, the oldest first. errAnother: the store has another token by
// now.
func (l *Limiter) putBack(ctx context.Context, connection *redis.Conn, token string) (putBackTally, error) {
	var sum putBackTally
	entries := l.journal.all()
	slices.SortStableFunc(entries, func(a, b remembered) int { return cmp.Compare(a.at, b.at) })
	for len(entries) > 0 {
		n := chunkLength(entries)
		keyNames, arguments := l.restored(l.plan.Load(), token, entries[:n])
		reply, err := restoreScript.Run(ctx, connection, keyNames, arguments...).Int64Slice()
		if err == nil && len(reply) != 4 {
			err = fmt.Errorf("unexpected reply from restore.lua: %d numbers, expected 4", len(reply))
		}
		if err != nil {
			return sum, fmt.Errorf("redis: cannot put back what was admitted: %w",
				l.explain(ctx, err, keyNames))
		}
		if reply[0] == 0 {
			return sum, errAnother
		}
		sum.Slots, sum.InFlight, sum.Sent = sum.Slots+reply[1], sum.InFlight+reply[2], sum.Sent+reply[3]
		entries = entries[n:]
	}
	return sum, nil
}

// chunkLength is how many of the entries one call puts back. Those of one time belong together, see
// restore.lua.
func chunkLength(entries []remembered) int {
	slots := 0
	for i, r := range entries {
		full := i >= restoreChunk || slots >= restoreSlots
		if full && r.at != entries[i-1].at || i >= MaxBatch+restoreChunk {
			return i
		}
		slots += int(r.cost)
	}
	return len(entries)
}

// restored is one call of restore.lua.
func (l *Limiter) restored(p *plan, token string, entries []remembered) (keyNames []string, arguments []any) {
	keyNames = []string{l.keys.meta(), l.keys.inFlight(), l.keys.sent(), l.keys.categories()}
	arguments = []any{token, l.replica, micros(l.dedupe), micros(p.retention), micros(healMore),
		micros(healMost), ""}
	scopes := map[string]int{} // the number of each, by its key
	scope := func(log string, limit Limit, keep time.Duration) int {
		number, seen := scopes[log]
		if !seen {
			number = len(scopes) + 1
			scopes[log] = number
			keyNames = append(keyNames, l.keys.bothForms(log)...)
			arguments = append(arguments, micros(limit.bucketWidth()), micros(keep))
		}
		return number
	}
	global := scope(l.keys.global(), p.rules.Global, p.keepGlobal())
	rows := make([]any, 0, 10*len(entries))
	for _, r := range entries {
		of, _, _ := strings.Cut(r.entry, " ")
		category, group := scope(l.keys.category(of), p.rules.LimitFor(of), p.keepCategory(of)), 0
		if name := GroupOf(of); r.grouped && len(p.rules.GroupLimit(name)) > 0 {
			group = scope(l.keys.group(name), p.rules.GroupLimit(name), p.keepGroup(name))
		}
		rows = append(rows, r.at, flag(r.redelivered), r.cost, r.entry, category, group, global, r.sent,
			r.begun, r.record())
	}
	arguments[6] = strconv.Itoa(len(scopes))
	arguments = append(arguments, strconv.Itoa(len(entries)))
	for _, r := range entries {
		arguments = append(arguments, r.member)
	}
	return keyNames, append(arguments, rows...)
}

// What admit.lua is given in place of a token.
const (
	anyStore = ""
	noStore  = "-" // no store has this token
)

// knownToken is the token of the store that may decide.
func (l *Limiter) knownToken() string {
	if token := l.token.Load(); token != nil {
		return *token
	}
	return anyStore
}

// forgetStore lets no store decide, and no answer count that is on its way.
func (l *Limiter) forgetStore() {
	token := noStore
	l.token.Store(&token)
	l.journal.turn()
}

// mostHealings bounds how often a call is repeated because the store had to be healed first.
const mostHealings = 20

// onKnownStore makes a call, again after ErrHealing once the store is healed. Without a Healer it is made
// once.
func (l *Limiter) onKnownStore(ctx context.Context, call func() error) error {
	for asked := 1; ; asked++ {
		err := call()
		h := l.healer.Load()
		if h == nil || !errors.Is(err, ErrHealing) {
			return err
		}
		h.wake()
		if asked == mostHealings || !h.wait(ctx) {
			return err
		}
	}
}
