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
func (l *Limiter) remember(ctx context.Context, q question, batch []Request, decisions []Decision, epoch uint64, now int64) error {
	earlier, err := l.admittedEarlier(ctx, q, batch, decisions, now)
	if err != nil {
		return err
	}
	kept := l.journal.admitted(epoch, now, q.plan.retention, func(add func(remembered)) {
		for i, decision := range decisions {
			if decision.Outcome != Admitted {
				continue
			}
			category, at := q.origins.of[i].category, now
			if first, found := earlier[i]; found {
				at = first
			}
			add(remembered{
				member: q.members[i], delivery: batch[i].Delivery, category: category, at: at, cost: int32(batch[i].Cost),
				grouped: len(q.plan.stored.GroupLimit(GroupOf(category))) > 0,
			})
		}
	})
	if !kept {
		return ErrHealing
	}
	return nil
}

// admittedEarlier is when events of a batch were admitted, in microseconds and by their places in it, that another replica may have
// been given the admission of: put back at the time of this answer, a slot would count after it has left its windows.
func (l *Limiter) admittedEarlier(ctx context.Context, q question, batch []Request, decisions []Decision, now int64) (map[int]int64, error) {
	var places []int
	var members []string
	for i, decision := range decisions {
		if decision.Outcome == Admitted && batch[i].Redelivered && !l.journal.knows(q.members[i], now, q.plan.retention) {
			places, members = append(places, i), append(members, q.members[i])
		}
	}
	if len(places) == 0 {
		return nil, nil
	}
	records, err := l.redis.HMGet(ctx, l.keys.inFlight(), members...).Result()
	if err != nil {
		return nil, fmt.Errorf("redis: cannot look up what was admitted: %w", l.explain(ctx, err, []string{l.keys.inFlight()}))
	}
	earlier := make(map[int]int64, len(places))
	for n, record := range records {
		text, _ := record.(string)
		if found, err := ParseInFlight(text); err == nil && n < len(places) { // else it was lost since: the epoch shows that
			earlier[places[n]] = found.Admitted.UnixMicro()
		}
	}
	return earlier, nil
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
