-- answered.lua records Slack's response to a post that begin.lua permitted. The post counts in the pace from
-- now on, and the slots of its event count in their logs from now on, because Slack may have shown the
-- message until now. A pause begins or ends. If the post certainly failed, its name is removed from the
-- record of the event, so the next worker posts at once. After a success sent.lua comes first, and moves the
-- slots.
--
-- A 429 does not say whether Slack limits the channel or the workspace. It pauses the channel. If a second
-- channel is refused before any successful post since the first refusal, the workspace is paused too.
--
-- KEYS[1]  pauses  sorted set    channel, or "*" for the workspace -> end of its pause. Kept for a minute
--                                longer, or until a probe ends the pause.
-- KEYS[2]  probes  hash          as in begin.lua; " refused" -> the channel refused since the last successful
--                                post, or "*" if several were
-- KEYS[3]  pace    sorted set    of the channel, as in begin.lua
-- KEYS[4]  in flight  hash       as in admit.lua
-- KEYS[5]  meta    hash          as in admit.lua
-- KEYS[6..8]  logs  sorted set   as in begin.lua
-- ARGV[1]  channel, as the settings name it
-- ARGV[2]  name of the post
-- ARGV[3]  Slack's response: "posted", "refused" (a 429), or "failed" in any other way
-- ARGV[4]  if refused, the pause that Slack requests, cut to ARGV[5]. It never shortens a pause.
-- ARGV[5]  the longest pause, as in begin.lua
-- ARGV[6]  id, as in admit.lua. Empty for a message without an event.
-- ARGV[7]  stream message, as in admit.lua
-- ARGV[8]  1 if this post and all earlier ones of the event certainly failed, else 0
-- ARGV[9...]  only with an event: its cost, how long its logs keep entries, and its tiers, as in begin.lua
-- Times are whole microseconds since 1970 by the server's clock, durations are microseconds.
--
-- Reply: one of
--   { 'none', 0, moved }          this response begins no pause
--   { 'channel', left, moved }    the channel is paused for `left`
--   { 'workspace', left, moved }  the workspace is paused for `left`, and the channel too
-- The event's slots count from `moved`. Zero means that they were not moved.
--
-- Guarantees
--   Bounded      Slots move as in begin.lua.
--   Failure      Record and slots change only if the record still names this message, and this post as the
--                last one.
--   Probe        After a pause, only the response to its probe removes the pause, unless that is another 429.
--   Repeatable   A call repeated because its reply was lost only pauses, and moves slots, from a later time.
--   Fails whole  All keys are read before the first write, so a key of another type fails the call and
--                changes nothing.

local MINUTE = 60000000

local now = server_time()
local channel, name, answer = ARGV[1], ARGV[2], ARGV[3]
local longest_pause = tonumber(ARGV[5])
local wait = math.min(tonumber(ARGV[4]), longest_pause)

local scopes = { '*', channel }
redis.call('ZCARD', KEYS[1]) -- a key of another type fails the call before anything is written
local probes = redis.call('HMGET', KEYS[2], '*', channel)
local refused = redis.call('HGET', KEYS[2], ' refused')
local moved, slots, record, counts_from = 0, nil, nil, nil
if ARGV[6] ~= '' then
  slots = read_slots(6, 9)
  record = parse_record(redis.call('HGET', KEYS[4], ARGV[6]))
  counts_from = decision_time(now, redis.call('HGET', KEYS[5], 'clock'))
end

redis.call('ZADD', KEYS[3], text(now), name)
redis.call('PEXPIRE', KEYS[3], text((60 * MINUTE + 2 * longest_pause) / 1000))
if record and record.stream_message == ARGV[7] and record.name == name then
  if still_count(record, ARGV[6], slots, counts_from) then
    move(record, ARGV[6], slots, KEYS[5], counts_from)
    moved = counts_from
  end
  if ARGV[8] == '1' then
    record.name = ''
    redis.call('HSET', KEYS[4], ARGV[6], write_record(record))
  end
end

if answer ~= 'refused' then
  if answer == 'posted' then
    redis.call('HDEL', KEYS[2], ' refused')
  end
  for i, scope in ipairs(scopes) do
    if string.match(probes[i] or '', '^%d+ %d+ (.*)$') == name then
      redis.call('HDEL', KEYS[2], scope)
      redis.call('ZREM', KEYS[1], scope)
    end
  end
  return { 'none', 0, moved }
end

-- pause starts or prolongs a pause and returns the time left. The next probe will be another post.
local function pause(scope)
  redis.call('ZADD', KEYS[1], 'GT', text(now + wait), scope)
  redis.call('HDEL', KEYS[2], scope)
  return tonumber(redis.call('ZSCORE', KEYS[1], scope)) - now
end

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now - MINUTE))
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. text(now + longest_pause), '+inf')
local paused, left = 'channel', pause(channel)
if refused and refused ~= channel then
  paused, left = 'workspace', pause('*')
end
redis.call('HSET', KEYS[2], ' refused', paused == 'workspace' and '*' or channel)
for _, key in ipairs({ KEYS[1], KEYS[2] }) do
  redis.call('PEXPIRE', key, text((longest_pause + MINUTE) / 1000))
end
return { paused, left, moved }
