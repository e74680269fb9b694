-- quarantine.lua names the store and says when it opens. A store that may have forgotten admissions is
-- closed while workers restore those that they remember (restore.lua). It may have forgotten some if it
-- has no token (it is new, or was emptied), or the token of another primary: a failover loses writes that
-- the new primary had not received, and a restart loses writes that were not on disk.
--
-- KEYS[1]  meta  hash  as in admit.lua: "token" -> "<replication id of the primary> <time when the token was
--                      made>"; "opens" -> time at which the store opens
-- ARGV[1]  replication id of the primary: master_replid of INFO
-- ARGV[2]  how long a store with a new token stays closed, in microseconds
-- ARGV[3]  the longest time that a store may stay closed, in microseconds
--
-- Reply: { token, wait }: microseconds until the store opens, 0 if it is open.
-- A repeated call changes nothing. Without traffic a store keeps its token as long as some worker calls this
-- script.

local now = server_time()
local meta = redis.call('HMGET', KEYS[1], 'token', 'opens')
local token, opens = meta[1], tonumber(meta[2]) or 0

if not token or string.match(token, '^[^ ]*') ~= ARGV[1] then
  token, opens = ARGV[1] .. ' ' .. text(now), now + tonumber(ARGV[2])
  redis.call('HSET', KEYS[1], 'token', token, 'opens', text(opens))
elseif opens > now + tonumber(ARGV[3]) then -- the clock was set back
  opens = now + tonumber(ARGV[2])
  redis.call('HSET', KEYS[1], 'opens', text(opens))
end
expire(KEYS[1], now - now % DAY + DAY, MONTH + DAY) -- in steps of a day, because the workers call twice a second
return { token, math.max(0, opens - now) }
