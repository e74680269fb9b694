-- peek.lua returns how full scopes are. It only reads.
--
-- KEYS[1]     meta    hash  as in admit.lua
-- KEYS[2...]  scopes  log and buckets of each, as in admit.lua
-- ARGV        for each scope: T, then for each of T tiers COUNT, WINDOW in microseconds, and 1 if the tier is
--             fixed (else 0)
--
-- Reply: { now, numbers }
--   now      the present by the clock of admit.lua, in microseconds since 1970
--   numbers  for each tier of each scope: slots taken; microseconds until an event of cost 1 fits, 0 if it
--            fits now; 1 if that is a lower bound, else 0

local clock = server_time()
local now = decision_time(clock, redis.call('HMGET', KEYS[1], 'clock')[1])

local at = 0 -- the argument that was read last
local function number()
  at = at + 1
  return tonumber(ARGV[at])
end

-- look counts the slots of a tier that are later than `before`. If the tier is full, it also returns the
-- time at which one more slot fits, and whether that is a lower bound, as in admit.lua. `resets` is the end
-- of a fixed window, else false.
local function look(log, buckets, count, window, before, resets)
  local after = '(' .. text(before)
  local logged = redis.call('ZCOUNT', log, after, text(now))
  local first = redis.call('ZRANGEBYSCORE', buckets, after, '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
  local slots, ends = logged, 0
  if first[1] then
    local newest = redis.call('ZREVRANGE', buckets, '0', '0', 'WITHSCORES')
    ends = tonumber(newest[2])
    slots = slots + tonumber(string.match(newest[1], '^%d+ (%d+) '))
    slots = slots - tonumber(string.match(first[1], '^%d+'))
  end
  if slots < count then
    return slots
  end
  if resets then
    return slots, resets, ends >= resets
  end
  local oldest = redis.call('ZCOUNT', log, '-inf', text(before))
  local rank = first[1] and oldest or oldest + slots - count
  local entry = logged > 0 and redis.call('ZRANGE', log, rank, rank, 'WITHSCORES')[2]
  return slots, math.min(tonumber(entry or math.huge), tonumber(first[2] or math.huge)) + window, first[1]
end

local numbers = {}
for k = 2, #KEYS, 2 do
  for _ = 1, number() do
    local count, window, fixed = number(), number(), number() == 1
    local before = last_outside(window, fixed, now)
    local resets = fixed and before + 1 + window
    local slots, frees, lower_bound = look(KEYS[k], KEYS[k + 1], count, window, before, resets)
    numbers[#numbers + 1] = slots
    numbers[#numbers + 1] = frees and frees - clock or 0
    numbers[#numbers + 1] = lower_bound and 1 or 0
  end
end
return { now, numbers }
