package ratelimit_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// day is the dedupe window of most tests.
const day = 24 * time.Hour

// store is an empty Redis of a test's own: a redis-server process, a Cluster, or the embedded store. The
// client is one of the server that keeps all keys of namespace "n".
type store struct {
	*redis.Client
	server   *redistest.Server    // nil on the embedded store
	embedded *miniredis.Miniredis // nil on a redis-server
	now      time.Time            // what TIME says on the embedded store, where it moves only by advance
	aged     time.Duration        // how far advance has moved a redis-server
	replies  *replies
}

// eachStore runs a test on each kind of store; see redistest.EachStore.
func eachStore(t *testing.T, test func(t *testing.T, s *store)) {
	t.Helper()
	redistest.EachStore(t, func(t *testing.T, server *redistest.Server) {
		awaitMidMinute(t)
		test(t, onServer(t, server))
	}, func(t *testing.T, embedded *miniredis.Miniredis) { test(t, newEmbedded(t, embedded)) })
}

// eachLimiter runs a test on each kind of store with a limiter under a global limit and one for each
// category.
func eachLimiter(t *testing.T, global, category string, test func(t *testing.T, s *store, limiter caller)) {
	t.Helper()
	eachStore(t, func(t *testing.T, s *store) { test(t, s, s.limiter(t, kit.Rules(global, category, ""), day)) })
}

// onServer is the store that a server is; of a Cluster, the node that keeps the keys.
func onServer(t testing.TB, server *redistest.Server) *store {
	t.Helper()
	return &store{Client: server.ClientFor(t, "{n}"), server: server, replies: &replies{}}
}

// onProcess starts a redis-server process for a test that stops it, starts it again or sets it up in its own
// way.
func onProcess(t testing.TB, extra ...string) *store {
	t.Helper()
	return onServer(t, redistest.StartProcess(t, extra...))
}

