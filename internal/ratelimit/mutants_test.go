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
	admitLua    = "lua/admit.lua"
	sentLua     = "lua/sent.lua"
	refundLua   = "lua/refund.lua"
	answerLua   = "lua/answered.lua"
	pausesLua   = "lua/pauses.lua"
	peekLua     = "lua/peek.lua"
	beginLua    = "lua/begin.lua"
	limiterGo   = "internal/ratelimit/limiter.go"
	replyGo     = "internal/ratelimit/reply.go"
	channelGo   = "internal/ratelimit/channel.go"
	keysGo      = "internal/ratelimit/keys.go"
	rulesGo     = "internal/ratelimit/rules.go"
	memberGo    = "internal/ratelimit/member.go"
	argumentsGo = "internal/ratelimit/arguments.go"
	indexGo     = "internal/ratelimit/index.go"
	traceGo     = "internal/ratelimit/trace.go"
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
	{sentLua, "the clock of sent.lua goes back", "if newest and newest > now and", "if false and"},

	// What a refusal says.
	{admitLua, "the tier that frees first is named", "frees > s.refusal.frees", "frees < s.refusal.frees"},
	{admitLua, "of two alike the last tier is named", "frees > s.refusal.frees", "frees >= s.refusal.frees"},
	{admitLua, "of two alike the global one is named", "c.frees >= g.frees", "c.frees > g.frees"},
	{admitLua, "the scope that frees first is named", "c.frees >= g.frees", "c.frees <= g.frees"},
	{admitLua, "waiting times are reported on the deciding clock", "r.frees - clock", "r.frees - now"},
	{admitLua, "entries out of the window are reported as taken", "if s.all == rank + 1 then", "if s.all >= rank + 1 then"},
	{admitLua, "a refusal outlives an admission", "category.cost ~= cost or category.at ~= global.added", "category.cost ~= cost"},
	{admitLua, "a refusal serves another cost", "category.cost ~= cost or category.at ~= global.added", "category.at ~= global.added"},
	{admitLua, "a scope's refusal outlives an admission", "s.asked ~= cost or s.asked_at ~= s.added", "s.asked ~= cost"},
	{admitLua, "a scope's refusal serves another cost", "s.asked ~= cost or s.asked_at ~= s.added", "s.asked_at ~= s.added"},

	// Who is known.
	{admitLua, "another delivery in flight goes through", "return by == ARGV[deliveries + i] and 1 or 0", "return 1"},
	{admitLua, "the same delivery in flight is a duplicate", "return by == ARGV[deliveries + i] and 1 or 0", "return 0"},
	{admitLua, "another delivery in the batch goes through", "return admitted[id] == ARGV[deliveries + i] and 1 or 0", "return 1"},
	{admitLua, "records in flight are never stale", "if since and since > now - retention() and", "if since and"},
	{admitLua, "what was sent is forgotten", "if last and last > now - math.max(tonumber(ARGV[1])", "if false and last > now - math.max(tonumber(ARGV[1])"},
	{admitLua, "what was sent is never forgotten", "if last and last > now - math.max(tonumber(ARGV[1])", "if last or 0 > now - math.max(tonumber(ARGV[1])"},
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
	{answerLua, "a pause never expires", "redis.call('PEXPIREAT', KEYS[1]", "redis.call('PEXPIRETIME', KEYS[1]"},
	{answerLua, "slots never expire", "redis.call('PEXPIREAT', KEYS[5]", "redis.call('PEXPIRETIME', KEYS[5]"},
	{answerLua, "IDs are never forgotten", "redis.call('PEXPIRE', KEYS[3], 604800000)", ""},

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
	{refundLua, "only the global scope is refunded", "local scopes = { KEYS[1], KEYS[3] }", "local scopes = { KEYS[1] }"},
	{refundLua, "refunded twice", "redis.call('HDEL', KEYS[2], ARGV[1])\n", ""},
	{answerLua, "a pause can be shortened", "redis.call('ZADD', KEYS[1], text(math.max(stored, ends)), scope)", "redis.call('ZADD', KEYS[1], text(ends), scope)"},

	// The leave to post.
	{beginLua, "posts go on during a pause", "if by ~= name and (ends > now or by) then", "if by ~= name and by then"},
	{beginLua, "everybody probes", "if by ~= name and (ends > now or by) then", "if by ~= name and ends > now then"},
	{beginLua, "a probe is for ever", "and now < tonumber(began) + math.min(tonumber(lasts), longest_pause) then", "then"},
	{beginLua, "a probe from the future holds", "if by and tonumber(began) <= now and", "if by and"},
	{beginLua, "the channel's pause is the workspace's", "return { i == 1 and 0 or 6,", "return { 0,"},
	{beginLua, "only the workspace is paused", "ipairs({ '*', key })", "ipairs({ '*' })"},
	{beginLua, "only channels are paused", "ipairs({ '*', key })", "ipairs({ key, key })"},
	{beginLua, "nobody expects an answer", "math.min(free - now, window)", "free - now"},
	{beginLua, "leave for any delivery", "if delivery ~= ARGV[2] then", "if not delivery then"},
	{beginLua, "a post is not noted", "redis.call('HSET', KEYS[1], ARGV[1]", "redis.call('HGET', KEYS[1], ARGV[1]) local _ = (ARGV[1]"},
	{beginLua, "unknown posts are no doubt", "if posts > 0 and not recorded and last ~= known then", "if false then"},
	{beginLua, "another's post is not waited for", "if ends > now and tonumber(began) <= now then", "if false then"},
	{beginLua, "a lost answer is another's post", "local recorded = posts > 0 and last == name", "local recorded = false"},
	{beginLua, "a probe waits for itself", "if by ~= name and (ends > now or by) then", "if ends > now or by then"},
	{answerLua, "a refused probe is remembered", "redis.call('HDEL', KEYS[2], scope) -- whatever", "-- whatever"},
	{answerLua, "a probe ends a pause that is new", "if tonumber(redis.call('ZSCORE', KEYS[1], scope) or 0) <= now then", "if true then"},
	{answerLua, "every answer ends the workspace's pause", "  if probes_workspace then", "  if true then"},
	{answerLua, "every answer ends its channel's pause", "  if probes_channel then", "  if true then"},
	{answerLua, "a probe does not end the workspace's pause", "  if probes_workspace then", "  if false then"},
	{answerLua, "a probe does not end its channel's pause", "  if probes_channel then", "  if false then"},
	{pausesLua, "pauses that are over are listed", "'(' .. text(now)", "'-inf'"},

	// What is paused.
	{answerLua, "every refusal pauses the workspace", "local scope, wait = 1, set_pause(id, now + retry)", "local scope, wait = 1, set_pause(id, now + retry)\nworkspace = true"},
	{answerLua, "no quiet channel pauses the workspace", "or (others <= 1 and not probes_channel)", ""},
	{answerLua, "a channel with one more post is quiet", "others <= 1", "others <= 2"},
	{answerLua, "a channel with one post is busy", "others <= 1", "others <= 0"},
	{answerLua, "a channel's own probe pauses the workspace", "(others <= 1 and not probes_channel)", "(others <= 1)"},
	{answerLua, "the workspace's probe pauses its channel alone", "local workspace = probes_workspace\n", "local workspace = false\n"},
	{answerLua, "channels without a pace pause the workspace", "(count > 0 and not probes_channel", "(not probes_channel"},
	{answerLua, "probes count among three refused channels", "if countable and not probes_channel then\n  redis.call('ZADD'", "if countable then\n  redis.call('ZADD'"},
	{answerLua, "a probe goes on with the pause of three channels", "(count > 0 and not probes_channel and", "(count > 0 and"},
	{answerLua, "two channels pause the workspace", "redis.call('ZCARD', KEYS[6]) >= 3", "redis.call('ZCARD', KEYS[6]) >= 2"},
	{answerLua, "three channels never pause the workspace", "redis.call('ZCARD', KEYS[6]) >= 3", "redis.call('ZCARD', KEYS[6]) >= 4"},
	{answerLua, "refusals of long ago count", "redis.call('ZREMRANGEBYSCORE', KEYS[6]", "redis.call('ZCOUNT', KEYS[6]"},
	{answerLua, "a slot that is kept is a post", "and not string.find(member, ' ', 1, true) then", "then"},
	{answerLua, "a repeated refusal pauses again", "if refused == name then", "if false then"},

	// The pace.
	{beginLua, "no pace", "local free = count > 0 and frees(kept) or 0", "local free = 0"},
	{beginLua, "one more than the pace", "KEYS[5], count - 1, count, 'WITHSCORES'", "KEYS[5], count, count + 1, 'WITHSCORES'"},
	{beginLua, "one less than the pace", "KEYS[5], count - 1, count, 'WITHSCORES'", "KEYS[5], math.max(0, count - 2), count - 1, 'WITHSCORES'"},
	{beginLua, "a slot counts a microsecond too long", "if free > now then", "if free >= now then"},
	{beginLua, "a slot counts from its permit", "now + math.max(0, longest - window), kept", "now, kept"},
	{beginLua, "a repeated permit takes a slot", "if slot + window <= now then", "if true then"},
	{beginLua, "an old slot is a permit for ever", "if slot + window <= now then", "if slot == 0 then"},
	{beginLua, "who waits takes a slot", "    if ARGV[11] == '1' then\n", "    if true then\n"},
	{beginLua, "nobody is first", "    if ARGV[11] == '1' then\n", "    if false then\n"},
	{beginLua, "the first waits for its own slot", "if entry and own >= entry then", "if false then"},
	{beginLua, "a slot that was kept stays", "  if instead then\n", "  if false then\n"},
	{beginLua, "slots are trimmed by this replica's window", "keep = math.max(keep, redis.call('PEXPIRETIME', KEYS[5]) - 1 - math.floor(before / 1000))", ""},
	{beginLua, "slots are never removed", "redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf'", "redis.call('ZCOUNT', KEYS[5], '-inf'"},
	{beginLua, "a name's posts do not wait for its ID", "if learning and (probing('?' .. channel) or name) ~= name then", "if false then"},
	{beginLua, "a name is never its ID", "if (id or channel) ~= key then", "if false then"},
	{answerLua, "a slot does not move to its answer", "put({ text(now), name })", ""},
	{answerLua, "what was stored under the name is lost", "      put(moved)\n", ""},
	{answerLua, "a slot stays with the name", "      redis.call('DEL', KEYS[4])\n", ""},
	{answerLua, "a pause stays with the name", "    if paused then", "    if false then"},
	{answerLua, "an answer leaves the name to nobody", "if is_probe('?' .. channel) then", "if false then"},
	{answerLua, "no ID is learned", "redis.call('HSET', KEYS[3], channel, id)", ""},
	{channelGo, "an ID is taken for a name", "name != webhookChannel && !channelID.MatchString(name)", "true"},
	{admitLua, "a post that has begun is forgotten", "'^(%d+)[^ ]* (.*)$'", "'^(%d+) (.*)$'"},
	{refundLua, "refunded although another post has begun", "last ~= ARGV[4]", "false"},
	{refundLua, "a post that has begun is not refunded", "'^%d+[^ ]* (.*)$'", "'^%d+ (.*)$'"},

	// What others have written.
	{admitLua, "a damaged category fails the batch", "s.all = redis.pcall('ZCARD', s.key)\n", "s.all = call('ZCARD', s.key)\n"},
	{admitLua, "the clock follows the global scope for ever", "if newest and newest > horizon then", "if false then"},
	{admitLua, "a category is blocked for ever", "if (newest_of(s.key) or 0) > horizon then", "if false then"},
	{admitLua, "the index keeps what is from the future", "if last and last > horizon then", "if false then"},
	{admitLua, "a record of another form fails the batch", "if since and since > now - retention()", "if since > now - retention()"},
	{admitLua, "an id in flight from the future is known for ever", "retention() and since <= horizon then", "retention() then"},
	{admitLua, "an id sent in the future is known for ever", " and last <= horizon then", " then"},
	{answerLua, "refusals of another type leave half of an answer", "local refusals = retry > 0 and redis.pcall('ZCARD', KEYS[6])", "local refusals = 0"},
	{peekLua, "a clock within the dedupe window is not followed", "math.max(86400000000, tonumber(ARGV[1]))", "86400000000"},
	{sentLua, "ids are recorded as sent far in the future", " and newest <= now + math.max(86400000000, tonumber(ARGV[2])) then", " then"},
	{refundLua, "a damaged category fails a refund", "if found.err and string.find(found.err, 'WRONGTYPE', 1, true) then", "if false then"},
	{beginLua, "a pause lasts for ever", "if ends + 60000000 > now and ends <= now + longest_pause then", "if ends + 60000000 > now then"},
	{beginLua, "another's probe is waited for for ever", "math.min(tonumber(lasts), longest_pause)", "tonumber(lasts)"},
	{beginLua, "a channel is paced for ever", "if (tonumber(latest[2]) or 0) > furthest then", "if false then"},
	{beginLua, "a damaged pace is Redis's failure", "local latest = redis.pcall(", "local latest = redis.call("},
	{answerLua, "a pause is as long as Slack asks", "retry = math.min(retry, longest_pause)\n", ""},
	{answerLua, "a pause from the future goes on", "redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. text(now + longest_pause), '+inf')\n", ""},
	{pausesLua, "pauses without end are listed", "text(now + tonumber(ARGV[1]))", "'+inf'"},

	// The Go side.
	{limiterGo, "a cost of nothing passes", "request.Cost < 1", "request.Cost < 0"},
	{limiterGo, "a batch is not split", "const maxBatch = 1000", "const maxBatch = 100000"},
	{limiterGo, "ids are forgotten while their slots count", "micros(max(dedupe, rules.LongestWindow()))", "micros(dedupe)"},
	{argumentsGo, "overrides are ignored", "if !overridden {", "if !overridden || true {"},
	{limiterGo, "milliseconds instead of microseconds", "d.Microseconds()", "d.Milliseconds()"},
	{replyGo, "any positive verdict sends", "case verdict == 1:", "case verdict >= 1:"},
	{replyGo, "the next refusal is taken", "refusals[-verdict-1]", "refusals[max(0, -verdict-2)]"},
	{replyGo, "lists may be longer", "len(values) != length", "len(values) < length"},
	{replyGo, "the scope is not checked", "} else if r.scope != 0 {", "} else if r.scope > 1000 {"},
	{keysGo, "no hash tag", `"{" + namespace + "}:"`, `namespace + ":"`},
	{memberGo, "an id may have a space", "text[i] <= ' '", "text[i] < ' '"},
	{memberGo, "members are too long for the compact encoding", "len(o.prefix)+len(id) <= longestPlainMember", "len(id) <= longestPlainMember"},
	{argumentsGo, "costs are left out", "return request.Cost != 1 })", "return request.Cost > 2 })"},

	// Ids within their category, and the index that finds them.
	{memberGo, "ids are shared by all categories", "return o.prefix + id", "return id"},
	{memberGo, "long ids are shared by all categories", "append(hashed, part...)", "append(hashed, part[:0]...)"},
	{memberGo, "the parts of a hash run into each other", "hashed = binary.AppendUvarint(hashed, uint64(len(part)))", "_ = binary.AppendUvarint"},
	{memberGo, "ids are shared by all sources", "if o.source != \"\" {", "if false {"},
	{memberGo, "a category with a colon passes for another and an id", "strings.ContainsAny(category, string(memberColon)+string(memberMark))", "strings.ContainsAny(category, string(memberMark))"},
	{memberGo, "a category passes for another and a source", "strings.ContainsAny(category, string(memberColon)+string(memberMark))", "strings.ContainsAny(category, string(memberColon))"},
	{memberGo, "no category passes for a hash", "category == \"\" || !printable", "!printable"},
	{memberGo, "long sources fill the index", "len(source) <= longestSource", "len(source) >= 0"},
	{memberGo, "a source passes for the hash of another", "!strings.HasPrefix(source, string(memberMark)) &&", "true &&"},
	{argumentsGo, "events with a source are charged to the first category", "of: byCategory[request.Category].number", "of: \"1\""},
	{argumentsGo, "sources are shared by all categories", "named := pair{request.Category, request.Source}", "named := pair{\"\", request.Source}"},
	{indexGo, "sources of other categories are shown", "of == category && source != \"\"", "source != \"\""},
	{indexGo, "a category needs the index", "if category != \"\" {", "if false {"},
	{indexGo, "categories without slots are listed", "now.Add(-l.rules.LongestWindow()-indexGrain)", "now.Add(-48 * time.Hour)"},
	{admitLua, "categories are not in the index", "names[#names + 1] = string.match(s.key, '}:category:(.*)$')", "local _ = s"},
	{admitLua, "sources are not in the index", "names[#names + 1] = source.entry", "local _ = source"},
	{admitLua, "refused sources are in the index", "if source.added then", "if source then"},
	{admitLua, "refused categories are in the index", "    if s.added > 0 then\n      names", "    if s.added >= 0 then\n      names"},
	{admitLua, "the index is written for each batch", "tonumber(written[n]) <= now - 1000000", "tonumber(written[n])"},
	{admitLua, "the index is written once", "not written[n] or tonumber(written[n]) <= now - 1000000", "not written[n]"},
	{admitLua, "the index forgets what is sent late", "tonumber(ARGV[1]) + retention() + 1000000", "tonumber(ARGV[1]) + 1000000"},
	{admitLua, "the index forgets before the dedupe window ends", "tonumber(ARGV[1]) + retention() + 1000000", "retention() + 1000000"},
	{admitLua, "the index is trimmed by this replica's windows", "    old, ends = bounds(keep(KEYS[4], last,", "    old, ends = bounds(keep(KEYS[4], nil,"},
	{admitLua, "the index is never trimmed", "    call('ZREMRANGEBYSCORE', KEYS[4], '-inf', old)\n", ""},
	{admitLua, "the index is not bounded", "    call('ZREMRANGEBYRANK', KEYS[4], '0', '-100001')\n", ""},
	{admitLua, "the index keeps the oldest", "'0', '-100001'", "'100000', '-1'"},
	{admitLua, "the index never expires", "    call('PEXPIREAT', KEYS[4], ends)\n", ""},
	{traceGo, "what is in flight is not found", "trace.InFlight, trace.Admitted = true, inFlight.Admitted", "_ = inFlight"},
	{traceGo, "one chunk is looked up", "traces = append(traces, found...)", "traces = found"},
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
