-- refund.lua gives back the slots of an event that was admitted and is not in the channel: it expired or was
-- muted before a post, or Slack refused its channel. Only an event in flight for this very delivery has
-- anything to give back, so repeating the call changes nothing.
--
-- KEYS[1]     meta       hash  as in admit.lua
-- KEYS[2]     in flight  hash  as in admit.lua
-- KEYS[3...]  scopes     log and buckets of the global scope, the category and the group, whether that has a
--                        limit or not
-- ARGV[1]  id, as in admit.lua
-- ARGV[2]  delivery, as in admit.lua
-- ARGV[3]  cost; 0: its slots stay taken
-- ARGV[4]  name of the event's last post whose result the caller knows, or has looked up; empty: none
-- ARGV[5]  token of the store that the caller knows, as in admit.lua; empty: any store
--
-- Reply: one of
--   { 'refunded' }
--   { 'nothing' }        there is nothing to give back for this delivery, or a post has begun whose result
--                        the caller does not know: the event may be in Slack
--   { 'unknown store' }  put back what this replica remembers, then ask again

local function text(number)
  return string.format('%.0f', number)
end

local token = redis.call('HGET', KEYS[1], 'token')
if ARGV[5] ~= '' and token ~= ARGV[5] then
  return { 'unknown store' }
end
local record = redis.call('HGET', KEYS[2], ARGV[1]) or ''
local since, grouped, last, delivery = string.match(record, '^(%d+)(g?):%d+:%d+:([^ ]*) (.*)$')
if not since then
  since, grouped, delivery = string.match(record, '^(%d+)(g?) (.*)$')
  last = ''
end
if delivery ~= ARGV[2] or (last ~= '' and last ~= ARGV[4]) then
  return { 'nothing' }
end
local cost = tonumber(ARGV[3])
local scopes = grouped == 'g' and 3 or 2
for n = 1, 2 * scopes do
  redis.call('ZCARD', KEYS[2 + n]) -- a key of another type fails the call before anything is written
end

-- remove takes the slots out of a log, if they are there: an event that has no first slot has none. Releases
-- up to v0.1.0 name them by the id alone.
local function remove(key)
  for _, name in ipairs({ ARGV[1] .. ' ' .. since, ARGV[1] }) do
    if redis.call('ZREM', key, name) == 1 then
      for slot = 2, cost do
        redis.call('ZREM', key, name .. ' ' .. slot)
      end
      return true
    end
  end
  return false
end

-- subtract takes the slots out of the bucket that counts them: the first one that ends after the admission.
-- It had begun by then and holds so many, or the event's own bucket is gone. Those after it are numbered
-- anew.
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
