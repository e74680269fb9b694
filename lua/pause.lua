-- pause.lua stores the pause that Slack has asked for, for all replicas: until its end no replica posts, and after it one
-- replica posts first, as a probe (begin.lua). The end is stored as a time and compared with the server's clock.
--
-- KEYS[1]  pause  string: its end in microseconds; kept for a minute after that, or until a probe succeeds
-- KEYS[2]  probe  string: exists while a probe is in progress
-- ARGV[1]  above 0: pause for at least this many microseconds from now; a pause is never shortened
--          0: only read
--          below 0: Slack accepts posts again; a pause that another replica has begun since then stays
--
-- Reply: microseconds left of the pause; 0: none.

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local stored = tonumber(redis.call('GET', KEYS[1]) or 0)
local asked = tonumber(ARGV[1])
if asked > 0 then
  redis.call('DEL', KEYS[2]) -- if the probe was the post that was refused, the next pause ends with a new probe
  if now + asked > stored then
    stored = now + asked
    redis.call('SET', KEYS[1], text(stored))
    redis.call('PEXPIREAT', KEYS[1], text(math.floor(stored / 1000) + 60001))
  end
elseif asked < 0 and stored <= now then
  redis.call('DEL', KEYS[1], KEYS[2])
end
return math.max(stored - now, 0)
