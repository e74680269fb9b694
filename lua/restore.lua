-- restore.lua puts back what one replica remembers of its admissions, into a store that may have forgotten
-- some of them. The store is closed meanwhile (quarantine.lua). What is there already stays as it is.
--
-- KEYS[1]     meta       hash        as in admit.lua
-- KEYS[2]     in flight  hash        as in admit.lua
-- KEYS[3]     sent       sorted set  as in admit.lua
-- KEYS[4]     categories sorted set  as in admit.lua
-- KEYS[5...]  scopes     log and buckets of each, as in admit.lua
-- ARGV[1]  token of the store, as in admit.lua
-- ARGV[2]  name of the replica
-- ARGV[3]  dedupe window, in microseconds
-- ARGV[4]  retention of events in flight, in microseconds
-- ARGV[5]  by how much the opening is put off, in microseconds from now
-- ARGV[6]  how long after its token was made the store opens at the latest, in microseconds
-- ARGV[7]  S, the number of scopes, and for each: its bucket width (0: slots are in its log), and how long to
--          keep entries
-- then     N, the number of admissions; then N ids; then for each: when it was admitted (0: not known), 1 if
--          another replica had been given it before (else 0), its cost, its entry of KEYS[4], number of its
--          category's scope, number of its group's scope (0: not charged to one), number of the global scope,
--          when it was sent (0: it was not), when a post of it last began (0: never), its record in flight
--          (empty: it is not)
-- The oldest admissions come first, and those of one time in one call. Times and durations are in
-- microseconds.
--
-- Reply: { 1, slots, in flight, sent }, how many entries were missing, slots counted once for each scope; or
-- { 0, 0, 0, 0 }: the store has another token, begin again.
--
-- Which admissions are missing: an admission is written together with the field "seen <replica>", and
-- replication keeps that order. So of its own admissions this replica finds those in the store that are not
-- later than the field, in whatever form they were written. It adds the later ones, and moves the field: a
-- call that is repeated adds nothing. An event that was redelivered from another replica may be later than
-- the field and there; it is, if the store knows that it is in flight or was sent. Two replicas that both
-- miss an event add it once to a log, where its slots have names, and twice to buckets: never too few.

local DAY = 86400000000
local MONTH = 2678400000000
local MOST_MEMBERS = 1000 -- of one event in a log, as in admit.lua; a higher cost was admitted in buckets

local call, pcall = redis.call, redis.pcall

local function text(number)
  return string.format('%.0f', number)
end

local time = call('TIME')
local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
local seen_field = 'seen ' .. ARGV[2]
local meta = call('HMGET', KEYS[1], 'clock', 'token', 'opens', seen_field)
if meta[2] ~= ARGV[1] then
  return { 0, 0, 0, 0 }
end
local latest, seen = tonumber(meta[1]) or 0, tonumber(meta[4]) or 0
if latest > clock + DAY then
  latest = 0
end
if seen > clock + DAY then
  seen = 0
end

local at = 6 -- the argument that was read last
local function argument()
  at = at + 1
  return ARGV[at]
end
local function number()
  return tonumber(argument())
end

local scopes = {}
for n = 1, number() do
  scopes[n] = {
    log = KEYS[3 + 2 * n],
    buckets = KEYS[4 + 2 * n],
    width = number(),
    keep = number(),
    members = {},
    poured = {},
  }
end
local count = number()
local ids = at
at = at + count
local records = count > 0 and call('HMGET', KEYS[2], unpack(ARGV, ids + 1, ids + count)) or {}
local sent = count > 0 and call('ZMSCORE', KEYS[3], unpack(ARGV, ids + 1, ids + count)) or {}
local admissions, newest = {}, 0
for i = 1, count do
  local a = {
    id = ARGV[ids + i],
    since = number(),
    redelivered = number() == 1,
    cost = number(),
    entry = argument(),
    category = scopes[number()],
    group = scopes[number()],
    global = scopes[number()],
    sent = number(),
    begun = number(),
    record = argument(),
    missing = false,
    stored = -1, -- when the event was admitted that the store has in flight; -1: none
    posts = 0, -- of that
    last = '', -- name of the last post
    settled = tonumber(sent[i]) or -1, -- when it was sent, as the store has it
  }
  admissions[i] = a
  if a.since <= clock + DAY then
    newest = math.max(newest, a.since)
  else
    a.since = 0 -- from before a clock that was far ahead was set right
  end
end
latest = math.max(latest, newest)
local now = math.max(clock, latest)

-- parse_record(record) returns the time of the admission (-1 if the record is empty), the number of posts
-- that have begun, and the name of the last one. The name is empty if that post certainly failed.
local function parse_record(record)
  local since, posts, last = string.match(record, '^(%d+)g?:(%d+):%d+:([^ ]*) ')
  since = since or string.match(record, '^(%d+)')
  return tonumber(since) or -1, tonumber(posts) or 0, last or ''
end

