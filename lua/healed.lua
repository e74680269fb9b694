-- healed.lua is where replicas agree that a store has been given back what they remember of it (restore.lua), and may decide.
--
-- KEYS[1]  register  sorted set, as in admit.lua: " healed" -> the number of the store's generation: it is healed
-- KEYS[2]  healing   hash        generation -> of the store that is being healed; start -> microsecond of the beginning; ended -> of the
--                                end; peers -> 1: somebody knew which replicas there are; "replica <name>" -> 1: it has put
--                                back all that it remembers, 0: it has not yet
-- ARGV[1]  look: whether the store is healed;  begin: this replica is about to put back what it remembers;  done: it has done so
-- ARGV[2]  the store's generation
-- ARGV[3]  the number made of it
-- ARGV[4]  this replica's name
-- ARGV[5]  how long to wait at most, in microseconds, for replicas that are known
-- ARGV[6]  the same if no replica knows which others there are
-- ARGV[7]  done: the round in which this replica has put back what it remembers, as the reply to its begin names it
-- ARGV[8...] names of the replicas that were alive before, as far as this one knows
--
-- Reply: { healed, number, missing, round }
--   1, microseconds since the beginning, names   the store is healed, and this call has decided so; these replicas have not answered
--   1, 0, none                                   it has been healed before
--   0, microseconds, names                       it is not: ask again, after so long at the latest; these are missing
--   2, 0, none                                   the store has been emptied since this replica began: begin again
-- A store whose mark has been lost has been emptied, and healing begins anew, as another round.

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local healed = tonumber(redis.call('ZSCORE', KEYS[1], ' healed') or 0) == tonumber(ARGV[3])

-- The mark must outlive what expires with the register: a store where nothing happens is no other store for that.
local function keep()
  local ends = math.floor(now / 1000) + 120000
  if redis.call('PEXPIRETIME', KEYS[1]) < ends - 60000 then
    redis.call('PEXPIREAT', KEYS[1], text(ends))
  end
end

if healed then
  keep()
end
local state = redis.call('HMGET', KEYS[2], 'generation', 'start', 'ended')
local round = state[2] or '0'
if ARGV[1] == 'done' and round ~= ARGV[7] then
  return { 2, 0, {}, round }
elseif healed or ARGV[1] == 'look' then
  return { healed and 1 or 0, 0, {}, round } -- what a replica still puts back is welcome, and nobody waits for it
end

local start = tonumber(round)
if state[1] ~= ARGV[2] or state[3] or start > now then -- another generation, another round, or a clock that was set back
  redis.call('DEL', KEYS[2])
  redis.call('HSET', KEYS[2], 'generation', ARGV[2], 'start', text(now))
  start, round = now, text(now)
end
redis.call('PEXPIRE', KEYS[2], 600000)
for i = 8, #ARGV do
  redis.call('HSET', KEYS[2], 'peers', '1')
  redis.call('HSETNX', KEYS[2], 'replica ' .. ARGV[i], '0')
end
redis.call('HSET', KEYS[2], 'replica ' .. ARGV[4], ARGV[1] == 'done' and '1' or '0')

local missing, peers = {}, false
local fields = redis.call('HGETALL', KEYS[2])
for i = 1, #fields, 2 do
  local name = string.match(fields[i], '^replica (.*)$')
  if name and fields[i + 1] == '0' then
    missing[#missing + 1] = name
  end
  peers = peers or fields[i] == 'peers'
end
local wait = (#missing > 0 or not peers) and tonumber(#missing > 0 and ARGV[5] or ARGV[6]) or 0
if ARGV[1] ~= 'done' or now - start < wait then
  return { 0, math.max(0, start + wait - now), missing, round }
end
redis.call('ZADD', KEYS[1], ARGV[3], ' healed')
redis.call('HSET', KEYS[2], 'ended', text(now))
keep()
return { 1, now - start, missing, round }
