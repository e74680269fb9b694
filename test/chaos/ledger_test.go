package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/internal/wait"
)

// shortestWindow is the shortest window of the limits of all runs, in microseconds. An event whose slots have
// left it may be charged again.
var shortestWindow = (200 * time.Millisecond).Microseconds()

// lookEvery is the time between two looks at the admissions. It leaves room for a look within shortestWindow,
// after which a slot may be replaced.
const lookEvery = 100 * time.Millisecond

// admission is one slot that was taken, from the first look that saw it to the last. Times are microseconds
// of Redis.
type admission struct {
	slot     string // "<category>:<id>"; further slots of a costly event are "<category>:<id> 2", ...
	at       int64
	score    int64   // from when it counts, as the last look saw it
	scores   []int64 // the highest ones, in order: the admission, then each move that a look saw
	first    int64   // time of the first look that saw it
	last     int64   // time of the last look that saw it
	refunded bool    // it went before its time
	unclear  bool    // it went, before or at its time, while nobody looked
	back     bool    // and is one that came back: Redis has forgotten the refund
	certain  int64   // it may not have been there before; zero means that it was from the admission on
}

// counts is the last time from which it counted.
func (a *admission) counts() int64 { return a.scores[len(a.scores)-1] }

// mayCount reports whether it may have counted in the window that ends at a time. Between two looks it may
// have moved more than once.
func (a *admission) mayCount(until int64, window time.Duration) bool {
	from := until - window.Microseconds()
	for i, score := range a.scores {
		next := score
		if i+1 < len(a.scores) {
			next = a.scores[i+1]
		}
		if score <= until && next > from {
			return true
		}
	}
	return false
}

func (a *admission) id() string { return idOf(a.slot) }

// idOf is the id in the name of a slot. Each of the publisher's ids has one category, and all of them are
// short.
func idOf(slot string) string {
	first, _, _ := strings.Cut(slot, " ")
	_, id, _ := strings.Cut(first, ":")
	return id
}

// taken is one slot by its name and time: an id that is admitted anew takes a second one.
type taken struct {
	slot string
	at   int64
}

// chargedAgain is a slot whose time of admission changed while the first one still counted, without a look
// that saw it free.
type chargedAgain struct {
	slot          string
	first, second int64
}

// ledger is what the sets of the limits, all of which are exact, have held over time.
//
// What is certain here: the global set ({ns}:global) keeps an admission for the longest window of any rule,
// which is many times the time between two looks, and Redis forgets nothing that it has answered (appendfsync
// always), or gets it back from the workers before it is looked at again. So every admission is seen, with
// the microsecond at which it was made, unless it was refunded, or decided again, before the next look; and
// one that goes earlier was refunded, or decided again. On a machine that is too busy for a look, one that
// went meanwhile is unclear. An admission counts as long as a look has seen it. One that was refunded may
// have counted a little longer, which only makes windows look emptier than they were.
type ledger struct {
	client    *redis.Client
	rules     ratelimit.Rules
	retention int64 // microseconds; the longest window of any rule
	stop      context.CancelFunc
	done      chan struct{}

	mu       sync.Mutex
	now      map[taken]*admission
	gone     map[taken]bool // those that were refunded
	all      []*admission
	problems []string
	again    []chargedAgain
	lastLook int64
	longest  time.Duration // between two looks
	looks    int
	unseen   []span // between two looks that were further apart than shortestWindow
}

// watch looks at the sets until the test ends, whenever Redis is there.
func watch(t *testing.T, client *redis.Client, rules ratelimit.Rules) *ledger {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &ledger{
		client: client,
		rules:  rules, retention: rules.LongestWindow().Microseconds(), stop: cancel, done: make(chan struct{}), now: map[taken]*admission{}, gone: map[taken]bool{},
	}
	if global := (ratelimit.Rules{Global: rules.Global}).LongestWindow(); global != rules.LongestWindow() {
		t.Fatalf("the longest window of the global limit is %s, expected that of all, %s", global, rules.LongestWindow())
	}
	go func() {
		defer close(r.done)
		for wait.For(ctx, lookEvery) {
			_ = r.look(ctx) // an error says that Redis is unavailable
		}
	}()
	t.Cleanup(func() {
		r.end()
		_ = r.client.Close()
	})
	return r
}

