//go:build mutants

package ratelimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"notifier/internal/testkit"
)

// A mutant is the product with one mistake in it: old, which is there exactly once, is replaced by new. The tests of
// this package and of the scripts must fail on each (make mutants). What they let through, nobody would notice.
type mutant struct{ file, mistake, old, new string }

const (
	admitLua  = "lua/admit.lua"
	sentLua   = "lua/sent.lua"
	refundLua = "lua/refund.lua"
	pauseLua  = "lua/pause.lua"
	beginLua  = "lua/begin.lua"
	limiterGo = "internal/ratelimit/limiter.go"
	replyGo   = "internal/ratelimit/reply.go"
	keysGo    = "internal/ratelimit/keys.go"
	rulesGo   = "internal/ratelimit/rules.go"
)

var mutants = []mutant{
	// What is counted, and against what.
	{admitLua, "an entry counts a microsecond too long", "entry <= tier.after", "entry < tier.after"},
	{admitLua, "a count includes the window's start", "'(' .. text(s.tiers[t].after)", "text(s.tiers[t].after)"},
	{admitLua, "one more than the limit", "s.all + s.added + cost <= tier.count", "s.all + s.added + cost <= tier.count + 1"},
	{admitLua, "one more than the smallest tier", "s.all + s.added + cost <= s.tiers.smallest", "s.all + s.added + cost <= s.tiers.smallest + 1"},
	{admitLua, "the cost is not counted", "s.all + s.added + cost <= s.tiers.smallest", "s.all + s.added < s.tiers.smallest"},
	{admitLua, "what the batch has taken is not counted", "s.all + s.added + cost <= s.tiers.smallest", "s.all + cost <= s.tiers.smallest"},
	{admitLua, "the rank forgets what the batch has taken", "local rank = tier.count - cost - s.added", "local rank = tier.count - cost"},
	{admitLua, "only the smallest tier counts", "tiers.smallest, tiers.longest = math.min(tiers.smallest, count)", "tiers.smallest, tiers.longest = math.max(tiers.smallest % huge, count)"},
	{admitLua, "no global limit", "local g, c = refuse(global, cost), refuse(category, cost)", "local g, c = nil, refuse(category, cost)"},
	{admitLua, "no limit of the category", "local g, c = refuse(global, cost), refuse(category, cost)", "local g, c = refuse(global, cost), nil"},
	{admitLua, "only the first tier is looked at", "for t = 1, #s.tiers do", "for t = 1, 1 do"},
	{admitLua, "refused attempts are charged", "return -r.row", "take(category, id, cost)\n    take(global, id, cost)\n    register[#register + 1] = id\n    register[#register + 1] = stamp .. ' -'\n    return -r.row"},
	{admitLua, "not charged to the category", "  take(category, id, cost)\n", ""},
	{admitLua, "not charged to the global scope", "  take(global, id, cost)\n", ""},
	{admitLua, "a cost takes one slot", "for slot = 1, cost do", "for slot = 1, 1 do"},
	{admitLua, "slots share a name", "slot == 1 and id or id .. ' ' .. slot", "id"},
	{admitLua, "the member is the time", "s.members[n] = slot == 1 and id or id .. ' ' .. slot", "s.members[n] = stamp"},
	{admitLua, "a large ZADD loses entries", "math.min(from + 999, #values)", "math.min(from + 997, #values)"},

	// The clock.
	{admitLua, "seconds instead of microseconds", "local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])", "local clock = tonumber(time[1]) * 1000000"},
	{admitLua, "times lose their tail", "string.format('%.0f', number)", "string.format('%.14g', number)"},
	{admitLua, "the clock goes back", "if newest and newest > now then", "if false then"},
	{sentLua, "the clock of sent.lua goes back", "if newest and newest > now then", "if false then"},

	// What a refusal says.
	{admitLua, "the tier that frees first is named", "frees > s.refusal.frees", "frees < s.refusal.frees"},
	{admitLua, "of two alike the last tier is named", "frees > s.refusal.frees", "frees >= s.refusal.frees"},
	{admitLua, "of two alike the global one is named", "c.frees >= g.frees", "c.frees > g.frees"},
	{admitLua, "the scope that frees first is named", "c.frees >= g.frees", "c.frees <= g.frees"},
	{admitLua, "waiting times are told on the deciding clock", "r.frees - clock", "r.frees - now"},
	{admitLua, "entries out of the window are told as taken", "if s.all == rank + 1 then", "if s.all >= rank + 1 then"},
	{admitLua, "a refusal outlives an admission", "category.cost ~= cost or category.at ~= global.added", "category.cost ~= cost"},
	{admitLua, "a refusal serves another cost", "category.cost ~= cost or category.at ~= global.added", "category.at ~= global.added"},
	{admitLua, "a scope's refusal outlives an admission", "s.asked ~= cost or s.asked_at ~= s.added", "s.asked ~= cost"},
	{admitLua, "a scope's refusal serves another cost", "s.asked ~= cost or s.asked_at ~= s.added", "s.asked_at ~= s.added"},

	// Who is known.
	{admitLua, "another delivery in flight goes through", "return by == ARGV[deliveries + i] and 1 or 0", "return 1"},
	{admitLua, "the same delivery in flight is a duplicate", "return by == ARGV[deliveries + i] and 1 or 0", "return 0"},
	{admitLua, "another delivery in the batch goes through", "return admitted[id] == ARGV[deliveries + i] and 1 or 0", "return 1"},
	{admitLua, "records in flight are never stale", "if tonumber(since) > now - retention() then", "if true then"},
	{admitLua, "what was sent is forgotten", "if sent[i] and tonumber(sent[i]) >", "if false and tonumber(sent[i]) >"},
	{admitLua, "what was sent is never forgotten", "if sent[i] and tonumber(sent[i]) >", "if sent[i] or 0 >"},
	{sentLua, "sent and still in flight", "redis.call('HDEL', KEYS[2], ARGV[1])", ""},
	{sentLua, "ids that were sent are never removed", "redis.call('ZREMRANGEBYSCORE'", "redis.call('ZCOUNT'"},

	// What is left.
	{admitLua, "the register never expires", "  call('PEXPIREAT', KEYS[1], ends)\n", ""},
	{admitLua, "what is in flight never expires", "  call('PEXPIREAT', KEYS[2], ends)\n", ""},
	{admitLua, "categories never expire", "      call('PEXPIREAT', s.key, ends)\n", ""},
	{admitLua, "sets expire too early", "text(math.floor(now / 1000) + ms + 1)", "text(math.floor(now / 1000) + math.floor(ms / 2))"},
	{admitLua, "categories are never trimmed", "      call('ZREMRANGEBYSCORE', s.key, '-inf', old)\n", ""},
	{admitLua, "the register is never trimmed", "    call('ZREMRANGEBYSCORE', KEYS[1], '-inf', old)\n", ""},
	{admitLua, "stale records stay in flight", "    in_chunks('HDEL', KEYS[2], gone)\n", ""},
	{sentLua, "what was sent never expires", "redis.call('PEXPIREAT', KEYS[3]", "redis.call('PEXPIRETIME', KEYS[3]"},
	{sentLua, "the set of sent ids stays compact", ", '+inf', string.rep('-', 65))", ")"},
	{pauseLua, "a pause never expires", "redis.call('PEXPIREAT', KEYS[1]", "redis.call('PEXPIRETIME', KEYS[1]"},

	// Rules that change.
	{admitLua, "other replicas' windows are not kept", "longest = math.max(longest, call('PEXPIRETIME', key) - 1 - math.floor(newest / 1000))", ""},
	{admitLua, "a category is trimmed by this replica's window", "bounds(keep(s.key, last, s.tiers.longest))", "bounds(math.ceil(s.tiers.longest / 1000))"},
	{admitLua, "the register is trimmed by this replica's retention", "bounds(retention() / 1000)", "bounds(tonumber(ARGV[2]) / 1000)"},
	{admitLua, "every admission lengthens what is kept", "call('PEXPIRETIME', key) - 1 - math.floor", "call('PEXPIRETIME', key) - math.floor"},
	{sentLua, "sent ids are trimmed by this replica's window", ", kept(KEYS[1], 0), kept(KEYS[3], 1))", ")"},
	{refundLua, "a refund lengthens what is kept", "if after and after < before then", "if false then"},

	// Refunds and pauses.
	{refundLua, "any delivery is refunded", "string.match(record, '^%d+[^ ]* (.*)$') ~= ARGV[2]", "false"},
	{refundLua, "one slot is refunded", "for slot = 1, tonumber(ARGV[3]) do", "for slot = 1, 1 do"},
	{refundLua, "only the global scope is refunded", "ipairs({ KEYS[1], KEYS[3] })", "ipairs({ KEYS[1] })"},
	{refundLua, "refunded twice", "redis.call('HDEL', KEYS[2], ARGV[1])\n", ""},
	{pauseLua, "a pause can be shortened", "if now + asked > stored then", "if true then"},

	// The leave to post.
	{beginLua, "posts go on during a pause", "if pause > now then", "if false then"},
	{beginLua, "everybody probes", "if prober then", "if false then"},
	{beginLua, "a probe is for ever", "name, 'PX', text(math.ceil(longest / 1000))", "name"},
	{beginLua, "leave for any delivery", "if delivery ~= ARGV[2] then", "if not delivery then"},
	{beginLua, "a post is not noted", "redis.call('HSET', KEYS[1], ARGV[1]", "redis.call('HGET', KEYS[1], ARGV[1]) local _ = (ARGV[1]"},
	{beginLua, "unknown posts are no doubt", "if posts > 0 and last ~= known then", "if false then"},
	{beginLua, "another's post is not waited for", "if ends > now and tonumber(began) <= now then", "if false then"},
	{beginLua, "a lost answer is another's post", "if posts > 0 and last == name then", "if false then"},
	{beginLua, "a probe waits for itself", "if pause and prober ~= name then", "if pause then"},
	{pauseLua, "a refused probe is remembered", "redis.call('DEL', KEYS[2]) -- if", "-- if"},
	{pauseLua, "a probe ends a pause that is new", "elseif asked < 0 and stored <= now then", "elseif asked < 0 then"},
	{admitLua, "a post that has begun is forgotten", "'^(%d+)[^ ]* (.*)$'", "'^(%d+) (.*)$'"},
	{refundLua, "a post that has begun is not refunded", "'^%d+[^ ]* (.*)$'", "'^%d+ (.*)$'"},

	// The Go side.
	{limiterGo, "a cost of nothing passes", "request.Cost < 1", "request.Cost < 0"},
	{limiterGo, "a batch is not split", "const maxBatch = 1000", "const maxBatch = 100000"},
	{limiterGo, "ids are forgotten while their slots count", "micros(max(dedupe, rules.retention()))", "micros(dedupe)"},
	{limiterGo, "overrides are ignored", "if !overridden {", "if !overridden || true {"},
	{limiterGo, "costs are left out", "return request.Cost != 1 })", "return request.Cost > 2 })"},
	{limiterGo, "milliseconds instead of microseconds", "d.Microseconds()", "d.Milliseconds()"},
	{replyGo, "any positive verdict sends", "case verdict == 1:", "case verdict >= 1:"},
	{replyGo, "the next refusal is taken", "refusals[-verdict-1]", "refusals[max(0, -verdict-2)]"},
	{replyGo, "lists may be longer", "len(values) != length", "len(values) < length"},
	{replyGo, "the scope is not checked", "} else if r.scope != 0 {", "} else if r.scope > 1000 {"},
	{keysGo, "no hash tag", `"{" + namespace + "}:"`, `namespace + ":"`},
	{keysGo, "an id can pass for a hash", "&& id[0] != hashedMark", ""},
	{keysGo, "an id may have a space", "id[i] <= ' '", "id[i] < ' '"},
	{rulesGo, "overrides are not kept long enough", "longest = max(longest, limit.longestWindow())", "_ = limit"},
	{rulesGo, "a cost that never fits is taken", "return min(r.Global", "return max(r.Global"},
}

