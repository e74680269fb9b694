-- steer.lua changes what operators have asked for: mutes, and limits for a while. Replicas learn of a change from flush.lua,
-- which brings back the version.
--
-- KEYS[1]  steering  hash  "version" -> a number that grows with each change, at least the time; "born" -> the version that the hash began with;
--                          "mute <pattern>" and "limit <scope>" -> "<since> <until> <the rest as JSON>", in microseconds
-- ARGV[1]  what to do, and what it needs:
--   set      field, for how long in microseconds, the rest as JSON
--   clear    field
--   restore  version, born, and fields with their values: the hash as a replica has read it. After the store was lost it is put
--            back: as a whole where there is none, or an older version of the same hash; into one that has begun since, what
--            that one does not have
--
-- Reply: { status, now, version, until }
--   status   1 done; 0 nothing to clear, or nothing to restore; -1 there is no room for another entry
--   now      the server's time in microseconds
--   version  after the change; 0: there is no hash
--   until    set: when it ends by itself; else 0
--
-- Each change removes what has ended, and what has another form. A version is the time of the change, or one more than the last:
-- it never goes back, and the next change after a loss has no version that a replica knows from before. A hash
-- is kept for a day after the last end that was ever asked for, so that a replica which was cut off takes no cleared
-- entry for a lost one. Everything is read before anything is written.

local most = 1000 -- entries
local day = 86400000 -- milliseconds

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local all, stored, count = redis.call('HGETALL', KEYS[1]), {}, 0
local kept = redis.call('PEXPIRETIME', KEYS[1])
for i = 1, #all, 2 do
  stored[all[i]] = all[i + 1]
end
local version = tonumber(stored.version)
local born = stored.born or stored.version or ''
version = version and version >= 1 and version < 9007199254740991 and math.floor(version) or nil
stored.version, stored.born = nil, nil

-- ends(value) is when an entry ends; nil: it has ended, or has another form.
local function ends(value)
  local at = tonumber(string.match(value, '^%d+ (%d+) ') or nil)
  return at and at > now and at or nil
end

local gone = {}
for field, value in pairs(stored) do
  if ends(value) then
    count = count + 1
  else
    gone[#gone + 1] = field
  end
end
for _, field in ipairs(gone) do
  stored[field] = nil
end

local status, latest, added, removed, restored = 1, 0, {}, {}, nil
if ARGV[1] == 'set' then
  if not stored[ARGV[2]] and count >= most then
    return { -1, now, version or 0, 0 }
  end
  latest = now + tonumber(ARGV[3])
  added[ARGV[2]] = text(now) .. ' ' .. text(latest) .. ' ' .. ARGV[4]
elseif ARGV[1] == 'clear' then
  if not stored[ARGV[2]] then
    return { 0, now, version or 0, 0 }
  end
  removed[1] = ARGV[2]
else
  local same = not version or born == ARGV[3]
  if version and same and version >= tonumber(ARGV[2]) then
    return { 0, now, version, 0 }
  end
  for i = 4, #ARGV - 1, 2 do
    if ends(ARGV[i + 1]) and (same or not stored[ARGV[i]] and count < most) then
      added[ARGV[i]] = ARGV[i + 1]
      count = count + 1
    end
  end
  for field in pairs(same and stored or {}) do
    removed[#removed + 1] = field
  end
  if same then
    version, born, restored = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[2])
  elseif next(added) == nil then
    return { 0, now, version, 0 }
  end
end

for _, list in ipairs({ gone, removed }) do
  for _, field in ipairs(list) do
    redis.call('HDEL', KEYS[1], field)
  end
end
if not version then
  version, born = now - 1, text(now)
end
version = restored or math.max(version + 1, now)
redis.call('HSET', KEYS[1], 'version', text(version), 'born', born)
for field, value in pairs(added) do
  redis.call('HSET', KEYS[1], field, value)
  kept = math.max(kept, math.ceil(ends(value) / 1000) + day)
end
redis.call('PEXPIREAT', KEYS[1], text(math.max(kept, math.floor(now / 1000) + day)))
return { status, now, version, latest }