// end ends the looks.
func (r *ledger) end() {
	r.stop()
	<-r.done
}

// keeps is how long, in microseconds, the log of a slot's category keeps it at least.
func (r *ledger) keeps(slot string) int64 {
	category, _, _ := strings.Cut(slot, ":")
	return ratelimit.Rules{Global: r.rules.LimitFor(category)}.LongestWindow().Microseconds()
}

func key(name string) string { return "{" + namespace + "}:" + name }

// look takes down what the sets hold at one moment.
func (r *ledger) look(ctx context.Context) error {
	prefix := key("category:")
	names, err := r.client.Keys(ctx, prefix+"*").Result()
	if err != nil {
		return err
	}
	pipe := r.client.TxPipeline()
	global := pipe.ZRangeWithScores(ctx, key("global"), 0, -1)
	categories := map[string]*redis.ZSliceCmd{}
	for _, name := range names {
		categories[strings.TrimPrefix(name, prefix)] = pipe.ZRangeWithScores(ctx, name, 0, -1)
	}
	clock := pipe.Time(ctx)
	meta := pipe.HMGet(ctx, key("meta"), "token", "opens")
	generation := pipe.InfoMap(ctx, "replication")
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	replication := generation.Val()["Replication"]["master_replid"]
	if !isOpen(meta.Val(), replication, clock.Val()) {
		return errUnhealed
	}
	again, err := r.client.Keys(ctx, prefix+"*").Result()
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := clock.Val().UnixMicro()
	if r.lastLook > 0 {
		r.longest = max(r.longest, time.Duration(now-r.lastLook)*time.Microsecond)
		if now-r.lastLook > shortestWindow {
			r.unseen = append(r.unseen, span{time.UnixMicro(r.lastLook), clock.Val()})
		}
	}
	r.lastLook = now
	r.looks++
	seen := r.take(global.Val(), now)
	for identity, a := range r.now {
		if !seen[identity] {
			a.refunded = now < a.counts()+r.retention
			a.unclear = !a.refunded && now-a.last > shortestWindow
			if a.refunded {
				r.gone[identity] = true
			}
			delete(r.now, identity)
		}
	}
	slices.Sort(names)
	slices.Sort(again)
	if slices.Equal(names, again) { // else a set that was created after the first list was not read
		r.compare(seen, categories, now)
	}
	return nil
}

// mayHaveMissed reports whether a slot may have been taken and replaced between two looks at a time from one
// to the other. An event whose slots have left a window is decided again, which takes them out.
func (r *ledger) mayHaveMissed(from, to time.Time) bool {
	return to.After(time.UnixMicro(r.lastLook)) ||
		slices.ContainsFunc(r.unseen, func(s span) bool { return s.overlaps(from, to) })
}

// unseenFor is how long ago the last look was.
func (r *ledger) unseenFor() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(time.UnixMicro(r.lastLook))
}

// mostUnseen is how far apart looks may be: an admission stays for the retention, so none is missed; a
// quarter is for the clocks.
func (r *ledger) mostUnseen() time.Duration {
	return time.Duration(r.retention) * time.Microsecond * 3 / 4
}

// errUnhealed is that a store may have forgotten what workers are about to put back.
var errUnhealed = errors.New("this store is not healed")

// isOpen reports whether workers decide on a store; see quarantine.lua.
func isOpen(meta []any, replication string, now time.Time) bool {
	token, _ := meta[0].(string)
	opens, _ := meta[1].(string)
	micros, _ := strconv.ParseInt(opens, 10, 64)
	return strings.HasPrefix(token, replication+" ") && micros <= now.UnixMicro()
}

// takenOf is the slot that a member stands for: "<id> <admission>", and "<id> <admission> <n>" for the n-th
// slot of an event.
func takenOf(member redis.Z) taken {
	name, _ := member.Member.(string)
	fields := strings.Fields(name)
	at, _ := strconv.ParseInt(fields[1], 10, 64)
	return taken{strings.Join(append(fields[:1], fields[2:]...), " "), at}
}

// counted is how often the ledger was looked at.
func (r *ledger) counted() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.looks
}

