-- peek.lua returns how full scopes are, without charging, trimming or writing anything.
--
-- KEYS[1]    register  sorted set, as in admit.lua; its " clock" bounds the clock
-- KEYS[2..]  scopes    sorted sets, two keys each as in admit.lua; the first is global
-- ARGV[1]    dedupe window in microseconds, as in admit.lua
-- then       for each scope: S, T, and T x (COUNT, WINDOW in microseconds, 1 if it is fixed else 0)
--            S: a bucket that ends so many microseconds after a tier's window began, or earlier, is not counted; 0 for usage
--
-- Reply: { now, lag, numbers }
--   now, lag  as in admit.lua
--   numbers   for each scope and each of its tiers, in this order, two numbers: slots used, and microseconds from
--             TIME until an event of cost 1 fits; 0: it fits now; -1 and 0: a key of the group or category is no sorted set

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
-- What is further ahead is no admission; see admit.lua, which removes it.
local horizon = clock + math.max(86400000000, tonumber(ARGV[1]))
local latest = tonumber(redis.call('ZSCORE', KEYS[1], ' clock') or 0)
local now = latest <= horizon and math.max(clock, latest) or clock

local numbers = {}
local at = 1
local function number()
  at = at + 1
  return tonumber(ARGV[at])
end

-- first(key, least) is the time of the first bucket up to which so many slots are taken, by the names of the buckets.
local function first(key, least)
  local low, high = 0, redis.call('ZCARD', key) - 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if tonumber(string.match(redis.call('ZRANGE', key, middle, middle)[1], ' (%d+)') or 0) < least then
      low = middle + 1
    else
      high = middle
    end
  end
  return tonumber(redis.call('ZRANGE', key, low, low, 'WITHSCORES')[2])
end

-- look(key, count, window, after, total) returns what is used of a tier, and when the slot leaves that stands COUNT - 1 from the
-- newest, if it is used up. total: slots up to the newest bucket; false: the scope is exact. See admit.lua.
local function look(key, count, window, after, total)
  local used
  if total then
    local name = redis.call('ZRANGEBYSCORE', key, '(' .. text(after), '+inf', 'LIMIT', 0, 1)[1]
    used = name and math.max(0, total - tonumber(string.match(name, '^%d+') or 0)) or 0
  else
    used = redis.call('ZCOUNT', key, '(' .. text(after), '+inf')
  end
  if used < count then
    return used
  elseif total then
    return used, first(key, total + 1 - count) + window
  end
  return used, math.min(tonumber(redis.call('ZREVRANGE', key, count - 1, count - 1, 'WITHSCORES')[2]), horizon) + window
end

for k = 2, #KEYS, 2 do
  local newest, all = redis.pcall('ZREVRANGE', KEYS[k + 1], 0, 0), redis.pcall('ZCARD', KEYS[k])
  local total, damaged = false, false
  for _, reply in ipairs({ newest, all }) do
    if type(reply) == 'table' and reply.err then
      if k == 2 or not string.find(reply.err, 'WRONGTYPE', 1, true) then
        return reply
      end
      damaged = true
    end
  end
  if not damaged and newest[1] then
    local before, upto = string.match(newest[1], '^(%d+) (%d+) %d+$')
    total = tonumber(upto)
    damaged = not (total and tonumber(before) <= total and total < 9007199254740992)
  end
  local skip = number()
  for _ = 1, number() do
    local count, window, after, next = number(), number(), nil, nil
    if number() == 1 then
      after = now - now % window - 1
      next = after + 1 + window
    end
    local used, frees
    if damaged then
      used = -1
    else
      used, frees = look(KEYS[total and k + 1 or k], count, window, (after or now - window) + (total and skip or 0), total)
    end
    numbers[#numbers + 1] = used
    numbers[#numbers + 1] = frees and math.max(0, (next or frees) - clock) or 0
  end
end

return { now, now - clock, numbers }
