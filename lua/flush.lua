-- flush.lua adds the counts of one replica to those of all replicas, and stores its heartbeat. It returns
-- whether operators have changed anything, so that no other call asks for it. Calling it again with the same
-- number counts nothing twice.
--
-- KEYS[1]  flushed   string: number of the last call counted for this run of the replica
-- KEYS[2]  replicas  hash        replica -> "<microsecond> <heartbeat>"
-- KEYS[3]  lastsent  sorted set  category -> microsecond
-- KEYS[4]  pending   hash        "reason limit category" -> drops for the digest; since -> microsecond of the
--                                first
-- KEYS[5]  counts    hash        outcome/reason/category -> events, of one minute
-- KEYS[6]  steering  hash        what operators have asked for; its field "version" is a number that grows
--                                with each change
-- KEYS[7]  sources   hash        what became of events, category and source, with tabs between them ->
--                                events, of ten minutes
-- ARGV[1]  number of this call, from 1, one more for each batch of counts
-- ARGV[2]  replica; empty: no heartbeat
-- ARGV[3]  its heartbeat, JSON without the time; empty: the replica is stopping
-- ARGV[4]  1: remove the heartbeats of replicas that have ended
-- ARGV[5]  most categories in each of KEYS[3] to KEYS[5]; further ones count as _other, or are not kept in
--          KEYS[3]
-- ARGV[6]  most sources of each category in KEYS[7]; further ones count as _other. Empty, events that name
--          none, is not one of them
-- ARGV[7..]  four lists, each preceded by its length:
--   counts  prefix of the field, category, events
--   sent    category, microsecond at which an event of it was last sent
--   drops   prefix of the field, category, events
--   sources what became of events (sent, refused or else), category, source, events
--
-- Reply: { now, version }
--   now       the server's time in microseconds
--   version   of what operators have asked for; 0: nothing
--
-- Everything is read before anything is written: a key of another type makes the call fail before anything is
-- counted.

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local at = 0
local function argument()
  at = at + 1
  return ARGV[at]
end
local number = tonumber(argument())
local replica = argument()
local beat = argument()
local prune = argument() == '1'
local most = tonumber(argument())
local most_sources = tonumber(argument())

-- list reads a list of counts. The number of categories can exceed the bound only if one of the fields is
-- new; only then are those in the hash counted. pattern extracts the category from a field.
local function list(key, pattern)
  local rows, new = {}, false
  for i = 1, tonumber(argument()) do
    local prefix, category, count = argument(), argument(), argument()
    rows[i] = { prefix = prefix, category = category, field = prefix .. category, count = count }
    new = new or redis.call('HEXISTS', key, rows[i].field) == 0
  end
  if not new then
    return rows
  end
  local known, categories = { _other = true }, 0
  local function room(category)
    if not known[category] and categories < most then
      known[category], categories = true, categories + 1
    end
    return known[category]
  end
  for _, field in ipairs(redis.call('HKEYS', key)) do
    local category = string.match(field, pattern)
    if category then
      room(category)
    end
  end
  for _, row in ipairs(rows) do
    if not room(row.category) then
      row.field = row.prefix .. '_other'
    end
  end
  return rows
end

-- sources reads the list of them. Categories past the first ones are left out, and further sources of a
-- category are added up.
local function sources(key)
  local rows, new = {}, false
  for i = 1, tonumber(argument()) do
    local row = { became = argument(), category = argument(), source = argument(), count = argument() }
    row.field = row.became .. '\t' .. row.category .. '\t' .. row.source
    rows[i] = row
    new = new or redis.call('HEXISTS', key, row.field) == 0
  end
  if not new then
    return rows
  end
  local known, categories = {}, 0
  local function room(category, source) -- the name to count it under; nil: none
    local of = known[category]
    if not of then
      if categories >= most then
        return nil
      end
      of = { names = { [''] = true, _other = true }, sources = 0 }
      known[category], categories = of, categories + 1
    end
    if not of.names[source] then
      if of.sources >= most_sources then
        return '_other'
      end
      of.names[source], of.sources = true, of.sources + 1
    end
    return source
  end
  for _, field in ipairs(redis.call('HKEYS', key)) do
    local category, source = string.match(field, '^[^\t]*\t([^\t]*)\t(.*)$')
    if category then
      room(category, source)
    end
  end
  local kept = {}
  for _, row in ipairs(rows) do
    local source = room(row.category, row.source)
    if source then
      row.field = row.became .. '\t' .. row.category .. '\t' .. source
      kept[#kept + 1] = row
    end
  end
  return kept
end

local counts = list(KEYS[5], '^[^/]*/[^/]*/(.*)$')
local sent = {}
for i = 1, tonumber(argument()) do
  sent[i] = { category = argument(), time = argument() }
end
local drops = list(KEYS[4], '^%S+ %S+ (.*)$')
local by_source = sources(KEYS[7])
redis.call('ZCARD', KEYS[3])
redis.call('HLEN', KEYS[2])
local version = tonumber(redis.call('HGET', KEYS[6], 'version') or 0) or 0

if number > tonumber(redis.call('GET', KEYS[1]) or 0) then
  redis.call('SET', KEYS[1], text(number), 'PX', '86400000')
  for _, row in ipairs(counts) do
    redis.call('HINCRBY', KEYS[5], row.field, row.count)
  end
  if #counts > 0 then
    redis.call('PEXPIRE', KEYS[5], '7200000')
  end
  for _, row in ipairs(sent) do
    redis.call('ZADD', KEYS[3], 'GT', row.time, row.category)
  end
  if #sent > 0 then
    redis.call('ZREMRANGEBYRANK', KEYS[3], '0', text(-most - 1))
    redis.call('PEXPIRE', KEYS[3], '604800000')
  end
  if #drops > 0 then
    redis.call('HSETNX', KEYS[4], 'since', text(now))
    redis.call('PEXPIRE', KEYS[4], '172800000')
  end
  for _, row in ipairs(drops) do
    redis.call('HINCRBY', KEYS[4], row.field, row.count)
  end
  for _, row in ipairs(by_source) do
    redis.call('HINCRBY', KEYS[7], row.field, row.count)
  end
  if #by_source > 0 then
    redis.call('PEXPIRE', KEYS[7], '5400000')
  end
end

if replica ~= '' and beat == '' then
  redis.call('HDEL', KEYS[2], replica)
elseif replica ~= '' then
  redis.call('HSET', KEYS[2], replica, text(now) .. ' ' .. beat)
  redis.call('PEXPIRE', KEYS[2], '120000')
end

local all = prune and redis.call('HGETALL', KEYS[2]) or {}
for i = 1, #all, 2 do
  local seen = string.match(all[i + 1], '^(%d+) ')
  -- A time in the future was written before the clock was set back; a running replica writes its heartbeat
  -- again.
  if not seen or math.abs(now - tonumber(seen)) >= 60000000 then
    redis.call('HDEL', KEYS[2], all[i])
  end
end
return { now, version }
