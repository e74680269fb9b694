//go:build mutants

package ratelimit_test

// Mistakes in the permit to post, in pauses and in the pace.
var paceMutants = []mutant{
	// The permit.
	{beginLua, "posts go on during a pause", "if by ~= name and (ends > now or by) then", "if by ~= name and by then"},
	{beginLua, "everybody probes", "if by ~= name and (ends > now or by) then", "if by ~= name and ends > now then"},
	{beginLua, "a probe waits for itself", "if by ~= name and (ends > now or by) then", "if ends > now or by then"},
	{beginLua, "a probe is for ever", "and now < tonumber(began) + math.min(tonumber(lasts), longest_pause) then", "then"},
	{beginLua, "a probe from the future holds", "if by and tonumber(began) <= now and", "if by and"},
	{beginLua, "a probe is waited for long after its pause", "if ends + MINUTE > now and", "if"},
	{beginLua, "the channel's pause is the workspace's", "scope == '*' and 'wait workspace' or 'wait channel'", "'wait workspace'"},
	{beginLua, "the workspace's pause is the channel's", "scope == '*' and 'wait workspace' or 'wait channel'", "'wait channel'"},
	{beginLua, "only the workspace is paused", "ipairs({ '*', channel })", "ipairs({ '*' })"},
	{beginLua, "only channels are paused", "ipairs({ '*', channel })", "ipairs({ channel })"},
	{beginLua, "permission for any delivery", "if delivery ~= ARGV[2] then", "if not delivery then"},
	{beginLua, "a post is not noted", "redis.call('HSET', KEYS[1], ARGV[1]", "redis.call('HGET', KEYS[1], ARGV[1]) local _ = (ARGV[1]"},
	{beginLua, "unknown posts are no doubt", "if posts > 0 and not recorded and last ~= known then", "if false then"},
	{beginLua, "another's post is not waited for", "if ends > now and tonumber(began) <= now then", "if false then"},
	{beginLua, "a lost answer is another's post", "local recorded = posts > 0 and last == name", "local recorded = false"},
	{beginLua, "a first post forgets the group", "string.match(record, '^(%d+g?) (.*)$')", "string.match(record, '^(%d+)g? (.*)$')"},
	{beginLua, "a further post forgets the group", "'^(%d+g?):(%d+):(%d+):([^ ]*) (.*)$'", "'^(%d+)g?:(%d+):(%d+):([^ ]*) (.*)$'"},
	{beginLua, "another store permits posts", "if ARGV[12] ~= '' and redis.call('HGET', KEYS[5], 'token') ~= ARGV[12] then", "if false then"},
	{beginLua, "a post of a replica with shorter windows forgets what is in flight", "text(math.floor((now + tonumber(ARGV[11])) / 1000) + 1), 'GT')", "text(math.floor((now + tonumber(ARGV[11])) / 1000) + 1))"},
	{beginLua, "an event is forgotten by its admission although it was posted later", "(now + tonumber(ARGV[11])) / 1000) + 1), 'GT')", "0) + 1), 'GT')"},
	{beginLua, "probes never expire", "redis.call('PEXPIRE', KEYS[3], ", "redis.call('PEXPIRETIME', KEYS[3]) local _ = ("},

	// Pauses.
	{answerLua, "a refused probe is remembered", "  redis.call('HDEL', KEYS[2], scope)\n  return", "  return"},
	{answerLua, "every answer ends pauses", "if string.match(probes[i] or '', '^%d+ %d+ (.*)$') == name then", "if true then"},
	{answerLua, "no answer ends a pause", "if string.match(probes[i] or '', '^%d+ %d+ (.*)$') == name then", "if false then"},
	{answerLua, "a probe ends its channel's pause alone", "local scopes = { '*', channel }", "local scopes = { channel, channel }"},
	{answerLua, "a pause can be shortened", "redis.call('ZADD', KEYS[1], 'GT', ", "redis.call('ZADD', KEYS[1], "},
	{answerLua, "a pause and the refusal never expire", "  redis.call('PEXPIRE', key, text((longest_pause + MINUTE) / 1000))\n", ""},
	{answerLua, "the refusal never expires", "ipairs({ KEYS[1], KEYS[2] })", "ipairs({ KEYS[1] })"},
	{answerLua, "pauses never expire", "ipairs({ KEYS[1], KEYS[2] })", "ipairs({ KEYS[2] })"},
	{answerLua, "a late slot never expires", "redis.call('PEXPIRE', KEYS[3], ", "redis.call('PEXPIRETIME', KEYS[3]) local _ = ("},
	{answerLua, "every refusal pauses the workspace", "if refused and refused ~= channel then", "if true then"},
	{answerLua, "no refusal pauses the workspace", "if refused and refused ~= channel then", "if false then"},
	{answerLua, "the same channel pauses the workspace", "if refused and refused ~= channel then", "if refused then"},
	{answerLua, "a third channel begins anew", "paused == 'workspace' and '*' or channel", "channel"},
	{answerLua, "a post between two refusals is forgotten", "  if answer == 'posted' then", "  if false then"},
	{answerLua, "a failure counts as a post", "  if answer == 'posted' then", "  if true then"},
	{answerLua, "the workspace is paused without the channel", "local paused, left = 'channel', pause(channel)", "local paused, left = 'channel', 0 if not refused or refused == channel then left = pause(channel) end"},
	{pausesLua, "pauses that are over are listed", "'(' .. text(now)", "'-inf'"},

	// The pace.
	{beginLua, "no pace", "local free = count > 0 and frees() or 0", "local free = 0"},
	{beginLua, "one more than the pace", "'LIMIT', count - 1, 2)", "'LIMIT', count, 2)"},
	{beginLua, "one less than the pace", "'LIMIT', count - 1, 2)", "'LIMIT', math.max(0, count - 2), 2)"},
	{beginLua, "a slot counts a microsecond too long", "if free > now then", "if free >= now then"},
	{beginLua, "a slot counts from its permit", "put(name, now + math.max(0, longest - window))", "put(name, now)"},
	{beginLua, "nobody expects an answer", "math.min(free - now, window)", "free - now"},
	{beginLua, "a repeated permit takes a slot", "if not own[1] or tonumber(own[1]) + window <= now then", "if true then"},
	{beginLua, "an old slot is a permit for ever", "if not own[1] or tonumber(own[1]) + window <= now then", "if not own[1] then"},
	{beginLua, "who waits takes a slot", "    if ARGV[9] == '1' then\n", "    if true then\n"},
	{beginLua, "nobody is first", "    if ARGV[9] == '1' then\n", "    if false then\n"},
	{beginLua, "the first waits for its own slot", "if slot and own[2] and tonumber(own[2]) >= slot then", "if false then"},
	{beginLua, "a slot that was kept stays", "  redis.call('ZREM', KEYS[4], kept)\n", ""},
	{beginLua, "slots are forgotten within a window", "text(now - HOUR)", "text(now - MINUTE)"},
	{beginLua, "old slots are never removed", "redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf'", "redis.call('ZCOUNT', KEYS[4], '-inf'"},
	{beginLua, "any number of slots is kept", "  redis.call('ZREMRANGEBYRANK', KEYS[4], 0, -2001)\n", ""},
	{beginLua, "fewer slots are kept than a pace may have", "KEYS[4], 0, -2001)", "KEYS[4], 0, -1000)"},
	{beginLua, "permits never expire", "redis.call('PEXPIRE', KEYS[4], ", "redis.call('PEXPIRETIME', KEYS[4]) local _ = ("},
	{answerLua, "a slot does not move to its answer", "redis.call('ZADD', KEYS[3], text(now), name)", ""},

	// The Go side.
	{beginGo, "a webhook's channel has no name", "cmp.Or(post.Channel, webhookChannel)", "post.Channel"},
	{pauseGo, "a 429 is a failure", "case a.RetryAfter > 0:", "case false:"},
	{pauseGo, "a post is a failure", "case a.Posted:", "case false:"},
}
