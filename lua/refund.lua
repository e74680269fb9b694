-- refund.lua gives the slots of one event back to both scopes: Slack has refused it for good, so it took no
-- place in the channel. Only an admission that is in flight for this very delivery is refunded; anything else
-- (sent, refunded before, another delivery's) is left alone, so that calling it again changes nothing.
--
-- KEYS[1]  global scope    sorted set
-- KEYS[2]  in flight       hash
-- KEYS[3]  category scope  sorted set
-- ARGV[1]  id, as in admit.lua
-- ARGV[2]  delivery, as in admit.lua
-- ARGV[3]  cost
--
-- Reply: 1 refunded, 0 there was nothing of this delivery to refund.

local record = redis.call('HGET', KEYS[2], ARGV[1])
if not record or string.match(record, '^%d+ (.*)$') ~= ARGV[2] then
  return 0
end
redis.call('HDEL', KEYS[2], ARGV[1])
for slot = 1, tonumber(ARGV[3]) do
  local member = slot == 1 and ARGV[1] or ARGV[1] .. ' ' .. slot
  redis.call('ZREM', KEYS[1], member)
  redis.call('ZREM', KEYS[3], member)
end
return 1
