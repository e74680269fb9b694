-- sent.lua records that an event is in Slack. The id moves from the events in flight to the sent ones, and
-- is a duplicate for the dedupe window. The event's slots stay taken. They count from now on, because Slack
-- may have shown the message until now. A repeated call only updates the time of the id.
--
-- KEYS[1]  meta       hash        as in admit.lua
-- KEYS[2]  in flight  hash        as in admit.lua
-- KEYS[3]  sent       sorted set  id -> time when it was recorded as sent
-- KEYS[4..6]  logs    sorted set  as in begin.lua
-- ARGV[1]  id, as in admit.lua
-- ARGV[2]  dedupe window in microseconds
-- ARGV[3]  token of the store that the caller expects, as in admit.lua. Empty accepts any store.
-- ARGV[4]  stream message, as in admit.lua. Slots of another one are not moved: its cost may differ.
-- ARGV[5...]  the event's cost, how long its logs keep entries, and its tiers, as in begin.lua
--
-- Reply: { 'recorded', time, moved }, or { 'unknown store', 0, 0 } as in begin.lua. The event's slots count
-- from `moved`. Zero means that they were not moved.

local meta = redis.call('HMGET', KEYS[1], 'clock', 'token')
if ARGV[3] ~= '' and meta[2] ~= ARGV[3] then
  return { 'unknown store', 0, 0 }
end
local now = decision_time(server_time(), meta[1])
local slots = read_slots(4, 5)
local record = parse_record(redis.call('HGET', KEYS[2], ARGV[1]))
redis.call('ZCARD', KEYS[3]) -- a key of another type fails the call before anything is written
local moved = 0
if record and record.stream_message == ARGV[4] and still_count(record, ARGV[1], slots, now) then
  move(record, ARGV[1], slots, KEYS[1], now)
  moved = now
end
local dedupe = tonumber(ARGV[2])

-- The long member keeps Redis from storing a small set compactly, where each lookup of a batch would search
-- from the start. No id is this long.
redis.call('ZADD', KEYS[3], text(now), ARGV[1], '+inf', string.rep('-', 65))
expire(KEYS[3], now, dedupe)
redis.call('HDEL', KEYS[2], ARGV[1])
local stale = redis.call('ZCOUNT', KEYS[3], '-inf', text(now - dedupe))
if stale > 0 then
  redis.call('ZREMRANGEBYRANK', KEYS[3], '0', text(math.min(stale, 1000) - 1))
end
return { 'recorded', now, moved }
