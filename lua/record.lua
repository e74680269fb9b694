-- record.lua holds the functions that several scripts share. lua.go puts it before begin, answered, sent,
-- refund, peek, restore and quarantine. The other scripts stand alone. The form of a record is described in
-- admit.lua, which reads and writes it too.

local DAY = 86400000000
local MONTH = 2678400000000 -- the longest window that a limit can have
local MOST_MEMBERS = 1000 -- of one event in a log, as in admit.lua; a higher cost was admitted in buckets

-- text formats a whole number. Lua's own conversion keeps 14 digits; a time has 16.
local function text(number)
  return string.format('%.0f', number)
end

-- expire lets a key expire once its newest entry is no longer needed. It never shortens an existing expiry.
local function expire(key, newest, keep)
  local when = text(math.floor((newest + keep) / 1000) + 1)
  if redis.call('PEXPIREAT', key, when, 'GT') == 0 then
    redis.call('PEXPIREAT', key, when, 'NX')
  end
end

-- server_time returns the server's clock, in microseconds since 1970.
local function server_time()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- decision_time returns the time by which slots count: the server's, or the latest score in a log if that is
-- later. `mark` holds that score, the field "clock" of meta. A mark more than a day ahead is ignored, as in
-- admit.lua.
local function decision_time(clock, mark)
  local latest = tonumber(mark) or 0
  return latest <= clock + DAY and math.max(clock, latest) or clock
end

-- parse_record splits a record into its parts. It returns nil if there is no record.
local function parse_record(record)
  local admitted, group, posts, begun, name, stream_message =
    string.match(record or '', '^(%d+)(g?):(%d+):(%d+):([^ ]*) (.*)$')
  if not admitted then
    return nil
  end
  return {
    admitted = admitted, -- text, part of the slots' names
    grouped = group == 'g',
    posts = tonumber(posts), -- begun so far
    begun = tonumber(begun), -- beginning of the last post; 0 before the first
    name = name, -- of the last post; empty before the first, or if every post certainly failed
    stream_message = stream_message,
  }
end

-- write_record returns the text that parse_record splits.
local function write_record(r)
  local admission = r.admitted .. (r.grouped and 'g' or '')
  return admission .. ':' .. text(r.posts) .. ':' .. text(r.begun) .. ':' .. r.name .. ' ' .. r.stream_message
end

-- last_outside returns the latest time that a tier no longer counts.
local function last_outside(window, fixed, now)
  return fixed and now - now % window - 1 or now - window
end

-- read_slots reads the last keys and arguments of a script that moves slots. The event's logs begin at
-- KEYS[key]. ARGV[from] is its cost. Then comes how long each log keeps its entries, and for each tier of its
-- scopes the number of the scope's log, WINDOW, and 1 if the tier is fixed, else 0. It fails if a log is a
-- key of another type, so callers read before they write.
local function read_slots(key, from)
  local slots = { cost = tonumber(ARGV[from]), logs = {}, tiers = {} }
  local at = from
  for k = key, #KEYS do
    at = at + 1
    slots.logs[#slots.logs + 1] = { key = KEYS[k], keep = tonumber(ARGV[at]) }
    redis.call('ZCARD', KEYS[k])
  end
  for tier = at + 1, #ARGV, 3 do
    slots.tiers[#slots.tiers + 1] = {
      log = slots.logs[tonumber(ARGV[tier])],
      window = tonumber(ARGV[tier + 1]),
      fixed = ARGV[tier + 2] == '1',
    }
  end
  return slots
end

-- still_count reports whether an event's slots count in every tier. If a log does not have them, they are in
-- buckets, which count them from the admission.
local function still_count(record, id, slots, now)
  for _, tier in ipairs(slots.tiers) do
    local from = redis.call('ZSCORE', tier.log.key, id .. ' ' .. record.admitted) or record.admitted
    if tonumber(from) <= last_outside(tier.window, tier.fixed, now) then
      return false
    end
  end
  return true
end

-- move lets an event's slots count from `now`, in the logs that have them. The caller checks still_count
-- first: slots that count in every tier are already in each window that ends now, so no window gains one.
-- The mark in meta follows, because a log ignores scores later than the clock.
local function move(record, id, slots, meta, now)
  if slots.cost > MOST_MEMBERS then
    return
  end
  local score, name = text(now), id .. ' ' .. record.admitted
  local members = { score, name }
  for slot = 2, slots.cost do
    members[#members + 1], members[#members + 2] = score, name .. ' ' .. slot
  end
  for _, log in ipairs(slots.logs) do
    redis.call('ZADD', log.key, 'XX', 'GT', unpack(members))
    redis.call('PEXPIREAT', log.key, text(math.floor((now + log.keep) / 1000) + 1), 'GT')
  end
  redis.call('HSET', meta, 'clock', score)
  redis.call('PEXPIRE', meta, text((MONTH + DAY) / 1000))
end
