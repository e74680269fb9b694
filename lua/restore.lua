-- restore.lua restores the admissions that one worker remembers, into a store that may have forgotten some
-- of them. The store is closed meanwhile (quarantine.lua). Entries that the store still has are kept.
--
-- KEYS[1]     meta       hash        as in admit.lua
-- KEYS[2]     in flight  hash        as in admit.lua
-- KEYS[3]     sent       sorted set  as in admit.lua
-- KEYS[4]     categories sorted set  as in admit.lua
-- KEYS[5...]  scopes     log and buckets of each, as in admit.lua
-- ARGV[1]  token of the store, as in admit.lua
-- ARGV[2]  name of the worker
-- ARGV[3]  dedupe window
-- ARGV[4]  the longest window of any limit
-- ARGV[5]  the call postpones the opening of the store to this long from now
-- ARGV[6]  but not to more than this long after the token was made
-- ARGV[7]  S, the number of scopes. For each: its bucket width (0 writes logs), and how long to keep
--          entries.
-- then     N, the number of admissions; N ids; and for each admission:
--            time of the admission; 0 if that is not known
--            1 if the event was in flight already, perhaps through another worker; else 0
--            cost
--            entry of KEYS[4]
--            number of its category's scope
--            number of its group's scope; 0 if it was not charged to a group
--            number of the global scope
--            time when it was recorded as sent; 0 if it was not
--            time from which its slots count: its latest move, or the admission
--            1 if it was decided again since, which took its slots out of the logs; else 0
--            record in flight; empty if it is not in flight
-- The oldest admissions come first, and admissions of the same time in the same call. Times are microseconds
-- since 1970 by the server's clock, durations are microseconds, and numbers of scopes count from 1.
--
-- Reply: { 1, slots, in flight, sent }, the number of missing entries of each kind, where a slot counts once
-- for each scope; or { 0, 0, 0, 0 } if the store has another token: begin again.
--
-- Missing admissions. admit.lua writes an admission together with the field "seen <worker>", and
-- replication keeps that order. So the store has all admissions of this worker up to the time in the field,
-- in whatever form they were written. The script adds the later ones and advances the field, so a repeated
-- call adds nothing. Slots that moved at that time or later are moved again. An event that was in flight
-- already can be later than the field and still be in the store, through another worker. It is taken to be
-- there if the store has it in flight, or as sent, since that admission or a later one. But the worker that
-- restored it may not know of the post that moved its slots, and have left them out as too old; then they are
-- added to the logs. If two workers miss the same event, a log gets its slots once, because they have names.
-- Buckets get them twice: never too few.

local call, pcall = redis.call, redis.pcall

local clock = server_time()
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
    members = {}, -- of the log, to be added
    moves = {}, -- new scores of members, for those that the log has
    released = {}, -- members to be removed from the log
    poured = {}, -- admissions to be added to the buckets
  }
end
local count = number()
local ids = at
at = at + count
local records = count > 0 and call('HMGET', KEYS[2], unpack(ARGV, ids + 1, ids + count)) or {}
local sent = count > 0 and call('ZMSCORE', KEYS[3], unpack(ARGV, ids + 1, ids + count)) or {}
local admissions, newest = {}, 0 -- newest: time of the latest admission
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
    moved = number(),
    released = number() == 1,
    record = argument(),
    missing = false,
    stored = -1, -- admission by the store's record in flight; -1 without a record
    posts = 0, -- by that record
    last = '', -- name of the last post by that record
    settled = tonumber(sent[i]) or -1, -- time when it was sent, by the store; -1 if it was not
  }
  admissions[i] = a
  if a.since > clock + DAY then
    a.since = 0 -- written while the clock was far ahead
  end
  if a.moved > clock + DAY then
    a.moved = a.since
  end
  newest = math.max(newest, a.since)
  latest = math.max(latest, a.since, a.moved)
end
local now = math.max(clock, latest)

