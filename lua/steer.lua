-- steer.lua changes the overrides that operators set: mutes and temporary limits. Workers poll the version
-- once a second.
--
-- KEYS[1]  steering  hash  "mute <pattern>" and "limit <scope>" -> "<since> <until> <the rest as JSON>", in
--                          microseconds since 1970;
--                          "version" -> a number that grows with each change, at least the time of the change
-- ARGV[1]  the step, then its arguments:
--   set      field, duration in microseconds, the rest as JSON
--   clear    field
--   restore  version, then the other fields with their values: the hash as a worker last read it. Replaces
--            the whole hash if that is missing, or if a failover left an older version.
--
-- Reply: { status, now, version, until }
--   status   1 done; 0 nothing to clear or to restore; -1 no room for another entry
--   now      the server's time in microseconds
--   version  after the change; 0 if there is no hash
--   until    end of the entry after "set", else 0
--
-- Each change removes entries that have ended, and fields of any other form. The hash outlives its last entry
-- by more than an entry can last. While the hash exists, no worker restores an older one, so a cleared entry
-- does not come back. v0.2.0 adds a field "born", which counts as a field of another form.

local max_entries = 1000
local lifetime = 2764800000 -- 32 days in milliseconds: a day longer than an entry can last

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local step, field = ARGV[1], ARGV[2]

local version, entries, found, stale = 0, 0, false, {} -- stale: fields to remove
local stored = redis.call('HGETALL', KEYS[1])
for i = 1, #stored, 2 do
  local name, value = stored[i], stored[i + 1]
  local ends = tonumber(string.match(value, '^%d+ (%d+) ') or 0)
  if name == 'version' then
    version = tonumber(value) or 0
  elseif ends > now then
    entries = entries + 1
    found = found or name == field
  else
    stale[#stale + 1] = name
  end
end
if not (version >= 1 and version < 9007199254740991) then -- not written by this script
  version = 0
end

local ends = 0
if step == 'restore' then
  local remembered = tonumber(ARGV[2])
  if version >= remembered then
    return { 0, now, version, 0 }
  end
  redis.call('DEL', KEYS[1])
  for i = 3, #ARGV, 2 do
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
  version = remembered
else
  if step == 'set' and not found and entries >= max_entries then
    return { -1, now, version, 0 }
  end
  if step == 'clear' and not found then
    return { 0, now, version, 0 }
  end
  for _, name in ipairs(stale) do
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
redis.call('PEXPIREAT', KEYS[1], text(math.floor(now / 1000) + lifetime))
return { 1, now, version, ends }
