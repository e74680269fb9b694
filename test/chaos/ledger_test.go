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

// shortestWindow is the shortest window of any limit in these tests, in microseconds. Once an event's
// slots have left it, the event may be charged again.
var shortestWindow = (200 * time.Millisecond).Microseconds()

// lookEvery is the interval of reading the admissions. It is shorter than shortestWindow, after which a
// slot may be replaced.
const lookEvery = 100 * time.Millisecond

// admission is one occupied slot, from the first look that saw it to the last. Times are microseconds on
// Redis's clock.
type admission struct {
	slot     string // "<category>:<id>"; further slots of a costly event are "<category>:<id> 2", ...
	at       int64
	score    int64   // start of counting, as of the last look
	scores   []int64 // increasing: the admission, then each move that a look saw
	first    int64   // time of the first look that saw it
	last     int64   // time of the last look that saw it
	refunded bool    // it disappeared before its retention was over
	unclear  bool    // it disappeared during a gap between looks, perhaps early
	back     bool    // it reappeared after a refund, which Redis has forgotten
	certain  int64   // it may have been absent before this time; zero means present since its admission
}

// counts returns the start of counting after the last move.
func (a *admission) counts() int64 { return a.scores[len(a.scores)-1] }

// mayCount reports whether the slot may have counted in the window that ends at until. Between two looks
// it may have moved more than once.
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

// idOf returns the event ID in the name of a slot. The publisher uses each ID in one category only, and
// all its IDs are short.
func idOf(slot string) string {
	first, _, _ := strings.Cut(slot, " ")
	_, id, _ := strings.Cut(first, ":")
	return id
}

// taken identifies an admission by slot and time: an ID that is admitted again takes a second slot.
type taken struct {
	slot string
	at   int64
}

// chargedAgain is a slot that was admitted a second time while the first admission still counted, and
// that no look saw free in between.
type chargedAgain struct {
	slot          string
	first, second int64
}

// ledger records the admissions in the limits' logs over time. All limits are exact.
//
// The global log ({ns}:global) keeps an admission for the longest window of any rule, which is many times
// the interval between looks. Redis loses nothing it has acknowledged (appendfsync always), or workers
// restore it before the next look. So the ledger sees every admission, to the microsecond, unless it was
// refunded or decided again before the next look; and an admission that disappears early was refunded or
// decided again. If a busy machine delayed the looks, a disappearance in that gap is unclear. A refunded
// admission counts until the last look that saw it. It may have counted a little longer, which only makes
// windows look emptier than they were.
type ledger struct {
	client    *redis.Client
	rules     ratelimit.Rules
	retention int64 // the longest window of any rule, in microseconds
	stop      context.CancelFunc
	done      chan struct{}

	mu       sync.Mutex
	now      map[taken]*admission
	gone     map[taken]bool // the refunded ones
	all      []*admission
	problems []string
	again    []chargedAgain
	lastLook int64
	longest  time.Duration // between two looks
	looks    int
	unseen   []span // gaps between looks that exceed shortestWindow
}

// watch reads the logs until the test ends, whenever Redis is available.
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
			_ = r.look(ctx) // fails while Redis is unavailable
		}
	}()
	t.Cleanup(func() {
		r.end()
		_ = r.client.Close()
	})
	return r
}

func (r *ledger) end() {
	r.stop()
	<-r.done
}

// keeps returns the minimum retention of a slot in its category's log, in microseconds.
func (r *ledger) keeps(slot string) int64 {
	category, _, _ := strings.Cut(slot, ":")
	return ratelimit.Rules{Global: r.rules.LimitFor(category)}.LongestWindow().Microseconds()
}

func key(name string) string { return "{" + namespace + "}:" + name }

// look records the contents of all logs at one moment. It returns errUnhealed for a closed store.
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
	if slices.Equal(names, again) { // otherwise a log created after the first listing was not read
		r.compare(seen, categories, now)
	}
	return nil
}

// mayHaveMissed reports whether a slot may have been taken and replaced unseen between from and to, in a
// gap between looks. Once an event's slots have left a window, the event is decided again, which removes
// them.
func (r *ledger) mayHaveMissed(from, to time.Time) bool {
	return to.After(time.UnixMicro(r.lastLook)) ||
		slices.ContainsFunc(r.unseen, func(s span) bool { return s.overlaps(from, to) })
}

