-- refund.lua ends an event that was admitted and is not in the channel, and gives its slots back unless they
-- are to stay taken. The event expired or was muted before a post, or is a dead letter. Only an event in
-- flight for this very stream message is ended, so a repeated call changes nothing.
--
-- KEYS[1]     meta       hash  as in admit.lua
-- KEYS[2]     in flight  hash  as in admit.lua
-- KEYS[3...]  scopes     log and buckets of the global scope, the category and the group, whether the group
--                        has a limit or not
-- ARGV[1]  id, as in admit.lua
-- ARGV[2]  stream message, as in admit.lua
-- ARGV[3]  cost. Zero keeps the slots taken.
-- ARGV[4]  name of the event's last post with a result that the caller knows or has looked up. Empty if it
--          knows none.
-- ARGV[5]  token of the store that the caller expects, as in admit.lua. Empty accepts any store.
--
-- Reply: one of
--   { 'refunded' }
--   { 'nothing' }        the event is not in flight for this message; or the caller does not know the
--                        result of its last post, and the message may be in Slack
--   { 'unknown store' }  as in begin.lua

local token = redis.call('HGET', KEYS[1], 'token')
if ARGV[5] ~= '' and token ~= ARGV[5] then
  return { 'unknown store' }
end
local record = parse_record(redis.call('HGET', KEYS[2], ARGV[1]))
if not record or record.stream_message ~= ARGV[2] or (record.name ~= '' and record.name ~= ARGV[4]) then
  return { 'nothing' }
end
local since = record.admitted
local cost = tonumber(ARGV[3])
local scopes = record.grouped and 3 or 2
for n = 1, 2 * scopes do
  redis.call('ZCARD', KEYS[2 + n]) -- a key of another type fails the call before anything is written
end

-- remove takes the event's slots out of a log. If the first slot is missing, they all are, and it returns
-- false.
local function remove(key)
  local name = ARGV[1] .. ' ' .. since
  if redis.call('ZREM', key, name) == 0 then
    return false
  end
  for slot = 2, cost do
    redis.call('ZREM', key, name .. ' ' .. slot)
  end
  return true
end

-- subtract takes the event's slots out of the bucket that counts them, the first one that ends at the
-- admission or later, and renumbers the buckets after it. If that bucket began after the admission or holds
-- fewer slots, the event's own bucket has been removed, and nothing changes.
local function subtract(key)
  local entries = redis.call('ZRANGEBYSCORE', key, since, '+inf', 'WITHSCORES')
  local before, total, began = string.match(entries[1] or '', '^(%d+) (%d+) (%d+)$')
  if not began or tonumber(began) > tonumber(since) or tonumber(total) - tonumber(before) < cost then
    return
  end
  for i = 1, #entries, 2 do
    before, total, began = string.match(entries[i], '^(%d+) (%d+) (%d+)$')
    before, total = tonumber(before) - (i > 1 and cost or 0), tonumber(total) - cost
    if total > before then
      redis.call('ZADD', key, entries[i + 1], text(before) .. ' ' .. text(total) .. ' ' .. began)
    end
    redis.call('ZREM', key, entries[i]) -- last: a key that is empty in between loses its expiry
  end
end

redis.call('HDEL', KEYS[2], ARGV[1])
for n = 1, 2 * scopes, 2 do
  if cost > 0 and not remove(KEYS[2 + n]) then
    subtract(KEYS[3 + n])
  end
end
return { 'refunded' }
