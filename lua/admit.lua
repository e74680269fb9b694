-- admit.lua decides, for a batch of events, which may be sent. It is the one place where a limit is decided.
--
-- Every event is charged to two scopes, the global one and its category's, or to neither. A scope is a sorted
-- set: a member per slot taken, its score the microsecond of admission. Each scope has 1 to 8 tiers (COUNT,
-- WINDOW); an event of cost c fits when in every tier of both scopes
--     (members with a score in (now - WINDOW, now]) + c <= COUNT.
--
-- KEYS[1]     global scope    sorted set   id -> time of admission; also the register of live admissions
-- KEYS[2]     in flight       hash         id -> "<time of admission> <delivery>": admitted, not yet sent
-- KEYS[3]     sent            sorted set   id -> time it was recorded as sent (written by sent.lua)
-- KEYS[4...]  category scopes sorted sets, one per distinct category of the batch
--             All keys carry the same hash tag, so that they share one slot of a Redis Cluster.
--
-- ARGV[1]     dedupe window in microseconds: an id sent within it is a duplicate
-- ARGV[2]     retention in microseconds: the longest window of any rule; the register keeps ids that long
-- ARGV[3]     R, the number of rules that follow; the first is the global scope's
-- then R x    T, followed by T x (COUNT, WINDOW in microseconds)
-- then        for each of KEYS[4...] the number (2..R) of its rule
-- then        for N events, column by column: N ids, N deliveries, N categories (1 is KEYS[4]), N costs
--             An id is 1 to 64 bytes without a space. The delivery names the stream message that carries the
--             event; the same message delivered again has the same one. COUNT, WINDOW and cost are whole numbers.
--
-- Reply: { now, lag, verdicts, refusals }
--   now       microseconds: the clock that decided
--   lag       microseconds by which that clock is ahead of TIME; above 0 only after TIME stepped back
--   verdicts  one number per event:  1 send it,  0 a duplicate,  -k refused as told in the k-th refusal
--   refusals  four numbers each: scope (0 global, 1 category), tier (1..T), slots used in it, and microseconds
--             from TIME until an event of this cost fits, if nothing else comes in; -1: it never does
--   Of all the tiers that refuse, the one that frees last is named; of two alike, the category's.
--
-- Guarantees
--   All or nothing      an event is charged to both scopes or to none; a refused event stores nothing.
--   Exact               windows roll by the microsecond of the server's clock, which never goes back: a clock
--                       that was set back stands still at the newest admission until it has caught up.
--   Idempotent          an id in flight for the same delivery is answered 1 and charged nothing: a redelivery,
--                       or a call repeated after its answer was lost. For another delivery it is a duplicate.
--   A storm is free     a batch without an admission only reads: nothing to replicate, nothing to store.
--   Clean               keys expire when their last entry can no longer matter. Entries out of the window are
--                       removed when the next one is added; they are never counted.
--
-- By hand, one event "e1" of category "errors" under 100/30m and 10/30m:
--   redis-cli --eval lua/admit.lua '{notifier}:global' '{notifier}:inflight' '{notifier}:sent' '{notifier}:category:errors' , 86400000000 1800000000 2 1 100 1800000000 1 10 1800000000 2 e1 by-hand-1 1 1

-- Locals are faster than globals, and this runs once per event.
local KEYS, ARGV, call, tonumber, huge = KEYS, ARGV, redis.call, tonumber, math.huge

-- Numbers are written with %.0f: Lua's own conversion keeps 14 digits, and a time in microseconds has 16.
local function text(number)
  return string.format('%.0f', number)
end

local time = call('TIME')
local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now = clock
-- Every admission is in the register, so its newest entry is the latest time that any decision has used.
local newest = call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if newest[2] and tonumber(newest[2]) > now then
  now = tonumber(newest[2])
end
local stamp = text(now)

local dedupe, retention = tonumber(ARGV[1]), tonumber(ARGV[2])
local at = 3 -- the next argument to read

local function number()
  at = at + 1
  return tonumber(ARGV[at - 1])
end

local rules = {}
for r = 1, number() do
  local tiers = { longest = 0 }
  for t = 1, number() do
    local count, window = number(), number()
    tiers[t] = { count = count, window = window, after = now - window, range = '(' .. text(now - window) }
    tiers.longest = math.max(tiers.longest, window)
  end
  rules[r] = tiers
end

-- A scope. added: slots that this batch has taken in it so far. all, counts: what was there before the batch, looked
-- up when it is first needed and added to the set only at the end. members: what ZADD is to add.
local global = { code = 0, key = KEYS[1], tiers = rules[1], added = 0 }
local categories = {}
for c = 1, #KEYS - 3 do
  categories[c] = { code = 1, key = KEYS[3 + c], tiers = rules[number()], added = 0 }
end