// unseenFor returns the time since the last look.
func (r *ledger) unseenFor() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(time.UnixMicro(r.lastLook))
}

// mostUnseen bounds the gap between two looks. Within the retention no admission is missed; a quarter of
// it is a margin for the clocks.
func (r *ledger) mostUnseen() time.Duration {
	return time.Duration(r.retention) * time.Microsecond * 3 / 4
}

// errUnhealed means that the store may have forgotten admissions that workers have yet to restore.
var errUnhealed = errors.New("this store is not healed")

// isOpen reports whether workers may use the store; see quarantine.lua.
func isOpen(meta []any, replication string, now time.Time) bool {
	token, _ := meta[0].(string)
	opens, _ := meta[1].(string)
	micros, _ := strconv.ParseInt(opens, 10, 64)
	return strings.HasPrefix(token, replication+" ") && micros <= now.UnixMicro()
}

// takenOf parses a member of a log: "<id> <admission>", or "<id> <admission> <n>" for the n-th slot of an
// event.
func takenOf(member redis.Z) taken {
	name, _ := member.Member.(string)
	fields := strings.Fields(name)
	at, _ := strconv.ParseInt(fields[1], 10, 64)
	return taken{strings.Join(append(fields[:1], fields[2:]...), " "), at}
}

// counted returns the number of looks so far.
func (r *ledger) counted() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.looks
}

// take records the members of the global log and returns those present.
func (r *ledger) take(members []redis.Z, now int64) map[taken]bool {
	before := map[string]*admission{} // the latest admission of each slot
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
			continue // expired: it counts in no window
		}
		seen[identity] = true
		if a == nil {
			if other := before[identity.slot]; other != nil && identity.at < other.counts()+shortestWindow {
				r.again = append(r.again, chargedAgain{identity.slot, other.counts(), identity.at})
			}
			a = &admission{
				slot: identity.slot, at: identity.at, scores: []int64{identity.at}, first: now, back: r.gone[identity],
			}
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

// compare checks the categories' logs against the global one: a slot must be charged to both or to
// neither, and count from the same time in both.
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

// byID returns the admissions by event ID, the oldest first. Further slots of a costly event
// are left out.
func (r *ledger) byID() map[string][]*admission {
	admissions := map[string][]*admission{}
	for _, a := range r.all {
		if !strings.Contains(a.slot, " ") {
			admissions[a.id()] = append(admissions[a.id()], a)
		}
	}
	return admissions
}

// overfull finds the window (t-d, t] of a scope's tier that exceeds its allowance the most, and returns
// its slots, the allowance and t. It only needs windows that end with a slot, because slots only leave in
// between. A slot counts at its last move; a move only removes it from windows that are already over.
func overfull(
	scope []*admission, window time.Duration, allowed func(from, to int64) int,
) (slots, most int, at int64) {
	slices.SortFunc(scope, func(a, b *admission) int { return cmp.Compare(a.counts(), b.counts()) })
	for i, a := range scope {
		t := a.counts()
		if i+1 < len(scope) && scope[i+1].counts() == t {
			continue // the last of several at one time includes them all
		}
		n, from := held(scope, t, window)
		if limit := allowed(from, t); n > limit+slots-most {
			slots, most, at = n, limit, t
		}
	}
	return slots, most, at
}

// held counts the slots in the window that ends at t, and returns the earliest admission among them. The
// scope must be sorted by counts.
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

// inFlight reads the in-flight records, by event ID.
func (r *ledger) inFlight(ctx context.Context) (map[string]ratelimit.InFlight, error) {
	texts, err := r.client.HGetAll(ctx, key("inflight")).Result()
	if err != nil {
		return nil, err
	}
	records := map[string]ratelimit.InFlight{}
	for slot, text := range texts {
		if records[idOf(slot)], err = ratelimit.ParseInFlight(text); err != nil {
			return nil, fmt.Errorf("%s in flight: %w", slot, err)
		}
	}
	return records, nil
}
