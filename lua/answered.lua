-- answered.lua records Slack's answer to a post that begin.lua has permitted: from now on its slot counts,
-- and a pause begins or ends. A post that certainly failed leaves the record of its event without a name, so
-- that the next worker posts the event at once.
--
-- A 429 does not say whether Slack limits the channel or the workspace. It pauses its channel. It pauses the
-- workspace too when a second channel is refused before any post has been made since the first refusal.
--
-- KEYS[1]  pauses  sorted set  channel, or "*" for the workspace -> end of its pause; kept for a minute after
--                              that, or until a probe ends it
-- KEYS[2]  probes  hash        as in begin.lua; " refused" -> the channel that was refused since the last
--                              post was made, or "*" if several were
-- KEYS[3]  pace    sorted set  of the channel, as in begin.lua
-- KEYS[4]  in flight  hash     as in admit.lua
-- ARGV[1]  channel, as the settings name it
-- ARGV[2]  name of the post
-- ARGV[3]  Slack's answer: "posted", "refused" by a limit (429), or "failed" in any other way
-- ARGV[4]  refused: how long Slack asks to wait; a pause is never shortened
-- ARGV[5]  the longest pause, as in begin.lua
-- ARGV[6]  id, as in admit.lua, if this post and all earlier ones of the event certainly failed; else empty
-- ARGV[7]  delivery, as in admit.lua
-- Times are whole microseconds since 1970 by the server's clock, durations are microseconds.
--
-- Reply: one of
--   { 'none', 0 }          this answer pauses nothing
--   { 'channel', left }    the channel is paused, for so long from now
--   { 'workspace', left }  the workspace and the channel are paused, the workspace for so long from now
--
-- Guarantees
--   Failure      the record changes only if it still names this delivery, and this post as the last one.
--   Probe        only the answer to the probe after a pause ends that pause, unless it is another 429.
--   Repeatable   a call that is repeated, because its reply was lost, does no more than pause from now.
--   Fails whole  everything is read before anything is written: a key of another type fails the call and
--                changes nothing.

local MINUTE = 60000000

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local channel, name, answer = ARGV[1], ARGV[2], ARGV[3]
local longest_pause = tonumber(ARGV[5])
local wait = math.min(tonumber(ARGV[4]), longest_pause)

local scopes = { '*', channel }
redis.call('ZCARD', KEYS[1]) -- a key of another type fails the call before anything is written
local probes = redis.call('HMGET', KEYS[2], '*', channel)
local refused = redis.call('HGET', KEYS[2], ' refused')
local record = ARGV[6] ~= '' and redis.call('HGET', KEYS[4], ARGV[6]) or ''
local state, last, delivery = string.match(record, '^(%d+g?:%d+:%d+:)([^ ]*) (.*)$')

-- The post counts from now.
redis.call('ZADD', KEYS[3], text(now), name)
redis.call('PEXPIRE', KEYS[3], text((60 * MINUTE + 2 * longest_pause) / 1000))
if delivery == ARGV[7] and last == name then
  redis.call('HSET', KEYS[4], ARGV[6], state .. ' ' .. delivery)
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
  return { 'none', 0 }
end

-- pause(scope) returns what is left of the pause. Its probe will be a new one.
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
return { paused, left }