-- Which slots are missing.
for i, a in ipairs(admissions) do
  a.stored, a.posts, a.last = parse_record(records[i] or '')
  local known = a.redelivered and (a.stored >= a.since or a.settled >= a.since)
  a.missing = a.since > seen and not known
  for _, s in ipairs(a.missing and { a.global, a.category, a.group } or {}) do
    local counts = a.since > now - s.keep
    if counts and s.width == 0 and a.cost <= MOST_MEMBERS then
      local name = a.id .. ' ' .. text(a.since)
      for slot = 1, a.cost do
        s.members[#s.members + 1] = text(a.since)
        s.members[#s.members + 1] = slot == 1 and name or name .. ' ' .. slot
      end
    elseif counts then
      s.poured[#s.poured + 1] = a
    end
  end
end

local function expire(key, newest, keep)
  local when = text(math.floor((newest + keep) / 1000) + 1)
  if call('PEXPIREAT', key, when, 'GT') == 0 then
    call('PEXPIREAT', key, when, 'NX')
  end
end

-- add writes the missing slots of a log.
local function add(s)
  local added = 0
  for from = 1, #s.members, 1000 do
    added = added + call('ZADD', s.log, 'NX', unpack(s.members, from, math.min(from + 999, #s.members)))
  end
  expire(s.log, now, s.keep)
  return added
end

-- pour adds the missing slots of buckets. The newest bucket takes what is not later than its end: its slots
-- count for longer then, never for less long.
local function pour(s)
  local last = call('ZREVRANGE', s.buckets, '0', '0', 'WITHSCORES')
  local before, total, began = string.match(last[1] or '0 0 0', '^(%d+) (%d+) (%d+)$')
  local ends, name, added = tonumber(last[2] or 0), last[1], 0
  before, total = tonumber(before), tonumber(total)
  local function write()
    call('ZADD', s.buckets, text(ends), text(before) .. ' ' .. text(total) .. ' ' .. began)
    if name then
      call('ZREM', s.buckets, name) -- last: a key that is empty in between loses its expiry
    end
  end
  for _, a in ipairs(s.poured) do
    if a.since > ends then
      if added > 0 then
        write()
      end
      before, began, name = total, text(a.since), nil
      local width = math.max(s.width, 1)
      ends = a.since - a.since % width + width - 1
    end
    total, added = total + a.cost, added + a.cost
  end
  write()
  expire(s.buckets, ends, s.keep)
  return added
end

local slots = 0
for _, s in ipairs(scopes) do
  if #s.members > 0 then
    slots = slots + add(s)
  end
  if #s.poured > 0 then
    slots = slots + pour(s)
  end
end

-- The states of the ids. What was sent is no longer in flight. Of two records the one of the later admission
-- counts, and of one admission the one with more posts: clocks of replicas differ. With equally many posts, a
-- record whose last post may be in Slack replaces one whose last post failed. A record that the store had and
-- has no more was settled.
local flights, sents = 0, 0
local known_for = math.max(tonumber(ARGV[3]), tonumber(ARGV[4])) -- as in admit.lua
for _, a in ipairs(admissions) do
  local _, own_posts, own_last = parse_record(a.record)
  local further = own_posts > a.posts or own_posts == a.posts and a.last == '' and own_last ~= ''
  local later = a.missing and a.since > a.stored or a.since == a.stored and further
  local needed = math.max(a.since, a.begun) > now - (own_posts > 0 and known_for or tonumber(ARGV[4]))
  if a.sent > now - tonumber(ARGV[3]) and a.sent <= clock + DAY then
    if a.settled < a.sent then
      sents = sents + 1
      call('ZADD', KEYS[3], text(a.sent), a.id)
    end
    if a.stored <= a.sent then
      call('HDEL', KEYS[2], a.id)
    end
  elseif a.record ~= '' and needed and later and a.settled < a.since then
    flights = flights + 1
    call('HSET', KEYS[2], a.id, a.record)
  end
end
if sents > 0 then
  expire(KEYS[3], now, tonumber(ARGV[3]))
end
if flights > 0 then
  expire(KEYS[2], now, known_for)
end

-- The index of categories, with the latest admission of each. A replica that has forgotten an admission may
-- still know that the event was sent; its id is found by the index alone. pcall: as in admit.lua.
local latest_of, index = {}, {}
for _, a in ipairs(admissions) do
  local active = a.since > 0 and a.since or a.sent
  if active > 0 and active <= clock + DAY then
    latest_of[a.entry] = math.max(latest_of[a.entry] or 0, active)
  end
end
for entry, active in pairs(latest_of) do
  index[#index + 1], index[#index + 2] = text(active), entry
end
if #index > 0 and type(pcall('ZADD', KEYS[4], 'GT', unpack(index))) == 'number' then
  expire(KEYS[4], now, tonumber(ARGV[3]) + tonumber(ARGV[4]))
end

-- The opening is put off while there is more to come, as long as the store may stay closed.
local made = tonumber(string.match(meta[2], ' (%d+)$') or 0)
local opens = math.min(clock + tonumber(ARGV[5]), made + tonumber(ARGV[6]))
opens = math.max(opens, tonumber(meta[3]) or 0)
call('HSET', KEYS[1], 'clock', text(latest), 'opens', text(opens), seen_field, text(math.max(seen, newest)))
call('PEXPIRE', KEYS[1], text((MONTH + DAY) / 1000))
return { 1, slots, flights, sents }