func newEmbedded(t *testing.T, embedded *miniredis.Miniredis) *store {
	client := redis.NewClient(&redis.Options{Addr: embedded.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	// The odd microseconds would show where a time loses its tail.
	s := &store{Client: client, embedded: embedded, replies: &replies{}}
	s.startAt(0)
	return s
}

// startAt sets the clock of an embedded store that is empty: so long after a certain moment, whose odd
// microseconds would show where a time loses its tail.
func (s *store) startAt(after time.Duration) {
	s.now = time.Date(2026, 11, 20, 4, 39, 1, 123457000, time.UTC).Add(after)
	s.embedded.SetTime(s.now)
}

// age makes everything stored older by ARGV[1] microseconds: entries, records, the pause and what is left of
// each key's life. A negative number makes it younger. A sorted set's life keeps its length in whole
// milliseconds, counted from its newest entry, as the scripts write it. All scores are times; of names none
// is one, those of buckets are numbers of slots.
var age = redis.NewScript(`
local shift = tonumber(ARGV[1])
local function aged(time) return string.format('%.0f', tonumber(time) - shift) end
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind, expires = redis.call('TYPE', key).ok, redis.call('PEXPIRETIME', key)
  local earlier = math.floor(shift / 1000)
  if kind == 'zset' then
    local entries, renamed = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES'), {}
    for i = 1, #entries, 2 do
      if entries[i + 1] ~= 'inf' then
        -- A bucket has the time of its first admission in it, a slot of a log that of its own.
        local slots, began, rest = string.match(entries[i], '^(%d+ %d+ )(%d+)()$')
        if not slots then
          slots, began, rest = string.match(entries[i], '^(%S+ )(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d)(.*)$')
        end
        if slots then redis.call('ZREM', key, entries[i]) end
        renamed[#renamed + 1] = aged(entries[i + 1])
        renamed[#renamed + 1] = slots and slots .. aged(began) .. (type(rest) == 'string' and rest or '') or entries[i]
      end
    end
    for i = 1, #renamed, 2 do redis.call('ZADD', key, renamed[i], renamed[i + 1]) end
    local newest = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')[2]
    if newest == 'inf' then newest = redis.call('ZREVRANGE', key, 1, 1, 'WITHSCORES')[2] end
    if newest then earlier = math.floor((tonumber(newest) + shift) / 1000) - math.floor(tonumber(newest) / 1000) end
  elseif kind == 'hash' then
    local records = redis.call('HGETALL', key)
    for i = 1, #records, 2 do
      local since, posts, last, rest = string.match(records[i + 1], '^(%d+)(g?:%d+:)(%d+)(:[^ ]* .*)$')
      local published, ends, name = string.match(records[i + 1], '^(%d+ )(%d+)( .*)$')
      if ends and string.find(key, ':pacewaiting:', 1, true) then
        redis.call('HSET', key, records[i], published .. aged(ends) .. name)
      elseif since then
        redis.call('HSET', key, records[i], aged(since) .. posts .. (last == '0' and last or aged(last)) .. rest)
      else
        since, rest = string.match(records[i + 1], '^(%d+)(g? .*)$')
        if not since and string.find(key, ':meta$') then since, rest = string.match(records[i + 1], '^(%d+)$'), '' end
        if since then redis.call('HSET', key, records[i], aged(since) .. rest) end
      end
    end
  else
    local value = redis.call('GET', key)
    redis.call('SET', key, tonumber(value) and aged(value) or value, 'KEEPTTL')
  end
  if expires > 0 then redis.call('PEXPIREAT', key, string.format('%.0f', expires - earlier)) end
end`)

// advance lets d pass at once, or steps the clock back when d is negative. The embedded store's clock can be
// set. A redis-server's cannot, so there everything in it gets older instead, which no script can tell from
// waiting.
func (s *store) advance(t testing.TB, d time.Duration) {
	t.Helper()
	d = d.Truncate(time.Microsecond)
	if s.embedded != nil {
		s.now = s.now.Add(d)
		s.embedded.SetTime(s.now)
		if d < 0 { // keys end at a time, which is then further away; the store counts what is left of each
			s.embedded.FastForward(d)
		}
		return
	}
	s.aged += d
	if err := age.Run(t.Context(), s.Client, nil, d.Microseconds()).Err(); err != nil && err != redis.Nil {
		t.Fatalf("age the store by %s: %v", d, err)
	}
}

// replies is a hook that keeps the latest reply of a script as it came, with the times that a Decision leaves
// out.
type replies struct {
	mu     sync.Mutex
	latest any
}

func (r *replies) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *replies) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (r *replies) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		err := next(ctx, command)
		if reply, ok := command.(*redis.Cmd); ok && err == nil && strings.HasPrefix(command.Name(), "eval") {
			r.mu.Lock()
			r.latest = reply.Val()
			r.mu.Unlock()
		}
		return err
	}
}

// latest is the latest reply of a script as it came.
func (s *store) latest() any {
	s.replies.mu.Lock()
	defer s.replies.mu.Unlock()
	return s.replies.latest
}

// clock is what the latest decision says of its time: TIME itself, and by how much the deciding clock was
// ahead of it.
func (s *store) clock(t testing.TB) (clock, lag int64) {
	t.Helper()
	reply := s.latest()
	fields, ok := reply.([]any)
	if !ok || len(fields) < 3 {
		t.Fatalf("the latest reply is no decision: %v", reply)
	}
	return fields[1].(int64) - fields[2].(int64), fields[2].(int64)
}

// score is when a slot was taken, in microseconds.
func (s *store) score(t testing.TB, key, member string) int64 {
	t.Helper()
	score, err := s.ZScore(t.Context(), key, member).Result()
	if err != nil {
		t.Fatalf("score of %s in %s: %v", member, key, err)
	}
	return int64(score)
}

// count is how many entries a sorted set has.
func (s *store) count(t testing.TB, key string) int {
	t.Helper()
	return int(s.ZCard(t.Context(), key).Val())
}

