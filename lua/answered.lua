-- answered.lua records Slack's answer to a post that begin.lua has permitted: from now on its slot counts, and a pause begins
-- or ends.
--
-- A refusal does not show whether Slack limits the channel or the workspace. It pauses its channel. It pauses the workspace too
--   - if the channel has had at most one other post in the last 10 seconds, which cannot be too many for a channel. The
--     channel's own probe does not count as a sign: its refusal goes on with the channel's pause,
--   - if the post was the workspace's probe,
--   - or if there is a pace and three channels were refused within a second, their own probes not counted.
--
-- KEYS[1]  pauses     sorted set  channel, or "*" for the workspace -> end of its pause in microseconds; kept for a minute
--                                 after that, or until a probe succeeds
-- KEYS[2]  probes     hash        as in begin.lua; "!<channel>" -> "<name> <scope>": the last post of it that was refused,
--                                 and what was paused
-- KEYS[3]  channels   hash        channel as the settings name it -> its ID
-- KEYS[4]  pace       sorted set  of the channel, as in begin.lua
-- KEYS[5]  pace       sorted set  the same of the ID in ARGV[4]; KEYS[4] again if there is none
-- KEYS[6]  refusals   sorted set  channel -> when a post of it that was not its own probe was last refused, in the last second;
--                                 of another type: no other was
-- ARGV[1]  channel, as the settings name it
-- ARGV[2]  channel, as KEYS[4] names it: its ID, or while that is unknown its name
-- ARGV[3]  1: ARGV[1] is a name, whose ID the answer shows; 0: it is an ID itself
-- ARGV[4]  the channel's ID in the answer; empty: not known
-- ARGV[5]  name of the post
-- ARGV[6]  above 0: Slack refused the post by a limit, and asks to wait this many microseconds; a pause is never shortened
--          0: it was not refused by a limit; this ends the pause whose probe it was
-- ARGV[7]  COUNT of the pace; 0: no pace
-- ARGV[8]  the pace's window in microseconds
-- ARGV[9]  the longest pause that there is, in microseconds: one whose end is further ahead of TIME does not count
--
-- Reply: { scope, number, text }
--   0, 0             nothing is paused by this answer
--   1, microseconds  the channel is paused, for this long from now
--   2, microseconds  the workspace and the channel are paused, the workspace for this long from now
--   3, 0, channel    ask again with this channel as ARGV[2] and in KEYS[4]
-- A call that is repeated, because its reply was lost, gets the same reply and pauses nothing more.

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local channel, key, id, name, retry = ARGV[1], ARGV[2], ARGV[4], ARGV[5], tonumber(ARGV[6])
local count, window = tonumber(ARGV[7]), tonumber(ARGV[8])
local longest_pause = tonumber(ARGV[9])
retry = math.min(retry, longest_pause)

local learned = false
if ARGV[3] == '1' then
  learned = redis.call('HGET', KEYS[3], channel)
  if (learned or channel) ~= key then
    return { 3, 0, learned or channel }
  end
end

-- Looked at before anything is written: a key of another type must not leave half of an answer recorded.
local refusals = retry > 0 and redis.pcall('ZCARD', KEYS[6])
local countable = type(refusals) == 'number'
if type(refusals) == 'table' and not string.find(refusals.err, 'WRONGTYPE', 1, true) then
  return refusals
end

local function is_probe(field)
  return string.match(redis.call('HGET', KEYS[2], field) or '', '^%d+ %d+ (.*)$') == name
end
local probes_workspace, probes_channel = is_probe('*'), is_probe(key)
if is_probe('?' .. channel) then
  redis.call('HDEL', KEYS[2], '?' .. channel)
end

