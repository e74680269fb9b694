-- digest_done.lua records the result of an attempt to post the digest, and releases the lease. Calling it again changes
-- nothing.
--
-- KEYS[1..5]  as in digest_take.lua
-- ARGV[1]  token, as in digest_take.lua
-- ARGV[2]  1: the drops that were taken are reported, or may be; they are no longer pending. 0: they are not reported, and
--          stay pending
-- ARGV[3]  microseconds from now before which no replica tries again
-- ARGV[4]  attempts in a row that have failed
-- ARGV[5]  =: keep the message as it is; empty: delete it; else the message to store
--
-- Reply: 1 recorded; 0 not recorded: the lease had expired and another replica has taken it.

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
if string.match(redis.call('GET', KEYS[1]) or '', '^%d+ (.*)$') ~= ARGV[1] then
  return redis.call('HGET', KEYS[2], 'token') == ARGV[1] and 1 or 0
end

if ARGV[2] == '1' then
  local posting = redis.call('HGETALL', KEYS[4])
  for i = 1, #posting, 2 do
    if string.find(posting[i], ' ', 1, true) then
      if redis.call('HINCRBY', KEYS[3], posting[i], '-' .. posting[i + 1]) <= 0 then
        redis.call('HDEL', KEYS[3], posting[i])
      end
    end
  end
  if redis.call('HLEN', KEYS[3]) <= redis.call('HEXISTS', KEYS[3], 'since') then
    redis.call('DEL', KEYS[3])
  else -- the rest were dropped after the copy was made
    redis.call('HSET', KEYS[3], 'since', redis.call('HGET', KEYS[4], 'at') or text(now))
  end
end
if ARGV[5] == '' then
  redis.call('DEL', KEYS[5])
elseif ARGV[5] ~= '=' then
  redis.call('SET', KEYS[5], ARGV[5], 'PX', '7200000')
end
redis.call('HSET', KEYS[2], 'next', text(now + tonumber(ARGV[3])), 'failures', ARGV[4], 'token', ARGV[1])
redis.call('PEXPIRE', KEYS[2], '172800000')
redis.call('DEL', KEYS[1], KEYS[4])
return 1