// contents is all that the store holds, key by key, with types, entries and the moments at which keys expire.
func (s *store) contents(t testing.TB) string {
	t.Helper()
	ctx := t.Context()
	names := s.Keys(ctx, "*").Val()
	slices.Sort(names)
	var text strings.Builder
	for _, name := range names {
		kind := s.Type(ctx, name).Val()
		fmt.Fprintf(&text, "%s (%s, until %d)\n", name, kind, s.PExpireTime(ctx, name).Val()/time.Millisecond)
		switch kind {
		case "zset":
			for _, entry := range s.ZRangeWithScores(ctx, name, 0, -1).Val() {
				fmt.Fprintf(&text, "  %s = %s\n", entry.Member, strconv.FormatFloat(entry.Score, 'f', -1, 64))
			}
		case "hash":
			records := s.HGetAll(ctx, name).Val()
			for _, id := range slices.Sorted(maps.Keys(records)) {
				fmt.Fprintf(&text, "  %s = %s\n", id, records[id])
			}
		default:
			fmt.Fprintf(&text, "  %s\n", s.Get(ctx, name).Val())
		}
	}
	return text.String()
}

// unchanged expects that the store holds what it held before, which is what contents returned then.
func (s *store) unchanged(t testing.TB, before string) {
	t.Helper()
	if difference := cmp.Diff(before, s.contents(t)); difference != "" {
		t.Errorf("the store changed (-before +after):\n%s", difference)
	}
}

// caller asks a limiter of namespace "n" and fails the test where an answer cannot be had.
type caller struct {
	*ratelimit.Limiter
	t testing.TB
}

// connect makes one more client of the store, as a replica would. See replies. The embedded store computes in
// this process, so on a busy machine an answer of it may take longer than the product waits for one; that is
// not what tests are about.
func (s *store) connect(t testing.TB) redis.UniversalClient {
	t.Helper()
	var client redis.UniversalClient
	if s.server == nil {
		client = redis.NewClient(&redis.Options{Addr: s.Options().Addr, ReadTimeout: kit.Patience, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = client.Close() })
	} else {
		client = kit.OpenRedis(t, s.url())
	}
	client.AddHook(s.replies)
	return client
}

// url is what REDIS_URL would be.
func (s *store) url() string {
	if s.server != nil {
		return s.server.URL()
	}
	return "redis://" + s.Options().Addr
}

func (s *store) limiter(t testing.TB, rules ratelimit.Rules, dedupe time.Duration) caller {
	t.Helper()
	limiter, err := ratelimit.New(s.connect(t), "n", rules, dedupe)
	kit.Check(t, err)
	return caller{Limiter: limiter, t: t}
}

func (c caller) admit(batch ...ratelimit.Request) []ratelimit.Decision {
	c.t.Helper()
	decisions, err := c.Admit(c.t.Context(), batch)
	if err != nil {
		c.t.Fatalf("admit: %v", err)
	}
	if len(decisions) != len(batch) {
		c.t.Fatalf("%d decisions for %d requests", len(decisions), len(batch))
	}
	return decisions
}

func (c caller) one(request ratelimit.Request) ratelimit.Decision {
	c.t.Helper()
	return c.admit(request)[0]
}

// want asks for each request by itself and expects the same outcome every time.
func (c caller) want(verdict ratelimit.Verdict, requests ...ratelimit.Request) {
	c.t.Helper()
	for _, request := range requests {
		if got := c.one(request); got.Verdict != verdict {
			c.t.Fatalf("%s (%s): %+v, expected outcome %d", request.ID, request.Category, got, verdict)
		}
	}
}

// admits expects that each event may be sent.
func (c caller) admits(requests ...ratelimit.Request) {
	c.t.Helper()
	c.want(ratelimit.Admitted, requests...)
}

// duplicates expects that each event is known.
func (c caller) duplicates(requests ...ratelimit.Request) {
	c.t.Helper()
	c.want(ratelimit.Duplicate, requests...)
}

