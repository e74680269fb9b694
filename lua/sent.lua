-- sent.lua records that an event is in Slack: its id leaves the in-flight hash and becomes a duplicate for the
-- dedupe window. Its charge remains. Calling it again changes nothing but the recorded time.
--
-- KEYS[1]  global scope  sorted set, read only: its newest entry is the latest time that a decision has used
-- KEYS[2]  in flight     hash
-- KEYS[3]  sent          sorted set  id -> time
-- ARGV[1]  id, as in admit.lua
-- ARGV[2]  dedupe window in microseconds
--
-- Reply: the recorded time in microseconds.

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local newest = tonumber(redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2])
-- The clock of admit.lua, which never goes back, and forgets what is as far ahead as no clock was.
if newest and newest > now and newest <= now + math.max(86400000000, tonumber(ARGV[2])) then
  now = newest
end

-- An id is kept for the longest dedupe window that any replica has asked for: the set expires that long after its newest
-- entry. It is also kept as long as its slot is counted, because the id is the slot's name. See keep in admit.lua.
local function kept(key, rank)
  local last = tonumber(redis.call('ZREVRANGE', key, rank, rank, 'WITHSCORES')[2])
  return last and redis.call('PEXPIRETIME', key) - 1 - math.floor(last / 1000) or 0
end
local keep = math.max(math.ceil(tonumber(ARGV[2]) / 1000), kept(KEYS[1], 0), kept(KEYS[3], 1))

-- The dashes are not an id (an id is at most 64 bytes). A member this long prevents Redis's compact encoding, in which
-- every id of a batch would be searched from the first entry on. Its rank is 0, that of the newest id is 1.
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', text(now - keep * 1000))
redis.call('ZADD', KEYS[3], text(now), ARGV[1], '+inf', string.rep('-', 65))
redis.call('PEXPIREAT', KEYS[3], text(math.floor(now / 1000) + keep + 1))
redis.call('HDEL', KEYS[2], ARGV[1])
return now
