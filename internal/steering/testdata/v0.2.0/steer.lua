-- steer.lua changes what operators have asked for: mutes and temporary limits. Replicas learn of a change
-- from flush.lua, which returns the version.
--
-- KEYS[1]  steering  hash  "mute <pattern>" and "limit <scope>" -> "<since> <until> <the rest as JSON>", in
--                          microseconds;
--                          "version" -> a number that grows with each change, and is at least the time of it;
--                          "born" -> the version that the hash began with, which only release v0.1.0 reads
-- ARGV[1]  what to do, and what it needs:
--   set      field, for how long in microseconds, the rest as JSON
--   clear    field
--   restore  version, and the other fields with their values: the hash as a replica has read it. It is put
--            back as a whole if there is no hash, or if a failover has left an older version
--
-- Reply: { status, now, version, until }
--   status   1 done; 0 nothing to clear, or nothing to restore; -1 there is no room for another entry
--   now      the server's time in microseconds
--   version  after the change; 0: there is no hash
--   until    set: when it ends by itself; else 0
--
-- Each change removes what has ended, and what has another form. The hash stays when its last entry has gone,
-- for longer than any entry lasts: while it is there nobody puts back an older one, so what was cleared does
-- not come back.

local most = 1000 -- entries
local kept = 2764800000 -- 32 days in milliseconds: a day longer than an entry can last

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local step, field = ARGV[1], ARGV[2]

local version, born, entries, known, gone = 0, nil, 0, false, {}
local stored = redis.call('HGETALL', KEYS[1])
for i = 1, #stored, 2 do
  local name, value = stored[i], stored[i + 1]
  local ends = tonumber(string.match(value, '^%d+ (%d+) ') or 0)
  if name == 'version' then
    version = tonumber(value) or 0
  elseif name == 'born' then
    born = value
  elseif ends > now then
    entries = entries + 1
    known = known or name == field
  else
    gone[#gone + 1] = name
  end
end
if not (version >= 1 and version < 9007199254740991) then -- somebody else has written it
  version = 0
end

local ends = 0
if step == 'restore' then
  local lost = tonumber(ARGV[2])
  if version >= lost then
    return { 0, now, version, 0 }
  end
  redis.call('DEL', KEYS[1])
  for i = 3, #ARGV, 2 do
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
  version, born = lost, true -- as it was
else
  if step == 'set' and not known and entries >= most then
    return { -1, now, version, 0 }
  end
  if step == 'clear' and not known then
    return { 0, now, version, 0 }
  end
  for _, name in ipairs(gone) do
    redis.call('HDEL', KEYS[1], name)
  end
  if step == 'set' then
    ends = now + tonumber(ARGV[3])
    redis.call('HSET', KEYS[1], field, text(now) .. ' ' .. text(ends) .. ' ' .. ARGV[4])
  else
    redis.call('HDEL', KEYS[1], field)
  end
  version = math.max(math.floor(version) + 1, now)
end

redis.call('HSET', KEYS[1], 'version', text(version))
if not born then
  redis.call('HSET', KEYS[1], 'born', text(version))
end
redis.call('PEXPIREAT', KEYS[1], text(math.floor(now / 1000) + kept))
return { 1, now, version, ends }
