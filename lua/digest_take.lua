-- digest_take.lua lets one replica at a time post the digest, at most once in an interval, and gives it what to tell.
-- Calling it again with the same token gives the same again, or after digest_done.lua nothing.
--
-- KEYS[1]  lease    string: "<microsecond at which it ends> <token>"
-- KEYS[2]  state    hash: next, microsecond before which nobody posts; failures; token
-- KEYS[3]  pending  hash: "reason limit category" -> drops; since -> microsecond of the first
-- KEYS[4]  posting  hash: the copy of pending that is being told; at -> microsecond of the copy;
--                         begun -> 1 when it is being posted, see digest_begin.lua
-- KEYS[5]  message  string: the last digest that may still be edited
-- ARGV[1]  token, another one for each try
-- ARGV[2]  how long a try may take, in microseconds
-- ARGV[3]  the interval, in microseconds
-- ARGV[4]  longest time that the lease or "next" can be ahead, in microseconds; what is further ahead was written before
--          the clock was set back, and no longer counts
--
-- Reply: { verdict, now, wait, failures, posting, message }
--   0  not now: wait so many microseconds; -1: there is nothing to tell
--   1  it is yours: call digest_begin.lua, tell posting (fields and values in turn), call digest_done.lua
--   2  it is yours, but another replica has begun to tell posting and never said how that went: only call
--      digest_done.lua
--
-- Drops stay pending until digest_done.lua says that they were told.

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local token, lease, interval, longest = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local function not_now(wait)
  return { 0, now, wait, 0, {}, '' }
end

local ends, holder = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+) (.*)$')
ends = tonumber(ends or 0)
if holder and holder ~= token and ends > now and ends - now <= longest then
  return not_now(ends - now)
end
if redis.call('HGET', KEYS[2], 'token') == token then -- a call that was made long ago and is run only now
  return not_now(0)
end

local failures = tonumber(redis.call('HGET', KEYS[2], 'failures') or 0)
local verdict = 1
if redis.call('HEXISTS', KEYS[4], 'begun') == 1 then
  if holder ~= token then
    verdict = 2
  end
elseif holder ~= token or redis.call('EXISTS', KEYS[4]) == 0 then
  local pending = redis.call('HGETALL', KEYS[3])
  if #pending == 0 then
    return not_now(-1)
  end
  local since = tonumber(redis.call('HGET', KEYS[3], 'since') or '')
  if not since or since > now then -- the clock was set back
    since = now
    redis.call('HSET', KEYS[3], 'since', text(now))
  end
  local due = since + interval
  local next = tonumber(redis.call('HGET', KEYS[2], 'next') or 0)
  if next > due and next - now <= longest then
    due = next
  end
  if due > now then
    return not_now(due - now)
  end
  redis.call('DEL', KEYS[4]) -- of one that had not begun
  for i = 1, #pending, 2 do
    redis.call('HSET', KEYS[4], pending[i], pending[i + 1])
  end
  redis.call('HSET', KEYS[4], 'at', text(now))
  redis.call('PEXPIRE', KEYS[4], '172800000')
end
redis.call('SET', KEYS[1], text(now + lease) .. ' ' .. token, 'PX', text(math.ceil(lease / 1000) + 60000))
return { verdict, now, 0, failures, redis.call('HGETALL', KEYS[4]), redis.call('GET', KEYS[5]) or '' }