-- Collect the missing slots.
for i, a in ipairs(admissions) do
  local record = parse_record(records[i])
  if record then
    a.stored, a.posts, a.last = tonumber(record.admitted), record.posts, record.name
  end
  local known = a.redelivered and (a.stored >= a.since or a.settled >= a.since)
  a.missing = a.since > seen and not known
  -- The store has this very admission in flight, or this worker saw the event sent.
  local own = a.redelivered and (a.stored == a.since or a.sent >= a.since)
  local forgotten = a.missing or a.released or a.moved >= seen -- a move may have the time of an admission
  for _, s in ipairs(forgotten and { a.global, a.category, a.group } or {}) do
    -- Slots that the store still has may be in the log even if this worker writes buckets by now.
    if a.cost <= MOST_MEMBERS and (s.width == 0 or not a.missing) then
      local name = a.id .. ' ' .. text(a.since)
      for slot = 1, a.cost do
        local member = slot == 1 and name or name .. ' ' .. slot
        if a.released then
          s.released[#s.released + 1] = member
        elseif a.moved > now - s.keep then
          local left_out = own and s.width == 0 and a.since <= now - s.keep
          local to = (a.missing or left_out) and s.members or s.moves
          to[#to + 1], to[#to + 2] = text(a.moved), member
        end
      end
    elseif a.missing and a.since > now - s.keep then
      s.poured[#s.poured + 1] = a
    end
  end
end

-- in_log runs a command on a log with a thousand values at a time, and returns the sum of the replies.
local function in_log(s, command, values, ...)
  local sum = 0
  for from = 1, #values, 1000 do
    local some = { ... }
    for at = from, math.min(from + 999, #values) do
      some[#some + 1] = values[at]
    end
    sum = sum + call(command, s.log, unpack(some))
  end
  return sum
end

-- pour adds missing slots to the buckets of a scope. The newest bucket takes all slots up to its end, even
-- those that belong into an older one: they count longer, never shorter.
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
  in_log(s, 'ZREM', s.released)
  -- GT: if two workers remember an event, the later move of its slots wins.
  slots = slots + in_log(s, 'ZADD', s.members, 'GT')
  in_log(s, 'ZADD', s.moves, 'XX', 'GT')
  if #s.members + #s.moves > 0 then
    expire(s.log, now, s.keep)
  end
  if #s.poured > 0 then
    slots = slots + pour(s)
  end
end

-- Restore the states of the ids. A sent event is no longer in flight. The record of the later admission wins.
-- Of one admission, the record with more posts wins, because the clocks of workers differ. If the posts are
-- equally many, a last post that may be in Slack wins over one that failed. If the store had the admission
-- and has no record of it, the event was settled, and no record is written.
local records_added, sent_added = 0, 0
local longest = tonumber(ARGV[4])
local known_for = math.max(tonumber(ARGV[3]), longest) -- how long posts are known
for _, a in ipairs(admissions) do
  local own = parse_record(a.record)
  local own_posts, own_last = own and own.posts or 0, own and own.name or ''
  local further = own_posts > a.posts or own_posts == a.posts and a.last == '' and own_last ~= ''
  local later = a.missing and a.since > a.stored or a.since == a.stored and further
  local needed = math.max(a.since, a.moved) > now - (own_posts > 0 and known_for or longest)
  if a.sent > now - tonumber(ARGV[3]) and a.sent <= clock + DAY then
    if a.settled < a.sent then
      sent_added = sent_added + 1
      call('ZADD', KEYS[3], text(a.sent), a.id)
    end
    if a.stored <= a.sent then
      call('HDEL', KEYS[2], a.id)
    end
  elseif a.record ~= '' and needed and later and a.settled < a.since then
    records_added = records_added + 1
    call('HSET', KEYS[2], a.id, a.record)
  end
end
if sent_added > 0 then
  expire(KEYS[3], now, tonumber(ARGV[3]))
end
if records_added > 0 then
  expire(KEYS[2], now, known_for)
end

-- Index the categories with their latest admissions. A worker that no longer knows the admission of an
-- event may still know that the event was sent. Its id can be found only through the index. A key of another
-- type must not fail the call, hence pcall.
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
  expire(KEYS[4], now, tonumber(ARGV[3]) + longest)
end

-- Postpone the opening, as another call may follow.
local made = tonumber(string.match(meta[2], ' (%d+)$') or 0)
local opens = math.min(clock + tonumber(ARGV[5]), made + tonumber(ARGV[6]))
opens = math.max(opens, tonumber(meta[3]) or 0)
call('HSET', KEYS[1], 'clock', text(latest), 'opens', text(opens), seen_field, text(math.max(seen, newest)))
call('PEXPIRE', KEYS[1], text((MONTH + DAY) / 1000))
return { 1, slots, records_added, sent_added }
