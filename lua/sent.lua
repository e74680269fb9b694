-- sent.lua records that an event is in Slack: its id leaves the in-flight hash and becomes a duplicate for the
-- dedupe window. Its charge remains. Calling it again changes nothing but the recorded time.
--
-- KEYS[1]  register   sorted set, as in admit.lua: " clock" is the latest time that a decision has used
-- KEYS[2]  in flight  hash
-- KEYS[3]  sent       sorted set  id -> time
-- ARGV[1]  id, as in admit.lua
-- ARGV[2]  dedupe window in microseconds
--
-- Reply: the recorded time in microseconds.

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local marks = redis.call('ZMSCORE', KEYS[1], ' clock', ' kept')
local latest, kept = tonumber(marks[1] or 0), tonumber(marks[2] or 0)
-- The clock of admit.lua, which never goes back, and forgets what is as far ahead as no clock was.
if latest > now + math.max(86400000000, tonumber(ARGV[2])) then
  latest, kept = 0, 0
end
now = math.max(now, latest)

-- An id is kept for the longest dedupe window that any replica has asked for: the set expires that long after its newest
-- entry. It is also kept as long as ids in flight are, because the id may be the name of a slot that is counted for so long.
local last = tonumber(redis.call('ZREVRANGE', KEYS[3], '1', '1', 'WITHSCORES')[2])
local keep = math.ceil(math.max(tonumber(ARGV[2]), math.floor(kept / 1000) >= math.floor(now / 1000) and kept <= latest + 2678400000000 and kept - latest or 0) / 1000)
if last then
  keep = math.max(keep, math.min(redis.call('PEXPIRETIME', KEYS[3]) - 1 - math.floor(last / 1000), 2678400000)) -- the longest window
end

-- The dashes are not an id (an id is at most 64 bytes). A member this long prevents Redis's compact encoding, in which
-- every id of a batch would be searched from the first entry on. Its rank is 0, that of the newest id is 1.
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', text(now - keep * 1000))
redis.call('ZADD', KEYS[3], text(now), ARGV[1], '+inf', string.rep('-', 65))
redis.call('PEXPIREAT', KEYS[3], text(math.floor(now / 1000) + keep + 1))
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[1], ARGV[1])
return now