// take notes the members of the global set.
func (r *ledger) take(members []redis.Z, now int64) map[taken]bool {
	before := map[string]*admission{} // the latest of each name
	for _, a := range r.now {
		if other := before[a.slot]; other == nil || other.at < a.at {
			before[a.slot] = a
		}
	}
	seen := make(map[taken]bool, len(members))
	for _, member := range members {
		identity, score := takenOf(member), int64(member.Score)
		a := r.now[identity]
		if score <= now-r.retention && a == nil {
			continue // it left in its time: it counts in no window
		}
		seen[identity] = true
		if a == nil {
			if other := before[identity.slot]; other != nil && identity.at < other.counts()+shortestWindow {
				r.again = append(r.again, chargedAgain{identity.slot, other.counts(), identity.at})
			}
			a = &admission{slot: identity.slot, at: identity.at, scores: []int64{identity.at}, first: now, back: r.gone[identity]}
			r.now[identity] = a
			r.all = append(r.all, a)
		}
		a.score = score
		if score > a.counts() {
			a.scores = append(a.scores, score)
		}
		a.last = now
	}
	return seen
}

// compare holds the categories' sets against the global one: charged to both or to neither, and from the same
// time on.
func (r *ledger) compare(global map[taken]bool, categories map[string]*redis.ZSliceCmd, now int64) {
	inCategory := map[taken]bool{}
	for category, members := range categories {
		for _, member := range members.Val() {
			identity, score := takenOf(member), int64(member.Score)
			inCategory[identity] = true
			switch a := r.now[identity]; {
			case score <= now-r.retention:
			case !global[identity]:
				r.problems = append(r.problems,
					fmt.Sprintf("category %s has %q at %d, the global set does not", category, identity.slot, identity.at))
			case a != nil && a.score != score:
				r.problems = append(r.problems, fmt.Sprintf(
					"%q counts from %d in category %s and from %d in the global set", identity.slot, score, category, a.score))
			}
		}
	}
	for identity := range global {
		if a := r.now[identity]; a.score > now-r.keeps(identity.slot) && !inCategory[identity] {
			r.problems = append(r.problems,
				fmt.Sprintf("the global set has %q at %d, its category's set does not", identity.slot, identity.at))
		}
	}
}

// byID gives all admissions by event id, the oldest first.
func (r *ledger) byID() map[string][]*admission {
	admissions := map[string][]*admission{}
	for _, a := range r.all {
		if !strings.Contains(a.slot, " ") {
			admissions[a.id()] = append(admissions[a.id()], a)
		}
	}
	return admissions
}

// overfull finds the window (t-d, t] of a scope's tier that held the most above its allowance, and returns its
// slots, the allowance and t. Windows that end with a slot are enough: between two of them slots only leave. A
// slot counts at its last move: later moves only take it out of windows that are over.
func overfull(
	scope []*admission, window time.Duration, allowed func(from, to int64) int,
) (slots, most int, at int64) {
	slices.SortFunc(scope, func(a, b *admission) int { return cmp.Compare(a.counts(), b.counts()) })
	for i, a := range scope {
		t := a.counts()
		if i+1 < len(scope) && scope[i+1].counts() == t {
			continue // of one moment the last one sees them all
		}
		n, from := held(scope, t, window)
		if limit := allowed(from, t); n > limit+slots-most {
			slots, most, at = n, limit, t
		}
	}
	return slots, most, at
}

// held counts the slots that the window which ends at t held, of a scope in the order of counts, and returns
// the earliest admission among them.
func held(scope []*admission, t int64, window time.Duration) (n int, from int64) {
	from = t
	before := func(a *admission, from int64) int { return cmp.Compare(a.counts(), from) }
	first, _ := slices.BinarySearchFunc(scope, t-window.Microseconds()+1, before)
	for _, a := range scope[first:] {
		if a.counts() > t {
			break
		}
		if a.certain <= t && (!a.refunded || a.last >= t) {
			n, from = n+1, min(from, a.at)
		}
	}
	return n, from
}

// inFlight is the in-flight hash: the records by event id.
func (r *ledger) inFlight(ctx context.Context) (map[string]ratelimit.InFlight, error) {
	texts, err := r.client.HGetAll(ctx, key("inflight")).Result()
	if err != nil {
		return nil, err
	}
	records := map[string]ratelimit.InFlight{}
	for slot, text := range texts {
		if records[idOf(slot)], err = ratelimit.ParseInFlight(text); err != nil {
			return nil, fmt.Errorf("%s in flight: %d", slot, err)
		}
	}
	return records, nil
}