func (c caller) sent(request ratelimit.Request) {
	c.t.Helper()
	if err := c.Sent(c.t.Context(), request); err != nil {
		c.t.Fatalf("sent: %v", err)
	}
}

func (c caller) refund(request ratelimit.Request) bool {
	c.t.Helper()
	return c.refundAfter(request, "")
}

// refundAfter refunds an event whose last known post has that name.
func (c caller) refundAfter(request ratelimit.Request, known string) bool {
	c.t.Helper()
	refunded, err := c.Refund(c.t.Context(), request, known)
	if err != nil {
		c.t.Fatalf("refund: %v", err)
	}
	return refunded
}

// refunds expects that an event without a post gives its slots back.
func (c caller) refunds(request ratelimit.Request) {
	c.t.Helper()
	if !c.refund(request) {
		c.t.Error("nothing was refunded")
	}
}

// peek is what is used of the global limit and of those of categories.
func (c caller) peek(categories ...string) []ratelimit.Usage {
	c.t.Helper()
	usages, err := c.Peek(c.t.Context(), categories...)
	kit.Check(c.t, err)
	return usages
}

// event is a request of cost 1, delivered by a message of its own.
func event(id, category string) ratelimit.Request {
	return ratelimit.Request{ID: id, Delivery: "message of " + id, Category: category, Cost: 1}
}

// events are n of them with distinct ids.
func events(n int, prefix, category string) []ratelimit.Request {
	requests := make([]ratelimit.Request, n)
	for i := range requests {
		requests[i] = event(fmt.Sprintf("%s-%d", prefix, i+1), category)
	}
	return requests
}

// slot is the name of an event's slot, where all parts of it are plain.
func slot(request ratelimit.Request) string { return request.Category + ":" + request.ID }

func costing(request ratelimit.Request, cost int) ratelimit.Request {
	request.Cost = cost
	return request
}

// by is the same event in another delivery.
func by(delivery string, request ratelimit.Request) ratelimit.Request {
	request.Delivery = delivery
	return request
}

// from is the same event with a source.
func from(source string, request ratelimit.Request) ratelimit.Request {
	request.Source = source
	return request
}

// verdicts are the bare answers, for comparing a whole batch.
func verdicts(decisions []ratelimit.Decision) []ratelimit.Verdict {
	bare := make([]ratelimit.Verdict, len(decisions))
	for i, decision := range decisions {
		bare[i] = decision.Verdict
	}
	return bare
}

// sameVerdicts compares the bare answers to a whole batch.
func sameVerdicts(t testing.TB, want []ratelimit.Verdict, decisions []ratelimit.Decision) {
	t.Helper()
	if difference := cmp.Diff(want, verdicts(decisions)); difference != "" {
		t.Errorf("(-want +got):\n%s", difference)
	}
}

// TestMain lets tests overlap: those of failures wait for servers, and the others have a store each.
func TestMain(m *testing.M) {
	kit.Overlap(12)
	kit.QuietRedis()
	debug.SetGCPercent(400) // the embedded store makes a Lua state for each call, and throws it away
	playHistories("30")
	os.Exit(m.Run())
}

// playHistories is how many random histories rapid plays of each kind where neither the command line nor
// -short says how many. "make prove" plays more.
func playHistories(n string) {
	chosen := testing.Short()
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "rapid.checks" })
	if !chosen {
		_ = flag.Set("rapid.checks", n)
	}
}

func mustParse(text string) ratelimit.Limit {
	limit, err := ratelimit.ParseLimit(text)
	if err != nil {
		panic(err)
	}
	return limit
}

// newLimiter gives a limiter of its own namespace on the server.
func newLimiter(tb testing.TB, server *redistest.Server, rules ratelimit.Rules, dedupe time.Duration) *ratelimit.Limiter {
	tb.Helper()
	limiter, err := ratelimit.New(server.Client(tb), tb.Name(), rules, dedupe)
	kit.Check(tb, err)
	return limiter
}
