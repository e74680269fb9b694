-- refund.lua releases the slots of one event in both scopes: it is not in the channel, because Slack has rejected it for
-- good, or because it became too old before a post. Only an admission that is in flight for exactly this delivery is
-- refunded; anything else (sent, refunded before, of another delivery) is left unchanged, so that calling it again changes
-- nothing.
--
-- KEYS[1]  global scope    sorted set
-- KEYS[2]  in flight       hash
-- KEYS[3]  category scope  sorted set
-- ARGV[1]  id, as in admit.lua
-- ARGV[2]  delivery, as in admit.lua
-- ARGV[3]  cost
-- ARGV[4]  name of the last post of this event whose result the caller knows, or has looked up; empty: none
--
-- Reply: 1 refunded, 0 nothing to refund for this delivery, or a post has begun whose result the caller does not know:
-- the event may be in Slack.

local record = redis.call('HGET', KEYS[2], ARGV[1])
if not record or string.match(record, '^%d+[^ ]* (.*)$') ~= ARGV[2] then
  return 0
end
local posts, last = string.match(record, '^%d+:(%d+):%d+:([^ ]*) ')
if posts and tonumber(posts) > 0 and last ~= ARGV[4] then
  return 0
end
local function newest(key)
  return tonumber(redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')[2])
end
newest(KEYS[1]) -- before anything is written, because a key of another type fails the call
local scopes = { KEYS[1], KEYS[3] }
local found = redis.pcall('ZREVRANGE', KEYS[3], 0, 0)
if found.err and string.find(found.err, 'WRONGTYPE', 1, true) then
  scopes = { KEYS[1] } -- the category's key is of another type, and has nothing to give back
end
redis.call('HDEL', KEYS[2], ARGV[1])

-- A set expires a certain time after its newest entry, which shows admit.lua how long entries are kept. So when the
-- newest entry is removed, the set has to expire that much earlier, and the in-flight hash together with the global set.
for _, key in ipairs(scopes) do
  local before = newest(key)
  for slot = 1, tonumber(ARGV[3]) do
    redis.call('ZREM', key, slot == 1 and ARGV[1] or ARGV[1] .. ' ' .. slot)
  end
  local after = newest(key)
  if after and after < before then
    local earlier = math.floor(before / 1000) - math.floor(after / 1000)
    local ends = string.format('%.0f', redis.call('PEXPIRETIME', key) - earlier)
    redis.call('PEXPIREAT', key, ends)
    if key == KEYS[1] then
      redis.call('PEXPIREAT', KEYS[2], ends)
    end
  end
end
return 1
