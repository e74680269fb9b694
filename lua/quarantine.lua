-- quarantine.lua names the store, and says when it opens. A store that may have forgotten admissions is
-- closed while replicas put back what they remember (restore.lua). It may have if it has no token (it is new,
-- or was emptied), or one of another primary (a failover loses what the new primary had not received; a
-- restart, what was not on disk).
--
-- KEYS[1]  meta  hash  as in admit.lua: "token" -> "<replication id of the primary> <time when the token was
--                      made>"; "opens" -> when the store opens
-- ARGV[1]  replication id of the primary: master_replid of INFO
-- ARGV[2]  how long a store with a new token stays closed, in microseconds
-- ARGV[3]  how long a store may stay closed in all, in microseconds
--
-- Reply: { token, wait }: microseconds until the store opens, 0 if it is open.
-- Repeating the call changes nothing. A store where nothing happens keeps its token, as long as any replica
-- looks at it. With a new token the store forgets replicas whose admissions have left every window.

local LONGEST = 2678400000 + 86400000 -- milliseconds: a day more than the longest window

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
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
