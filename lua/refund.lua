-- refund.lua releases the slots of one event in all of its scopes: it is not in the channel, because Slack has rejected it for
-- good, or because it became too old before a post. Only an admission that is in flight for exactly this delivery is
-- refunded; anything else (sent, refunded before, of another delivery) is left unchanged, so that calling it again changes
-- nothing.
--
-- KEYS[1]    register   sorted set, as in admit.lua
-- KEYS[2]    in flight  hash
-- KEYS[3...] scopes     sorted sets, two keys each as in admit.lua: global, category, group (whether it has a limit here or not)
-- ARGV[1]    id, as in admit.lua
-- ARGV[2]    delivery, as in admit.lua
-- ARGV[3]    cost
-- ARGV[4]    name of the last post of this event whose result the caller knows, or has looked up; empty: none
--
-- Reply: 1 refunded, 0 nothing to refund for this delivery, or a post has begun whose result the caller does not know:
-- the event may be in Slack.

local function text(number)
  return string.format('%.0f', number)
end

local record = redis.call('HGET', KEYS[2], ARGV[1])
local state, delivery = string.match(record or '', '^([^ ]*) (.*)$')
local since, grouped = string.match(state or '', '^(%d+)(g?)')
if not since or delivery ~= ARGV[2] then
  return 0
end
local posts, last = string.match(record, '^%d+g?:(%d+):%d+:([^ ]*) ')
if posts and tonumber(posts) > 0 and last ~= ARGV[4] then
  return 0
end
since = tonumber(since)
local cost = tonumber(ARGV[3])

-- newest(key) is the time of a set's newest entry; nil: it is empty, or a group's or category's key of another type, which has
-- nothing to give back. Another error, or a damaged global scope, fails the call before anything is written.
local function newest(key)
  local found = redis.pcall('ZREVRANGE', key, 0, 0, 'WITHSCORES')
  if found.err then
    if key == KEYS[3] or key == KEYS[4] or not string.find(found.err, 'WRONGTYPE', 1, true) then
      found = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
    end
    return nil
  end
  return tonumber(found[2])
end
local before = {}
for i = 3, grouped == 'g' and 8 or 6 do
  before[i] = newest(KEYS[i])
end
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[1], ARGV[1])

-- subtract(key) takes the cost out of the bucket that the event was counted in, and moves those after it. That is the first one
-- that ends after the admission, unless it began later: then the set has removed the event's own already. One that holds fewer
-- slots is not it: the scope has changed its form since.
local function subtract(key)
  local entries = redis.call('ZRANGEBYSCORE', key, text(since), '+inf', 'WITHSCORES')
  local holds, upto, start = string.match(entries[1] or '', '^(%d+) (%d+) (%d+)$')
  if not start or tonumber(start) > since or tonumber(upto) - tonumber(holds) < cost then
    return
  end
  for i = 1, #entries, 2 do
    redis.call('ZREM', key, entries[i])
  end
  for i = 1, #entries, 2 do
    local first, total, began = string.match(entries[i], '^(%d+) (%d+) (%d+)$')
    first, total = tonumber(first or 0), tonumber(total or 0) - cost
    if i > 1 then
      first = first - cost
    end
    if total > first then
      redis.call('ZADD', key, entries[i + 1], text(first) .. ' ' .. text(total) .. ' ' .. began)
    end
  end
end

-- A set expires a certain time after its newest entry, which shows admit.lua how long entries are kept. So when the
-- newest entry is removed, the set has to expire that much earlier.
for i, latest in pairs(before) do
  local key, ends = KEYS[i], redis.call('PEXPIRETIME', KEYS[i])
  if i % 2 == 0 then
    subtract(key)
  else
    for slot = 1, cost do
      redis.call('ZREM', key, slot == 1 and ARGV[1] or ARGV[1] .. ' ' .. slot)
    end
  end
  local after = newest(key)
  if after and latest < math.huge then
    redis.call('PEXPIREAT', key, text(ends - math.floor(latest / 1000) + math.floor(math.max(0, after) / 1000)))
  end
end
return 1
