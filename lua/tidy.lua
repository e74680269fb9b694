-- tidy.lua follows an admission, at most once a second for each category: it records in an index which categories have had
-- admissions, and which sources in them, so that an event can be found by its id alone; and it removes what is stale.
--
-- KEYS[1]  register    sorted set, as in admit.lua
-- KEYS[2]  in flight   hash, as in admit.lua
-- KEYS[3]  global      sorted set, the exact form of the global scope
-- KEYS[4]  categories  sorted set  the index: category, and "<category> <source>" for ids that count together with a source ->
--                                  when it was recorded last
-- ARGV[1]  how long an entry of the index is kept in microseconds (longer while other replicas ask for that)
-- ARGV[2]  dedupe window in microseconds, as in admit.lua: what is further ahead than this, and than a day, is removed
-- ARGV[3...] the entries
--
-- Reply: OK. The 100,000 latest entries of the index are kept. Calling it again changes nothing but the time.

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
local horizon = clock + math.max(86400000000, tonumber(ARGV[2]))
local marks = redis.call('ZMSCORE', KEYS[1], ' clock', ' kept')
local latest, kept = tonumber(marks[1] or 0), tonumber(marks[2] or 0)
local now = latest <= horizon and math.max(clock, latest) or clock

local longest = 5356801000 -- milliseconds: an entry of the index is kept for two of the longest windows and a second
-- keeps(key) is the newest entry of a set, and how many milliseconds it keeps its entries; see store in admit.lua.
local function keeps(key)
  local newest = tonumber(redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')[2])
  return newest, newest and math.min(redis.call('PEXPIRETIME', key) - 1 - math.floor(newest / 1000), longest) or 0
end

redis.call('ZREMRANGEBYSCORE', KEYS[4], '(' .. text(horizon), '+inf')
local _, asked = keeps(KEYS[4])
local index = math.max(math.ceil(tonumber(ARGV[1]) / 1000), asked)
for i = 3, #ARGV do
  redis.call('ZADD', KEYS[4], text(now), ARGV[i])
end
redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', text(now - index * 1000))
redis.call('ZREMRANGEBYRANK', KEYS[4], 0, -100001)
redis.call('PEXPIREAT', KEYS[4], text(math.floor(now / 1000) + index + 1))

-- An id that leaves the register or the exact global scope is no longer in flight, unless a post of it began later, or it was
-- admitted anew.
local function leave(key, old)
  local gone = redis.call('ZRANGEBYSCORE', key, '-inf', text(old))
  redis.call('ZREMRANGEBYSCORE', key, '-inf', text(old))
  for _, id in ipairs(gone) do
    if not redis.call('ZSCORE', KEYS[1], id) and not redis.call('ZSCORE', KEYS[3], id) then
      redis.call('HDEL', KEYS[2], id)
    end
  end
end
-- No replica wants a scope exact for longer than the longest window. What is further ahead would keep it exact for ever.
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. text(now + 2678400000000), '+inf')) do
  if string.match(name, '^ exact ') then
    redis.call('ZREM', KEYS[1], name)
  end
end

-- As of the admission, and not of now: what it has counted it has to find again.
local retention = kept - latest
if retention > 0 then
  leave(KEYS[1], latest - retention)
  local _, milliseconds = keeps(KEYS[3])
  leave(KEYS[3], latest - math.max(retention, milliseconds * 1000))
end

-- A record of which neither knows: the set with its id has expired. It counts while anybody's retention asks for it. Further marks,
-- and ids that were sent, hide a few of these.
if redis.call('HLEN', KEYS[2]) > redis.call('ZCARD', KEYS[1]) - 2 + redis.call('ZCARD', KEYS[3]) then
  for _, id in ipairs(redis.call('HKEYS', KEYS[2])) do
    if not redis.call('ZSCORE', KEYS[1], id) and not redis.call('ZSCORE', KEYS[3], id) then
      local since = tonumber(string.match(redis.call('HGET', KEYS[2], id) or '', '^%d+') or 0)
      if since <= latest - math.max(retention, 0) or since > horizon then
        redis.call('HDEL', KEYS[2], id)
      end
    end
  end
end
return redis.status_reply('OK')
