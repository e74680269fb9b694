-- index.lua records which categories have had admissions, and which sources in them, so that an event can be found by its id
-- alone. Calling it again changes nothing but the time.
--
-- KEYS[1]  register    sorted set, as in admit.lua; its " clock" bounds the clock
-- KEYS[2]  categories  sorted set  category, and "<category> <source>" for ids that count together with a source -> when it was
--                                  recorded last
-- ARGV[1]  how long an entry is kept in microseconds (longer while other replicas ask for that)
-- ARGV[2]  dedupe window in microseconds, as in admit.lua: what is further ahead than this, and than a day, is removed
-- ARGV[3...] the entries
--
-- Reply: OK. The 100,000 latest entries are kept.

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local horizon = now + math.max(86400000000, tonumber(ARGV[2]))
local latest = tonumber(redis.call('ZSCORE', KEYS[1], ' clock') or 0)
if latest <= horizon then
  now = math.max(now, latest)
end

redis.call('ZREMRANGEBYSCORE', KEYS[2], '(' .. text(horizon), '+inf')
local last = tonumber(redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2])
local keeps = math.ceil(tonumber(ARGV[1]) / 1000)
if last then
  keeps = math.max(keeps, redis.call('PEXPIRETIME', KEYS[2]) - 1 - math.floor(last / 1000))
end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', text(now - keeps * 1000))
for i = 3, #ARGV do
  redis.call('ZADD', KEYS[2], text(now), ARGV[i])
end
redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -100001)
redis.call('PEXPIREAT', KEYS[2], text(math.floor(now / 1000) + keeps + 1))
return redis.status_reply('OK')
