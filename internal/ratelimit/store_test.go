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

// store is a Redis for one test, empty at first: a redis-server process, a Cluster, or the embedded store.
// Its client is connected to the server with the keys of namespace "n".
type store struct {
	*redis.Client
	server   *redistest.Server    // nil on the embedded store
	embedded *miniredis.Miniredis // nil on a redis-server
	now      time.Time            // TIME of the embedded store, which stands still between advances
	aged     time.Duration        // sum of all advances of a redis-server
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

// eachLimiter runs a test on each kind of store, with a limiter under a global and a category limit.
func eachLimiter(t *testing.T, global, category string, test func(t *testing.T, s *store, limiter caller)) {
	t.Helper()
	eachStore(t, func(t *testing.T, s *store) { test(t, s, s.limiter(t, kit.Rules(global, category, ""), day)) })
}

// onServer returns the store on a server, or on the node of a Cluster that has the keys.
func onServer(t testing.TB, server *redistest.Server) *store {
	t.Helper()
	return &store{Client: server.ClientFor(t, "{n}"), server: server, replies: &replies{}}
}

// onProcess starts a redis-server process for a test that restarts or configures it.
func onProcess(t testing.TB, extra ...string) *store {
	t.Helper()
	return onServer(t, redistest.StartProcess(t, extra...))
}

func newEmbedded(t *testing.T, embedded *miniredis.Miniredis) *store {
	client := redis.NewClient(&redis.Options{Addr: embedded.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	s := &store{Client: client, embedded: embedded, replies: &replies{}}
	s.startAt(0)
	return s
}

// startAt sets the clock of an empty embedded store to a duration after a fixed time. The odd microseconds
// of that time reveal any rounding.
func (s *store) startAt(after time.Duration) {
	s.now = time.Date(2026, 11, 20, 4, 39, 1, 123457000, time.UTC).Add(after)
	s.embedded.SetTime(s.now)
}

// age makes all data older by ARGV[1] microseconds, or younger if that is negative: scores, the times in
// members and records, and the expiry of keys. The scripts expire a sorted set a whole number of
// milliseconds after its newest entry, and age keeps that number.
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

// advance lets d pass at once. If d is negative, it steps the clock back. Only the embedded store's clock
// can be set. On a redis-server all data gets older instead, which scripts cannot distinguish from waiting.
func (s *store) advance(t testing.TB, d time.Duration) {
	t.Helper()
	d = d.Truncate(time.Microsecond)
	if s.embedded != nil {
		s.now = s.now.Add(d)
		s.embedded.SetTime(s.now)
		if d < 0 { // miniredis stores remaining times to live, which now get longer
			s.embedded.FastForward(d)
		}
		return
	}
	s.aged += d
	if err := age.Run(t.Context(), s.Client, nil, d.Microseconds()).Err(); err != nil && err != redis.Nil {
		t.Fatalf("age the store by %s: %v", d, err)
	}
}

// replies is a hook that keeps the latest raw reply of a script, with times that a Decision leaves out.
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

// latest returns the latest raw reply of a script.
func (s *store) latest() any {
	s.replies.mu.Lock()
	defer s.replies.mu.Unlock()
	return s.replies.latest
}

// clock returns TIME at the latest decision, and the lag: how far the time of the decision was ahead of it.
func (s *store) clock(t testing.TB) (clock, lag int64) {
	t.Helper()
	reply := s.latest()
	fields, ok := reply.([]any)
	if !ok || len(fields) < 3 {
		t.Fatalf("the latest reply is no decision: %v", reply)
	}
	return fields[1].(int64) - fields[2].(int64), fields[2].(int64)
}

// score returns the score of a member: a time in microseconds.
func (s *store) score(t testing.TB, key, member string) int64 {
	t.Helper()
	score, err := s.ZScore(t.Context(), key, member).Result()
	if err != nil {
		t.Fatalf("score of %s in %s: %v", member, key, err)
	}
	return int64(score)
}

func (s *store) count(t testing.TB, key string) int {
	t.Helper()
	return int(s.ZCard(t.Context(), key).Val())
}

// contents prints all keys of the store with their types, expiry times and entries.
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

// unchanged expects that contents still returns the given text.
func (s *store) unchanged(t testing.TB, before string) {
	t.Helper()
	if difference := cmp.Diff(before, s.contents(t)); difference != "" {
		t.Errorf("the store changed (-before +after):\n%s", difference)
	}
}

// caller calls a limiter of namespace "n". Its methods fail the test on an error.
type caller struct {
	*ratelimit.Limiter
	t testing.TB
}

// connect opens another client of the store, as a worker would, and records its replies. The embedded store
// runs in this process, so on a busy machine it can exceed the timeout of a worker: its client waits longer.
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

// url returns the REDIS_URL of the store.
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

// want admits each request in a batch of its own and expects the same verdict for all.
func (c caller) want(verdict ratelimit.Verdict, requests ...ratelimit.Request) {
	c.t.Helper()
	for _, request := range requests {
		if got := c.one(request); got.Verdict != verdict {
			c.t.Fatalf("%s (%s): %+v, expected outcome %d", request.ID, request.Category, got, verdict)
		}
	}
}

func (c caller) admits(requests ...ratelimit.Request) {
	c.t.Helper()
	c.want(ratelimit.Admitted, requests...)
}

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

// refundAfter refunds an event. known names the last post with a result that the caller has seen.
func (c caller) refundAfter(request ratelimit.Request, known string) bool {
	c.t.Helper()
	refunded, err := c.Refund(c.t.Context(), request, known)
	if err != nil {
		c.t.Fatalf("refund: %v", err)
	}
	return refunded
}

// refunds expects the refund of an event without a post.
func (c caller) refunds(request ratelimit.Request) {
	c.t.Helper()
	if !c.refund(request) {
		c.t.Error("nothing was refunded")
	}
}

// peek returns the usage of the global limit and of the limits of categories.
func (c caller) peek(categories ...string) []ratelimit.Usage {
	c.t.Helper()
	usages, err := c.Peek(c.t.Context(), categories...)
	kit.Check(c.t, err)
	return usages
}

// event returns a request of cost 1 with its own stream message.
func event(id, category string) ratelimit.Request {
	return ratelimit.Request{ID: id, Delivery: "message of " + id, Category: category, Cost: 1}
}

// events returns n requests with distinct ids.
func events(n int, prefix, category string) []ratelimit.Request {
	requests := make([]ratelimit.Request, n)
	for i := range requests {
		requests[i] = event(fmt.Sprintf("%s-%d", prefix, i+1), category)
	}
	return requests
}

// slot returns the id in Redis of an event with plain names and without a source.
func slot(request ratelimit.Request) string { return request.Category + ":" + request.ID }

func costing(request ratelimit.Request, cost int) ratelimit.Request {
	request.Cost = cost
	return request
}

// by returns the same event in another stream message.
func by(delivery string, request ratelimit.Request) ratelimit.Request {
	request.Delivery = delivery
	return request
}

// from returns the same event with a source.
func from(source string, request ratelimit.Request) ratelimit.Request {
	request.Source = source
	return request
}

func verdicts(decisions []ratelimit.Decision) []ratelimit.Verdict {
	bare := make([]ratelimit.Verdict, len(decisions))
	for i, decision := range decisions {
		bare[i] = decision.Verdict
	}
	return bare
}

// sameVerdicts compares only the verdicts of a batch.
func sameVerdicts(t testing.TB, want []ratelimit.Verdict, decisions []ratelimit.Decision) {
	t.Helper()
	if difference := cmp.Diff(want, verdicts(decisions)); difference != "" {
		t.Errorf("(-want +got):\n%s", difference)
	}
}

// TestMain lets many tests run at a time: failover tests mostly wait for servers, and no two running tests
// share a store.
func TestMain(m *testing.M) {
	kit.Overlap(12)
	kit.QuietRedis()
	debug.SetGCPercent(400) // the embedded store creates and drops a Lua state for each call
	playHistories("30")
	os.Exit(m.Run())
}

// playHistories sets the default of -rapid.checks, the number of random histories of each kind. It has no
// effect with -short. "make prove" plays more.
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

// newLimiter returns a limiter on the server in a namespace for this test.
func newLimiter(tb testing.TB, server *redistest.Server, rules ratelimit.Rules, dedupe time.Duration) *ratelimit.Limiter {
	tb.Helper()
	limiter, err := ratelimit.New(server.Client(tb), tb.Name(), rules, dedupe)
	kit.Check(tb, err)
	return limiter
}