// Each mutant has a deadline: one that makes a test wait for ever is caught too.
const mutantDeadline = 90 * time.Second

func TestEveryMutantIsCaught(t *testing.T) {
	root, err := filepath.Abs("../..")
	testkit.Check(t, err)
	for _, m := range mutants {
		if _, err := m.source(root); err != nil { // before the first is run
			t.Error(err)
		}
	}
	if t.Failed() {
		return
	}
	if output, passed := test(t, root, nil); !passed {
		t.Fatalf("the tests fail without any mutant:\n%s", output)
	}

	var tried, caught atomic.Int32
	t.Run("mutant", func(t *testing.T) { // as many at a time as there are processors
		for _, m := range mutants {
			t.Run(filepath.Base(m.file)+": "+m.mistake, func(t *testing.T) {
				t.Parallel()
				tried.Add(1)
				by, err := m.run(t, root)
				testkit.Check(t, err)
				caught.Add(1)
				fmt.Printf("caught  %-30s %-55s %s\n", m.file, m.mistake, by)
			})
		}
	})
	fmt.Printf("caught %d of %d\n", caught.Load(), tried.Load())
}

func (m mutant) source(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return "", fmt.Errorf("%s: %s: %q is there %d times, expected once: fix the list of mutants", m.file, m.mistake, m.old, n)
	}
	return strings.Replace(string(text), m.old, m.new, 1), nil
}

var failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// run says what has caught the mutant.
func (m mutant) run(t *testing.T, root string) (by string, err error) {
	source, err := m.source(root)
	if err != nil {
		return "", err
	}
	mutated := filepath.Join(t.TempDir(), filepath.Base(m.file))
	if err := os.WriteFile(mutated, []byte(source), 0o600); err != nil {
		return "", err
	}
	output, passed := test(t, root, map[string]string{filepath.Join(root, m.file): mutated})
	switch failed := failedTest.FindAllStringSubmatch(output, -1); {
	case passed:
		return "", errors.New("it survived")
	case len(failed) > 0:
		return failed[len(failed)-1][1], nil
	case strings.Contains(output, "panic: test timed out"):
		return "the deadline", nil
	default:
		return "", fmt.Errorf("no test has failed, and yet they do not pass:\n%s", output)
	}
}

// test runs the tests with some files replaced, in short form, without those that need a while to start servers.
func test(t *testing.T, root string, replaced map[string]string) (output string, passed bool) {
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	testkit.Check(t, err)
	file := filepath.Join(t.TempDir(), "overlay.json")
	testkit.Check(t, os.WriteFile(file, overlay, 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), mutantDeadline+time.Minute)
	defer cancel()
	for _, arguments := range [][]string{{"./internal/ratelimit", "-rapid.nofailfile", "-rapid.shrinktime=0s"}, {"./lua"}} {
		command := exec.CommandContext(ctx, "go", append([]string{"test", "-overlay", file, "-count=1", "-short", "-failfast", "-vet=off",
			"-timeout", mutantDeadline.String(), "-skip", "Cluster|Sentinel|Primary|Failover|Redelivery|Traffic|Silent"}, arguments...)...)
		command.Dir = root
		text, err := command.CombinedOutput()
		output += string(text)
		if err != nil {
			return output, false
		}
	}
	return output, true
}
