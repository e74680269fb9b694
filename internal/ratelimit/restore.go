package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/lua"
)

// restoreChunk is how many admissions one call of restore.lua puts back: a few milliseconds' work for Redis.
const restoreChunk = 500

var restoreScript = redis.NewScript(lua.Restore)

// remember records what was admitted, and is false if the answer is from before the present epoch: then it counts for nothing, and
// the question is to be asked again.
func (l *Limiter) remember(q question, batch []Request, a answer, epoch uint64) bool {
	return l.journal.admitted(epoch, a.now, func(add func(r remembered, earlier bool)) {
		for i, decision := range a.decisions {
			if decision.Outcome != Admitted {
				continue
			}
			category := q.origins.of[i].category
			at, earlier := a.earlier[i]
			if !earlier {
				at = a.now
			}
			add(remembered{
				member: q.members[i], delivery: batch[i].Delivery, category: category, at: at, cost: int32(batch[i].Cost),
				grouped: len(q.plan.stored.GroupLimit(GroupOf(category))) > 0,
			}, earlier)
		}
	})
}

// putBackTally is what a store did not have.
type putBackTally struct{ Slots, InFlight, Sent int64 }

// putBack puts back all that the journal has, the latest first: a failover forgets the last moments, and that must not wait for the rest.
func (l *Limiter) putBack(ctx context.Context, connection *redis.Conn) (putBackTally, error) {
	var sum putBackTally
	for from := uint64(math.MaxUint64); ; {
		var entries []remembered
		if entries, from = l.journal.before(from, restoreChunk); len(entries) == 0 {
			return sum, nil
		}
		keyNames, arguments := l.restored(l.plan.Load(), entries)
		reply, err := restoreScript.Run(ctx, connection, keyNames, arguments...).Int64Slice()
		if err == nil && len(reply) != 4 {
			err = fmt.Errorf("unexpected reply from restore.lua: %d numbers, expected 4", len(reply))
		}
		if err != nil {
			return sum, fmt.Errorf("redis: cannot put back what was admitted: %w", err)
		}
		sum.Slots, sum.InFlight, sum.Sent = sum.Slots+reply[1], sum.InFlight+reply[2], sum.Sent+reply[3]
	}
}

// restored is one call of restore.lua.
func (l *Limiter) restored(p *plan, entries []remembered) (keyNames []string, arguments []any) {
	keyNames = []string{l.keys.register(), l.keys.inFlight(), l.keys.sent()}
	arguments = []any{p.dedupe, p.retain, ""}
	scopes := map[string]int{} // the number of each, by its key
	scope := func(key string, limit Limit, keeps time.Duration) int {
		number, seen := scopes[key]
		if !seen {
			number = len(scopes) + 1
			scopes[key] = number
			keyNames = append(keyNames, l.keys.bothForms(key)...)
			arguments = append(arguments, micros(keeps), strconv.Itoa(len(limit.grains())))
			for _, grain := range limit.grains() {
				arguments = append(arguments, micros(grain))
			}
		}
		return number
	}
	scope(l.keys.global(), p.stored.Global, max(p.stored.Global.longestWindow(), p.stored.LongestExactWindow()))
	rows := make([]any, 0, 10*len(entries))
	for _, r := range entries {
		limit := p.stored.LimitFor(r.category)
		keeps := limit.longestWindow()
		if p.stored.Reserve[r.category] > 0 {
			keeps = max(keeps, p.stored.Global.longestWindow())
		}
		category, group := scope(l.keys.category(r.category), limit, keeps), 0
		if name := GroupOf(r.category); r.grouped && len(p.stored.GroupLimit(name)) > 0 {
			group = scope(l.keys.group(name), p.stored.GroupLimit(name), p.stored.GroupLimit(name).longestWindow())
		}
		rows = append(rows, r.at, r.cost, category, group, r.posts, r.begun, r.name, r.delivery, r.sent)
	}
	arguments[2] = strconv.Itoa(len(scopes))
	arguments = append(arguments, strconv.Itoa(len(entries)))
	for _, r := range entries {
		arguments = append(arguments, r.member)
	}
	return keyNames, append(arguments, rows...)
}

// What admit.lua is given in place of a number.
const (
	anyStore = "0"
	noStore  = "1" // no generation has this number
)

// healedNumber is the number of the store that may decide.
func (l *Limiter) healedNumber() string {
	if number := l.number.Load(); number != nil {
		return *number
	}
	return anyStore
}

// unhealed lets no store decide, and no answer count that is on its way.
func (l *Limiter) unhealed() {
	number := noStore
	l.number.Store(&number)
	l.journal.turn()
}

func (l *Limiter) wakeHealer() {
	if h := l.healer.Load(); h != nil {
		h.wake()
	}
}

// awaitHealed waits after an error until the store is healed, and reports whether to ask again.
func (l *Limiter) awaitHealed(ctx context.Context, err error) bool {
	h := l.healer.Load()
	return h != nil && errors.Is(err, ErrHealing) && h.wait(ctx)
}
