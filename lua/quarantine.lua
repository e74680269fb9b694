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
-- script. A new token removes "seen" fields older than every window.

local LONGEST = (MONTH + DAY) / 1000 -- milliseconds until an unused meta expires

local now = server_time()
local meta = redis.call('HMGET', KEYS[1], 'token', 'opens')
local token, opens = meta[1], tonumber(meta[2]) or 0

if not token or string.match(token, '^[^ ]*') ~= ARGV[1] then
  token, opens = ARGV[1] .. ' ' .. text(now), now + tonumber(ARGV[2])
  local fields = redis.call('HGETALL', KEYS[1])
  for i = 1, #fields, 2 do
    if string.find(fields[i], '^seen ') and (tonumber(fields[i + 1]) or 0) < now - LONGEST * 1000 then
      redis.call('HDEL', KEYS[1], fields[i])
    end
  end
  redis.call('HSET', KEYS[1], 'token', token, 'opens', text(opens))
elseif opens > now + tonumber(ARGV[3]) then -- the clock was set back
  opens = now + tonumber(ARGV[2])
  redis.call('HSET', KEYS[1], 'opens', text(opens))
end
redis.call('PEXPIRE', KEYS[1], text(LONGEST))
return { token, math.max(0, opens - now) }