-- put(slots) stores slots, { time, name, time, name, ... }, in KEYS[5].
local function put(slots)
  local function newest()
    return tonumber(redis.call('ZREVRANGE', KEYS[5], 0, 0, 'WITHSCORES')[2])
  end
  local keep, before = math.max(10000, math.ceil(window / 1000)), newest()
  if before then
    keep = math.max(keep, redis.call('PEXPIRETIME', KEYS[5]) - 1 - math.floor(before / 1000))
  end
  redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', text(now - keep * 1000))
  for i = 1, #slots, 2 do
    redis.call('ZADD', KEYS[5], slots[i], slots[i + 1])
  end
  redis.call('PEXPIREAT', KEYS[5], text(math.floor(newest() / 1000) + keep + 1))
end

redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. text(now + longest_pause), '+inf')
local function set_pause(scope, ends)
  local stored = tonumber(redis.call('ZSCORE', KEYS[1], scope) or 0)
  redis.call('HDEL', KEYS[2], scope) -- whatever was probed: the next pause ends with a new probe
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now - 60000000))
  redis.call('ZADD', KEYS[1], text(math.max(stored, ends)), scope)
  local last = tonumber(redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2])
  redis.call('PEXPIREAT', KEYS[1], text(math.floor(last / 1000) + 60001))
  return math.max(stored, ends) - now
end

local function end_pause(scope)
  redis.call('HDEL', KEYS[2], scope)
  if tonumber(redis.call('ZSCORE', KEYS[1], scope) or 0) <= now then
    redis.call('ZREM', KEYS[1], scope)
  end
end

if ARGV[3] ~= '1' or id == '' then
  id = key
else
  redis.call('HSET', KEYS[3], channel, id)
  redis.call('PEXPIRE', KEYS[3], 604800000)
  if key ~= id and not learned then
    -- What was stored under the name belongs to the ID.
    local slots = redis.call('ZRANGE', KEYS[4], 0, -1, 'WITHSCORES')
    local moved = {}
    for i = 1, #slots, 2 do
      moved[i], moved[i + 1] = slots[i + 1], slots[i]
    end
    if #moved > 0 then
      put(moved)
      redis.call('DEL', KEYS[4])
    end
    local paused = redis.call('ZSCORE', KEYS[1], key)
    if paused then
      redis.call('ZREM', KEYS[1], key)
      redis.call('HDEL', KEYS[2], key)
      if tonumber(paused) + 60000000 > now then -- one that is long over would end the probe of the ID's own
        set_pause(id, tonumber(paused))
      end
    end
  elseif key ~= id then
    redis.call('ZREM', KEYS[4], name)
  end
end
put({ text(now), name })

if retry <= 0 then
  if probes_workspace then
    end_pause('*')
  end
  if probes_channel then
    end_pause(id)
  end
  return { 0, 0, '' }
end

local function left(scope)
  return math.max(0, tonumber(redis.call('ZSCORE', KEYS[1], scope) or 0) - now)
end

local refused, paused = string.match(redis.call('HGET', KEYS[2], '!' .. id) or '', '^(.*) (%d)$')
if refused == name then
  return { tonumber(paused), left(paused == '2' and '*' or id), '' }
end

local others = 0
for _, member in ipairs(redis.call('ZREVRANGEBYSCORE', KEYS[5], '+inf', '(' .. text(now - 10000000), 'LIMIT', 0, 8)) do
  if member ~= name and not string.find(member, ' ', 1, true) then
    others = others + 1
  end
end
if countable then
  redis.call('ZREMRANGEBYSCORE', KEYS[6], '-inf', text(now - 1000000))
end
if countable and not probes_channel then
  redis.call('ZADD', KEYS[6], text(now), id)
  redis.call('PEXPIRE', KEYS[6], 1001)
end
local workspace = probes_workspace
  or (others <= 1 and not probes_channel)
  or (count > 0 and not probes_channel and countable and redis.call('ZCARD', KEYS[6]) >= 3)

local scope, wait = 1, set_pause(id, now + retry)
if workspace then
  scope, wait = 2, set_pause('*', now + retry)
end
redis.call('HSET', KEYS[2], '!' .. id, name .. ' ' .. scope)
redis.call('PEXPIREAT', KEYS[2], text(math.max(redis.call('PEXPIRETIME', KEYS[2]), math.ceil((now + retry) / 1000) + 60000)))
return { scope, wait, '' }
