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

// remember records what was admitted. It returns ErrHealing if the answer may be from a store that has been lost since: then it
// counts for nothing, and the question is to be asked again.
func (l *Limiter) remember(q question, batch []Request, decisions []Decision, epoch uint64, now int64) error {
	kept := l.journal.admitted(epoch, now, func(add func(remembered)) {
		for i, decision := range decisions {
			if decision.Outcome != Admitted {
				continue
			}
			category := q.origins.of[i].category
			add(remembered{
				member: q.members[i], delivery: batch[i].Delivery, category: category, at: now, cost: int32(batch[i].Cost),
				grouped: len(l.rules.GroupLimit(GroupOf(category))) > 0,
			})
		}
	})
	if !kept {
		return ErrHealing
	}
	return nil
}

// keepsJournal is for how long the journal has to know an admission.
func (l *Limiter) keepsJournal() time.Duration {
	dedupe, _ := strconv.ParseInt(l.dedupe, 10, 64) // as New has written them
	retain, _ := strconv.ParseInt(l.retain, 10, 64)
	return max(l.rules.LongestWindow(), time.Duration(max(dedupe, retain))*time.Microsecond)
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
		keyNames, arguments := l.restored(entries)
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
func (l *Limiter) restored(entries []remembered) (keyNames []string, arguments []any) {
	keyNames = []string{l.keys.register(), l.keys.inFlight(), l.keys.sent()}
	arguments = []any{l.dedupe, l.retain, ""}
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
	scope(l.keys.global(), l.rules.Global, max(l.rules.Global.longestWindow(), l.rules.LongestExactWindow()))
	rows := make([]any, 0, 10*len(entries))
	for _, r := range entries {
		limit := l.rules.LimitFor(r.category)
		keeps := limit.longestWindow()
		if l.rules.Reserve[r.category] > 0 {
			keeps = max(keeps, l.rules.Global.longestWindow())
		}
		category, group := scope(l.keys.category(r.category), limit, keeps), 0
		if name := GroupOf(r.category); r.grouped && len(l.rules.GroupLimit(name)) > 0 {
			group = scope(l.keys.group(name), l.rules.GroupLimit(name), l.rules.GroupLimit(name).longestWindow())
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
	anyStore       = "0"
	noStore        = "1" // no generation has this number
	healedArgument = 2   // which of its arguments it is
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