-- The columns of the events: the i-th id is ARGV[ids + i], and so on.
local events = (#ARGV - at + 1) / 4
local ids = at - 1
local deliveries, of, costs = ids + events, ids + 2 * events, ids + 3 * events

-- has_room(s, tier, cost) may answer without counting: all entries of the set, in the window or not, are at least
-- those in it.
local function has_room(s, tier, cost)
  s.all = s.all or call('ZCARD', s.key)
  return s.all + s.added + cost <= tier.count
end

-- taken(s, t) is how many slots of tier t are taken.
local function taken(s, t)
  s.counts = s.counts or {}
  s.counts[t] = s.counts[t] or call('ZCOUNT', s.key, s.tiers[t].range, '+inf')
  return s.counts[t] + s.added
end

-- look(s, t, cost) says when tier t has room for the cost, or false when it has room now, and how much is taken.
-- The entry that stands COUNT - cost from the newest decides: there is no room while it is in the window.
-- Entries of this batch are the newest, and their time is now.
local function look(s, t, cost)
  local tier = s.tiers[t]
  if has_room(s, tier, cost) then
    return false
  elseif tier.count < cost then
    return huge, taken(s, t)
  end
  local rank = tier.count - cost - s.added
  if rank < 0 then
    return now + tier.window, taken(s, t)
  end
  local entry = tonumber(call('ZREVRANGE', s.key, rank, rank, 'WITHSCORES')[2])
  if not entry or entry <= tier.after then
    return false
  end
  if s.all == rank + 1 then -- it is the oldest, so all of them are in the window
    return entry + tier.window, s.all + s.added
  end
  return entry + tier.window, taken(s, t)
end

-- refuse(s, cost) looks at all tiers of a scope: which of those that have no room frees last, when, and how much is
-- taken in it; or nil. The answer holds for that cost until this batch takes another slot in the scope.
local function refuse(s, cost)
  if s.asked ~= cost or s.asked_at ~= s.added then
    s.asked, s.asked_at, s.tier, s.frees, s.taken = cost, s.added, nil, nil, nil
    for t = 1, #s.tiers do
      local frees, slots = look(s, t, cost)
      if frees and (not s.frees or frees > s.frees) then
        s.tier, s.frees, s.taken = t, frees, slots
      end
    end
  end
  return s.frees
end

local function take(s, id, cost)
  s.added = s.added + cost
  s.members = s.members or {}
  local m = s.members
  m[#m + 1] = stamp
  m[#m + 1] = id
  for slot = 2, cost do -- an id has no space in it, so these names are nobody else's
    m[#m + 1] = stamp
    m[#m + 1] = id .. ' ' .. slot
  end
end

-- One look-up for the whole batch, and none where there is nothing to find.
local in_flight, sent = {}, {}
if events > 0 then
  if call('EXISTS', KEYS[2]) == 1 then
    in_flight = call('HMGET', KEYS[2], unpack(ARGV, ids + 1, ids + events))
  end
  if call('EXISTS', KEYS[3]) == 1 then
    sent = call('ZMSCORE', KEYS[3], unpack(ARGV, ids + 1, ids + events))
  end
end

local verdicts, refusals, refused = {}, {}, 0
local admitted = {} -- ids that this batch has admitted, and for which delivery
local register = {} -- what HSET is to add to the in-flight hash

-- known(i, id) is the verdict on an event that was seen before, or nil.
local function known(i, id)
  if admitted[id] then
    return admitted[id] == ARGV[deliveries + i] and 1 or 0
  end
  if in_flight[i] then
    local since, by = string.match(in_flight[i], '^(%d+) (.*)$')
    if tonumber(since) > now - retention then
      return by == ARGV[deliveries + i] and 1 or 0
    end
  end
  if sent[i] and tonumber(sent[i]) > now - dedupe then
    return 0
  end
end

-- decide(i, id, category, cost) is the verdict on an event that is new.
local function decide(i, id, category, cost)
  local g, c = refuse(global, cost), refuse(category, cost)
  if g or c then
    local s = (not g or (c and c >= g)) and category or global
    local r = refused * 4
    refusals[r + 1], refusals[r + 2], refusals[r + 3] = s.code, s.tier, s.taken
    refusals[r + 4] = s.frees < huge and s.frees - clock or -1
    refused = refused + 1
    return -refused
  end
  take(global, id, cost)
  take(category, id, cost)
  register[#register + 1] = id
  register[#register + 1] = stamp .. ' ' .. ARGV[deliveries + i]
  admitted[id] = ARGV[deliveries + i]
  return 1
end

for i = 1, events do
  local id, cost, category = ARGV[ids + i], ARGV[costs + i], categories[tonumber(ARGV[of + i])]
  local verdict
  if admitted[id] or in_flight[i] or sent[i] then
    verdict = known(i, id)
  end
  if not verdict then
    -- In a storm a category is refused the same way again and again: that answer holds until an admission.
    if category.cost ~= cost or category.at ~= global.added then
      category.cost, category.at = cost, global.added
      category.verdict = decide(i, id, category, tonumber(cost))
    end
    verdict = category.verdict
  end
  verdicts[i] = verdict
end

-- Lua hands at most some thousand values to one call.
local function in_chunks(command, key, values)
  for from = 1, #values, 1000 do
    call(command, key, unpack(values, from, math.min(from + 999, #values)))
  end
end

local function expire(key, window)
  call('PEXPIREAT', key, text(math.floor((now + window) / 1000) + 1))
end

if #register > 0 then
  -- Ids leave the register when no rule can count them any more; what is still in flight of them is stale.
  local out = text(now - retention)
  local gone = call('ZRANGEBYSCORE', KEYS[1], '-inf', out)
  if #gone > 0 then
    call('ZREMRANGEBYSCORE', KEYS[1], '-inf', out)
    in_chunks('HDEL', KEYS[2], gone)
  end
  in_chunks('ZADD', KEYS[1], global.members)
  in_chunks('HSET', KEYS[2], register)
  expire(KEYS[1], retention)
  expire(KEYS[2], retention)
  for _, s in ipairs(categories) do
    if s.added > 0 then
      call('ZREMRANGEBYSCORE', s.key, '-inf', text(now - s.tiers.longest))
      in_chunks('ZADD', s.key, s.members)
      expire(s.key, s.tiers.longest)
    end
  end
end

return { now, now - clock, verdicts, refusals }
