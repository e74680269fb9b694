package ratelimit_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// Eight processes, each with its own client and several callers, ask one Redis as fast as they can. What the
// script said it decided, and when, is then played through a plain list, call by call in the order of its
// times: no window of any tier may ever have held more than its limit, and each tier that refused must have
// been full.
func TestConcurrentCallersKeepTheLimit(t *testing.T) { manyCallers(t, time.Second) }

func TestConcurrentCallersForTenSeconds(t *testing.T) {
	kit.Long(t)
	manyCallers(t, 10*time.Second)
}

func manyCallers(t *testing.T, lasts time.Duration) {
	t.Helper()
	t.Parallel()
	const processes, callersEach = 8, 3
	held := kit.Rules("60/700ms+20/60ms", "25/400ms+4/30ms", "wide=40/500ms,narrow=1/25ms+9/650ms")
	categories := []string{"a", "b", "c", "wide", "narrow"}
	server := redistest.StartProcess(t)

	var all log
	var running sync.WaitGroup
	until := time.Now().Add(lasts)
	for process := range processes {
		client := patient(t, server.ClientFor(t, "{n}"))
		client.AddHook(timeOfReply{})
		limiter, err := ratelimit.New(client, "n", held, day)
		kit.Check(t, err)
		for caller := range callersEach {
			running.Go(func() {
				for n := 0; all.goesOn(until) && !t.Failed(); n++ {
					batch := make([]ratelimit.Request, 1+rand.IntN(20))
					for i := range batch {
						id := fmt.Sprintf("e%d-%d-%d-%d", process, caller, n, i)
						batch[i] = costing(event(id, categories[rand.IntN(len(categories))]), 1+rand.IntN(4)/3)
					}
					made := call{batch: batch}
					decisions, err := limiter.Admit(context.WithValue(t.Context(), timeOfReply{}, &made.at), batch)
					if err != nil {
						t.Errorf("admit: %v", err)
						return
					}
					made.decisions = decisions
					all.add(made)
				}
			})
		}
	}
	running.Wait()
	if t.Failed() {
		return
	}
	slices.SortFunc(all.calls, func(a, b call) int { // no call decides at the time of an admission before it
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.admitted(), b.admitted()))
	})
	admitted, refused := play(t, held, all.calls)
	if admitted < fewest || refused < fewest {
		t.Errorf("%d admitted and %d refused: too few to tell anything", admitted, refused)
	}
	t.Logf("%d callers, %d calls: %d admitted, %d refused", processes*callersEach, len(all.calls), admitted, refused)
}

// call is one run of the script, by its own record.
type call struct {
	at        int64 // microseconds, the script's
	batch     []ratelimit.Request
	decisions []ratelimit.Decision
}

// admitted is how many events a call has admitted.
func (c call) admitted() int {
	n := 0
	for _, decision := range c.decisions {
		if decision.Verdict == ratelimit.Admitted {
			n++
		}
	}
	return n
}

// fewest is how many decisions of each kind it takes to tell anything.
const fewest = 50

type log struct {
	mu       sync.Mutex
	calls    []call
	admitted int
}

func (l *log) add(c call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, c)
	l.admitted += c.admitted()
}

// goesOn reports whether it is not yet time to end, or the machine so busy that hardly anything was admitted.
func (l *log) goesOn(until time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(until) || l.admitted < fewest && time.Now().Before(until.Add(kit.Patience))
}

// timeOfReply is a hook that writes the time of a decision to where the call's context says.
type timeOfReply struct{}

func (timeOfReply) DialHook(next redis.DialHook) redis.DialHook { return next }

func (timeOfReply) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (timeOfReply) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		err := next(ctx, command)
		at, wanted := ctx.Value(timeOfReply{}).(*int64)
		if reply, ok := command.(*redis.Cmd); ok && wanted && err == nil && strings.HasPrefix(command.Name(), "eval") {
			if fields, decision := reply.Val().([]any); decision { // not that of another script
				*at = fields[1].(int64)
			}
		}
		return err
	}
}

// taken is a list of admissions, the newest last.
type taken []struct {
	at       int64
	category string
	cost     int
}

// in is how many slots are taken within (now - window, now], of one category or (where it is "") of all.
func (l taken) in(category string, window time.Duration, now int64) int {
	used := 0
	for i := len(l) - 1; i >= 0 && l[i].at > now-window.Microseconds(); i-- {
		if category == "" || l[i].category == category {
			used += l[i].cost
		}
	}
	return used
}

// check holds one decision against what was admitted before, and returns the list with it.
func (l taken) check(t *testing.T, held ratelimit.Rules, at int64, request ratelimit.Request, decision ratelimit.Decision) taken {
	t.Helper()
	switch decision.Verdict {
	case ratelimit.Admitted:
		for category, limit := range map[string]ratelimit.Limit{"": held.Global, request.Category: held.LimitFor(request.Category)} {
			for _, tier := range limit {
				if used := l.in(category, tier.Window, at) + request.Cost; used > tier.Count {
					t.Fatalf("%q at %d: %d slots of %s are taken", category, at, used, tier)
				}
			}
		}
		return append(l, taken{{at: at, category: request.Category, cost: request.Cost}}...)
	case ratelimit.Global, ratelimit.Category:
		category := request.Category
		if decision.Verdict == ratelimit.Global {
			category = ""
		}
		used := l.in(category, decision.Tier.Window, at)
		if used != decision.Used || used+request.Cost <= decision.Tier.Count {
			t.Fatalf("%q at %d: a cost of %d was refused by %s with %d taken, while %d were", category, at, request.Cost, decision.Tier, decision.Used, used)
		}
	default:
		t.Fatalf("%+v", decision)
	}
	return l
}

func play(t *testing.T, held ratelimit.Rules, calls []call) (admitted, refused int) {
	t.Helper()
	var list taken
	for _, c := range calls {
		for i, decision := range c.decisions {
			list = list.check(t, held, c.at, c.batch[i], decision)
		}
		refused += len(c.decisions)
	}
	return len(list), refused - len(list)
}
