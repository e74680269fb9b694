-- sent.lua records that an event was sent: its id leaves the events in flight and is a duplicate for the
-- dedupe window. What it was charged stays. Repeating the call changes nothing but the recorded time.
--
-- KEYS[1]  meta       hash        as in admit.lua
-- KEYS[2]  in flight  hash        as in admit.lua
-- KEYS[3]  sent       sorted set  id -> time
-- ARGV[1]  id, as in admit.lua
-- ARGV[2]  dedupe window in microseconds
-- ARGV[3]  token of the store that the caller knows, as in admit.lua; empty: any store
--
-- Reply: { 'recorded', time }, or { 'unknown store', 0 }: put back what this replica remembers, then ask
-- again.

local DAY = 86400000000

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
local meta = redis.call('HMGET', KEYS[1], 'clock', 'token')
if ARGV[3] ~= '' and meta[2] ~= ARGV[3] then
  return { 'unknown store', 0 }
end
local latest = tonumber(meta[1]) or 0
local now = latest <= clock + DAY and math.max(clock, latest) or clock -- the clock of admit.lua
local dedupe = tonumber(ARGV[2])

-- Redis searches a small set from its start for each id of a batch, unless a member is longer than 64 bytes.
-- No id is.
redis.call('ZADD', KEYS[3], text(now), ARGV[1], '+inf', string.rep('-', 65))
local when = text(math.floor((now + dedupe) / 1000) + 1)
if redis.call('PEXPIREAT', KEYS[3], when, 'GT') == 0 then
  redis.call('PEXPIREAT', KEYS[3], when, 'NX')
end
redis.call('HDEL', KEYS[2], ARGV[1])
local stale = redis.call('ZCOUNT', KEYS[3], '-inf', text(now - dedupe))
if stale > 0 then
  redis.call('ZREMRANGEBYRANK', KEYS[3], '0', text(math.min(stale, 1000) - 1))
end
return { 'recorded', now }
