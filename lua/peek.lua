-- peek.lua returns how full scopes are, without charging, trimming or writing anything.
--
-- KEYS[1]    global scope     sorted set, as in admit.lua; its newest entry bounds the clock
-- KEYS[2..]  category scopes  sorted sets, as in admit.lua
-- ARGV[1]    dedupe window in microseconds, as in admit.lua
-- then       for each of KEYS: T, followed by T x (COUNT, WINDOW in microseconds)
--
-- Reply: { now, lag, numbers }
--   now, lag  as in admit.lua
--   numbers   for each of KEYS and each of its tiers, in this order, two numbers: slots used, and microseconds from
--             TIME until an event of cost 1 fits; 0: it fits now; -1 and 0: the key of the category is no sorted set

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
local newest = tonumber(redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2])
-- What is further ahead is no admission; see admit.lua, which removes it.
local horizon = clock + math.max(86400000000, tonumber(ARGV[1]))
if newest and newest > horizon then
  newest = tonumber(redis.call('ZREVRANGEBYSCORE', KEYS[1], text(horizon), '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2])
end
local now = math.max(clock, newest or 0)

local numbers = {}
local at = 2
local function number()
  at = at + 1
  return tonumber(ARGV[at - 1])
end

for _, key in ipairs(KEYS) do
  local found = key ~= KEYS[1] and redis.pcall('ZCOUNT', key, '+inf', '+inf')
  local damaged = type(found) == 'table' and string.find(found.err, 'WRONGTYPE', 1, true)
  for _ = 1, number() do
    local count, window = number(), number()
    if damaged then
      numbers[#numbers + 1], numbers[#numbers + 2] = -1, 0
    else
      local used, wait = redis.call('ZCOUNT', key, '(' .. text(now - window), '+inf'), 0
      if used >= count then
        -- The entry at rank COUNT - 1, counted from the newest, is in the window and blocks; see look in admit.lua.
        local blocking = tonumber(redis.call('ZREVRANGE', key, count - 1, count - 1, 'WITHSCORES')[2])
        wait = math.min(blocking, horizon) + window - clock
      end
      numbers[#numbers + 1] = used
      numbers[#numbers + 1] = wait
    end
  end
end

return { now, now - clock, numbers }
