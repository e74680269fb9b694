-- peek.lua returns how full scopes are, without charging, trimming or writing anything.
--
-- KEYS[1]    global scope     sorted set, as in admit.lua; its newest entry bounds the clock
-- KEYS[2..]  category scopes  sorted sets, as in admit.lua
-- ARGV       for each of KEYS: T, followed by T x (COUNT, WINDOW in microseconds)
--
-- Reply: { now, lag, numbers }
--   now, lag  as in admit.lua
--   numbers   for each of KEYS and each of its tiers, in this order, two numbers: slots used, and microseconds from
--             TIME until an event of cost 1 fits; 0: it fits now

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
local newest = tonumber(redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2])
local now = math.max(clock, newest or 0)

local numbers = {}
local at = 1
local function number()
  at = at + 1
  return tonumber(ARGV[at - 1])
end

for _, key in ipairs(KEYS) do
  for _ = 1, number() do
    local count, window = number(), number()
    local wait = 0
    -- The entry at rank COUNT - 1, counted from the newest, blocks while it is in the window; see look in admit.lua.
    local blocking = tonumber(redis.call('ZREVRANGE', key, count - 1, count - 1, 'WITHSCORES')[2])
    if blocking and blocking > now - window then
      wait = blocking + window - clock
    end
    numbers[#numbers + 1] = redis.call('ZCOUNT', key, '(' .. text(now - window), '+inf')
    numbers[#numbers + 1] = wait
  end
end

return { now, now - clock, numbers }
