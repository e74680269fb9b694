-- digest_take.lua lets one replica at a time post the digest, at most once in an interval, and returns the drops to report.
-- Calling it again with the same token returns the same, or nothing after digest_done.lua.
--
-- KEYS[1]  lease    string: "<microsecond at which it ends> <token>"
-- KEYS[2]  state    hash: next, microsecond before which no replica posts; failures; token
-- KEYS[3]  pending  hash: "reason limit category" -> drops; since -> microsecond of the first
-- KEYS[4]  posting  hash: the copy of pending that is being reported; at -> microsecond of the copy;
--                         begun -> 1 when it is being posted, see digest_begin.lua
-- KEYS[5]  message  string: the last digest that may still be edited
-- ARGV[1]  token, unique to each attempt
-- ARGV[2]  how long an attempt may take, in microseconds
-- ARGV[3]  the interval, in microseconds
-- ARGV[4]  longest time that the lease or "next" can be ahead, in microseconds; a time further ahead was written before the
--          clock was set back, and no longer counts
-- ARGV[5]  1: only look whether the caller would get the lease; 0: take it
--
-- Reply: { verdict, now, wait, failures, posting, message }
--   0  not now: wait this many microseconds; -1: there is nothing to report
--   1  the caller has the lease: call digest_begin.lua, report posting (fields and values in turn), call digest_done.lua
--   2  the caller has the lease, but another replica has begun to report posting and never recorded the result: only
--      call digest_done.lua
--
-- After a look nothing is taken or changed, and the reply is { verdict, now, wait, failures, {}, token }, with the token of the
-- last attempt whose result was recorded.
--
-- Drops stay pending until digest_done.lua records that they were reported.

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local token, lease, interval, longest = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local look = ARGV[5] == '1'
local function not_now(wait)
  return { 0, now, wait, 0, {}, '' }
end

local ends, holder = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+) (.*)$')
ends = tonumber(ends or 0)
if holder and holder ~= token and ends > now and ends - now <= longest then
  return not_now(ends - now)
end
local latest = redis.call('HGET', KEYS[2], 'token')
if latest == token then -- a call that was sent long ago and runs only now
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
    if not look then
      redis.call('HSET', KEYS[3], 'since', text(now))
    end
  end
  local due = since + interval
  local next = tonumber(redis.call('HGET', KEYS[2], 'next') or 0)
  if next > due and next - now <= longest then
    due = next
  end
  if due > now then
    return not_now(due - now)
  end
  if look then
    return { 1, now, 0, failures, {}, latest or '' }
  end
  redis.call('DEL', KEYS[4]) -- the copy of an attempt that never began its post
  for i = 1, #pending, 2 do
    redis.call('HSET', KEYS[4], pending[i], pending[i + 1])
  end
  redis.call('HSET', KEYS[4], 'at', text(now))
  redis.call('PEXPIRE', KEYS[4], '172800000')
end
if look then
  return { verdict, now, 0, failures, {}, latest or '' }
end
redis.call('SET', KEYS[1], text(now + lease) .. ' ' .. token, 'PX', text(math.ceil(lease / 1000) + 60000))
return { verdict, now, 0, failures, redis.call('HGETALL', KEYS[4]), redis.call('GET', KEYS[5]) or '' }
