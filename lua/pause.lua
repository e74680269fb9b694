-- pause.lua keeps the pause that Slack has asked for, for all replicas: until then nobody posts.
-- The end of the pause is stored as a time and compared with the server's clock, never shortened.
--
-- KEYS[1]  pause  string: its end in microseconds
-- ARGV[1]  pause for at least so many microseconds from now; 0 only asks
--
-- Reply: microseconds that are left of the pause; 0: none.

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local stored = tonumber(redis.call('GET', KEYS[1]) or 0)
local wanted = now + tonumber(ARGV[1])
if tonumber(ARGV[1]) > 0 and wanted > stored then
  redis.call('SET', KEYS[1], text(wanted))
  redis.call('PEXPIREAT', KEYS[1], text(math.floor(wanted / 1000) + 1))
  stored = wanted
end
return math.max(stored - now, 0)
