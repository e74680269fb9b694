-- digest.lua records that the digest is about to be posted, and how that ended. It does so only for the
-- replica that holds the lease: one that was slow and has lost it changes nothing. A repeated call changes
-- nothing more.
--
-- KEYS[1]  lease    string  "<microsecond at which it ends> <token>": who may post; taken by SET NX PX
-- KEYS[2]  pending  hash    "reason limit category" -> drops; since -> microsecond of the first.
--                           flush.lua adds to it
-- KEYS[3]  posting  hash    the copy of pending that is posted; at -> microsecond of the copy; begun -> 1
-- KEYS[4]  state    hash    next: microsecond before which no replica posts; failures: attempts in a row that
--                           have failed; token: of the last attempt that has ended
-- KEYS[5]  message  string  the last digest, for as long as it may be edited
-- ARGV[1]  token of the caller
-- ARGV[2]  what to do, and what it needs:
--   begin     microseconds for which to extend the lease; posting, fields and values in turn
--   reported  microseconds until the next attempt, failures, message. The post has succeeded, or may have:
--             what is in posting is no longer pending
--   failed    the same. Nothing was posted: all of it stays pending
--   release   nothing
--
-- Reply: 1 done; 0 the lease has expired, and nothing has changed.
--
-- Drops stay pending until they are reported, so a replica that dies before "begin" loses none. One that
-- takes the lease and finds posting knows that another one died after "begin": the digest may be in Slack,
-- and is not posted again.

local two_days = '172800000'

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local token, step = ARGV[1], ARGV[2]
if string.match(redis.call('GET', KEYS[1]) or '', '^%d+ (.*)$') ~= token then
  return 0
end
if step == 'begin' and redis.call('HGET', KEYS[4], 'token') == token then
  return 0 -- a lost request that arrives after the attempt has ended
end

if step == 'release' then
  redis.call('DEL', KEYS[1])
  return 1
end

if step == 'begin' then
  local lease = tonumber(ARGV[3])
  redis.call('SET', KEYS[1], text(now + lease) .. ' ' .. token, 'PX', text(math.ceil(lease / 1000)))
  redis.call('DEL', KEYS[3])
  for i = 4, #ARGV, 2 do
    redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
  end
  redis.call('PEXPIRE', KEYS[3], two_days)
  return 1
end

local copied = redis.call('HGET', KEYS[3], 'at')
if step == 'reported' and copied then
  local posting = redis.call('HGETALL', KEYS[3])
  for i = 1, #posting, 2 do
    local is_drop = string.find(posting[i], ' ', 1, true)
    if is_drop and redis.call('HINCRBY', KEYS[2], posting[i], '-' .. posting[i + 1]) <= 0 then
      redis.call('HDEL', KEYS[2], posting[i])
    end
  end
  if redis.call('HLEN', KEYS[2]) <= redis.call('HEXISTS', KEYS[2], 'since') then
    redis.call('DEL', KEYS[2])
  else -- the rest was dropped after the copy
    redis.call('HSET', KEYS[2], 'since', copied)
  end
end
redis.call('DEL', KEYS[3])

local wait, failures, message = tonumber(ARGV[3]), ARGV[4], ARGV[5]
redis.call('HSET', KEYS[4], 'next', text(now + wait), 'failures', failures, 'token', token)
redis.call('PEXPIRE', KEYS[4], two_days)
if message == '' then
  redis.call('DEL', KEYS[5])
else
  redis.call('SET', KEYS[5], message, 'PX', '7200000')
end
return 1
