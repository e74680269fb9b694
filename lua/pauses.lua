-- pauses.lua lists the pauses that Slack has requested and that are in force.
--
-- KEYS[1]  pauses  sorted set  as in begin.lua
-- ARGV[1]  the longest pause, as in begin.lua
--
-- Reply: for each pause, the channel or "*", and the microseconds left.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local function text(number)
  return string.format('%.0f', number)
end
local latest = text(now + tonumber(ARGV[1]))
local pauses = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. text(now), latest, 'WITHSCORES')
for i = 2, #pauses, 2 do
  pauses[i] = tonumber(pauses[i]) - now
end
return pauses
