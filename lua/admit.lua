-- admit.lua decides, for a batch of events, which may be sent. It is the one place where a limit is decided.
--
-- Every event is charged to two scopes, the global one and its category's, or to neither. A scope is a sorted
-- set: a member per slot taken, its score the microsecond of admission. Each scope has 1 to 8 tiers (COUNT,
-- WINDOW); an event of cost c fits when in every tier of both scopes
--     (members with a score in (now - WINDOW, now]) + c <= COUNT.
--
-- KEYS[1]     global scope    sorted set   id -> time of admission; also the register of live admissions
-- KEYS[2]     in flight       hash         id -> "<time of admission> <delivery>": admitted, not yet sent; begin.lua
--                                          puts ":<posts begun>:<time and name of the last>" behind it
-- KEYS[3]     sent            sorted set   id -> time it was recorded as sent (written by sent.lua)
-- KEYS[4]     categories      sorted set   an index: category, and "<category> <source>" for ids that count together with a
--                                          source -> time of its last admission, less than a second older at most
-- KEYS[5...]  category scopes sorted sets, one per distinct category of the batch, named "...}:category:<category>"
--             All keys carry the same hash tag, so that they share one slot of a Redis Cluster.
--
-- ARGV[1]     dedupe window in microseconds: an id sent within it is a duplicate
-- ARGV[2]     retention in microseconds: the longest window of any rule; the register keeps ids that long (and longer
--             while other replicas do)
-- ARGV[3]     R, the number of rules that follow; the first is the global scope's
-- then R x    T, followed by T x (COUNT, WINDOW in microseconds)
-- then        for each of KEYS[5...] the number (2..R) of its rule
-- then        S, the number of distinct sources in the batch, and S x (number of its category, "<category> <source>")
-- then        N, the number of events, and these column by column: N ids, N deliveries, N categories (1 is KEYS[5]; with C
--             categories C + 1 is the first source and its category), N costs; the last column may be left out if every
--             event costs 1
--             An id is 1 to 64 bytes without a space, and the caller has put the category (and the source) into it: the
--             script takes two events with the same id for one, whatever their categories. The delivery names the stream
--             message that carries the event; the same message delivered again has the same one. COUNT, WINDOW and cost
--             are whole numbers.
--
-- Reply: { now, lag, verdicts, refusals }
--   now       microseconds: the clock that decided
--   lag       microseconds by which that clock is ahead of TIME; above 0 only after TIME stepped back
--   verdicts  one number per event:  1 send it,  0 a duplicate,  -k refused as given in the k-th refusal,  2 not decided: the
--             key of its category is no sorted set, and holds nothing that could be counted
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
--   Found again         every id that is in a set can be found by what is in the index: that keeps the 100,000 entries with
--                       the latest admissions, for the longest window and the dedupe window after these.
--   One damaged key     a category's key of another type concerns the events of that category alone. Any other key of another
--                       type fails the call, before anything is charged or recorded; entries far in the future may be
--                       removed by then.
--   No stop for ever    an entry that is further ahead of TIME than the dedupe window, and than a day, is no admission of ours.
--                       It is removed when its scope is nearly full, and from the global scope and the index when it is met.
--                       An event in flight or sent that far ahead is unknown, and so is one with a record of another form.
--   Clean               keys expire when their last entry can no longer matter. Entries out of the window are
--                       removed when the next one is added; they are never counted.
--   Rules may change    replicas with other rules may use the same keys. Each holds its own rules against what all
--                       have admitted, and none removes or lets expire what another one's longer window still counts.
--
-- By hand, one event "e1" of category "errors" under 100/30m and 10/30m:
--   redis-cli --eval lua/admit.lua '{notifier}:global' '{notifier}:inflight' '{notifier}:sent' '{notifier}:categories' '{notifier}:category:errors' , 86400000000 1800000000 2 1 100 1800000000 1 10 1800000000 2 0 1 errors:e1 by-hand-1 1

-- Locals are faster than globals, and this runs once per event.
local KEYS, ARGV, call, tonumber, huge = KEYS, ARGV, redis.call, tonumber, math.huge

-- Numbers are formatted with %.0f: Lua's own conversion keeps 14 digits, and a time in microseconds has 16.
local function text(number)
  return string.format('%.0f', number)
end

local time = call('TIME')
local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now = clock
-- Every admission is in the register, so its newest entry is the latest time that any decision has used.
local function newest_of(key)
  return tonumber(call('ZREVRANGE', key, '0', '0', 'WITHSCORES')[2])
end
local newest = newest_of(KEYS[1])
-- Further ahead than this no clock was that has been set back since.
local horizon = clock + math.max(86400000000, tonumber(ARGV[1]))
if newest and newest > horizon then
  call('ZREMRANGEBYSCORE', KEYS[1], '(' .. text(horizon), '+inf')
  newest = newest_of(KEYS[1])
end
if newest and newest > now then
  now = newest
end
local stamp -- now as text; set with the first admission, because a storm has none

local at = 3 -- the next argument to read

local function number()
  at = at + 1
  return tonumber(ARGV[at - 1])
end

local rules = {}
for r = 1, number() do
  local tiers = { smallest = huge, longest = 0 }
  for t = 1, number() do
    local count, window = number(), number()
    tiers[t] = { count = count, window = window, after = now - window }
    tiers.smallest, tiers.longest = math.min(tiers.smallest, count), math.max(tiers.longest, window)
  end
  rules[r] = tiers
end

-- A scope. added: slots that this batch has taken in it so far; they are added to the set only at the end. all, counts:
-- entries before the batch, looked up when they are first needed. members: what ZADD is to add. (The constructor names
-- every field that most batches need, because Lua is slow to grow a table.)
local function scope(key, tiers)
  return { key = key, tiers = tiers, added = 0, all = false, cost = false, at = false, verdict = false, looked = false }
end

local global = scope(KEYS[1], rules[1])
local categories = {} -- by their number as text, as in the events' column
for c = 1, #KEYS - 4 do
  categories[tostring(c)] = scope(KEYS[4 + c], rules[number()])
end
local sources = false -- by the numbers that stand for a source and its category; few batches have any
for s = 1, number() do
  sources = sources or {}
  sources[tostring(#KEYS - 4 + s)] = { category = categories[ARGV[at]], entry = ARGV[at + 1], added = false }
  at = at + 2
end

-- The columns of the events: the i-th id is ARGV[ids + i], and so on.
local events = number()
local ids = at - 1
local deliveries, of, costs = ids + events, ids + 2 * events, ids + 3 * events

-- taken(s, t) is how many slots of tier t are taken.
local function taken(s, t)
  s.counts = s.counts or {}
  s.counts[t] = s.counts[t] or call('ZCOUNT', s.key, '(' .. text(s.tiers[t].after), '+inf')
  return s.counts[t] + s.added
end

-- look(s, t, cost) returns when tier t has room for the cost, or false if it has room now, and how many slots are taken.
-- The entry at rank COUNT - cost, counted from the newest, decides: there is no room while it is in the window.
-- Entries of this batch are the newest, and their time is now.
local function look(s, t, cost)
  local tier = s.tiers[t]
  if s.all + s.added + cost <= tier.count then
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
  if s.all == rank + 1 then -- it is the oldest entry, so all entries are in the window
    return entry + tier.window, s.all + s.added
  end
  return entry + tier.window, taken(s, t)
end

-- count(s) looks up how many entries a category has before the batch, and returns false if its key is of another type.
local function count(s)
  if not s.all then
    s.all = redis.pcall('ZCARD', s.key)
    if type(s.all) ~= 'number' and not string.find(s.all.err, 'WRONGTYPE', 1, true) then
      s.all = call('ZCARD', s.key) -- any other error fails the call
    end
  end
  return type(s.all) == 'number'
end

-- refuse(s, cost) checks all tiers of a scope and returns the refusal by the tier without room that frees last, or nil.
-- The result is valid for that cost until this batch takes another slot in the scope.
local function refuse(s, cost)
  s.all = s.all or call('ZCARD', s.key)
  if s.all + s.added + cost <= s.tiers.smallest then
    return nil -- there are at least as many entries overall as in the window
  end
  if not s.looked then
    s.looked = true
    if (newest_of(s.key) or 0) > horizon then
      call('ZREMRANGEBYSCORE', s.key, '(' .. text(horizon), '+inf')
      s.all = call('ZCARD', s.key)
    end
  end
  if s.asked ~= cost or s.asked_at ~= s.added then
    s.asked, s.asked_at, s.refusal = cost, s.added, nil
    for t = 1, #s.tiers do
      local frees, slots = look(s, t, cost)
      if frees and (not s.refusal or frees > s.refusal.frees) then
        s.refusal = { tier = t, frees = frees, taken = slots }
      end
    end
  end
  return s.refusal
end

local function take(s, id, cost)
  stamp = stamp or text(now)
  s.members = s.members or {}
  for slot = 1, cost do
    local n = 2 * (s.added + slot)
    s.members[n - 1] = stamp
    s.members[n] = slot == 1 and id or id .. ' ' .. slot -- an id has no space, so no id equals this name
  end
  s.added = s.added + cost
end

-- keep(key, newest, window) is how many milliseconds a set is to keep its entries: the longest window that this replica
-- or, as far as the set shows, any other has asked for. A set expires that long after its newest entry (a millisecond
-- is added, so that none is lost to rounding), so its expiry shows later calls how long its entries are needed.
local function keep(key, newest, window)
  local longest = math.ceil(window / 1000)
  if newest then
    longest = math.max(longest, call('PEXPIRETIME', key) - 1 - math.floor(newest / 1000))
  end
  return longest
end

-- Ids stay in the register, and are known, for as long as a rule of any replica can count them.
local kept
local function retention()
  kept = kept or keep(KEYS[1], newest, tonumber(ARGV[2]))
  return kept * 1000
end

-- One lookup for the whole batch, and none if the key does not exist. For a few events asking first would cost more.
local in_flight, sent = {}, {}
local few = events < 8
if events > 0 then
  if few or call('EXISTS', KEYS[2]) == 1 then
    in_flight = call('HMGET', KEYS[2], unpack(ARGV, ids + 1, ids + events))
  end
  if few or call('EXISTS', KEYS[3]) == 1 then
    sent = call('ZMSCORE', KEYS[3], unpack(ARGV, ids + 1, ids + events))
  end
end

local verdicts, refusals = {}, {}
local admitted = {} -- ids that this batch has admitted, and for which delivery
local register = {} -- what HSET is to add to the in-flight hash

-- known(i, id) is the verdict on an event that was seen before, or nil.
local function known(i, id)
  if admitted[id] then
    return admitted[id] == ARGV[deliveries + i] and 1 or 0
  end
  if in_flight[i] then
    local since, by = string.match(in_flight[i], '^(%d+)[^ ]* (.*)$')
    since = tonumber(since)
    if since and since > now - retention() and since <= horizon then
      return by == ARGV[deliveries + i] and 1 or 0
    end
  end
  local last = sent[i] and tonumber(sent[i])
  if last and last > now - math.max(tonumber(ARGV[1]), retention()) and last <= horizon then
    return 0
  end
end

-- decide(i, id, category, cost) is the verdict on a new event.
local function decide(i, id, category, cost)
  if not count(category) then
    return 2
  end
  local g, c = refuse(global, cost), refuse(category, cost)
  if g or c then
    local by_category = not g or (c and c.frees >= g.frees)
    local r = by_category and c or g
    if not r.row then
      refusals[#refusals + 1] = by_category and 1 or 0
      refusals[#refusals + 1] = r.tier
      refusals[#refusals + 1] = r.taken
      refusals[#refusals + 1] = r.frees < huge and r.frees - clock or -1
      r.row = #refusals / 4
    end
    return -r.row
  end
  take(global, id, cost)
  take(category, id, cost)
  register[#register + 1] = id
  register[#register + 1] = stamp .. ' ' .. ARGV[deliveries + i]
  admitted[id] = ARGV[deliveries + i]
  local source = sources and sources[ARGV[of + i]]
  if source then
    source.added = true
  end
  return 1
end

for i = 1, events do
  local id, verdict = ARGV[ids + i], nil
  if admitted[id] or in_flight[i] or sent[i] then
    verdict = known(i, id)
  end
  if not verdict then
    local cost = ARGV[costs + i] or 1
    local category = categories[ARGV[of + i]] or sources[ARGV[of + i]].category
    -- In a storm a category is refused in the same way again and again: the verdict is reused until the next admission.
    if category.cost ~= cost or category.at ~= global.added then
      category.cost, category.at = cost, global.added
      category.verdict = decide(i, id, category, tonumber(cost))
    end
    verdict = category.verdict
  end
  verdicts[i] = verdict
end

-- Lua can pass only a few thousand values to one call.
local function in_chunks(command, key, values)
  for from = 1, #values, 1000 do
    call(command, key, unpack(values, from, math.min(from + 999, #values)))
  end
end

-- bounds(ms) returns, for a set that keeps its entries for ms milliseconds, the time of the newest entry to remove now,
-- and the time at which the set is to expire. Both are cached, because most calls are for the same ms as the last one.
local asked, out, expires
local function bounds(ms)
  if asked ~= ms then
    asked, out, expires = ms, text(now - ms * 1000), text(math.floor(now / 1000) + ms + 1)
  end
  return out, expires
end

if #register > 0 then
  -- The index. An entry that is less than a second old stays: a busy notifier writes it once a second, and only looks at
  -- it with its other batches. That is done before anything is added, because a key of another type fails the call.
  local names, index = {}, {}
  for _, s in pairs(categories) do
    if s.added > 0 then
      names[#names + 1] = string.match(s.key, '}:category:(.*)$')
    end
  end
  for _, source in pairs(sources or {}) do
    if source.added then
      names[#names + 1] = source.entry
    end
  end
  local written = call('ZMSCORE', KEYS[4], unpack(names))
  for n = 1, #names do
    if not written[n] or tonumber(written[n]) <= now - 1000000 then
      index[#index + 1] = stamp
      index[#index + 1] = names[n]
    end
  end

  local old, ends = bounds(retention() / 1000)
  -- When an id leaves the register, its in-flight record is stale.
  local gone = call('ZRANGEBYSCORE', KEYS[1], '-inf', old)
  if #gone > 0 then
    call('ZREMRANGEBYSCORE', KEYS[1], '-inf', old)
    in_chunks('HDEL', KEYS[2], gone)
  end
  in_chunks('ZADD', KEYS[1], global.members)
  in_chunks('HSET', KEYS[2], register)
  call('PEXPIREAT', KEYS[1], ends)
  call('PEXPIREAT', KEYS[2], ends)
  for _, s in pairs(categories) do
    if s.added > 0 then
      -- No replica keeps a category for longer than the register, so a lookup is needed only if the register is kept longer.
      local last = s.tiers.longest < retention() and newest_of(s.key)
      old, ends = bounds(keep(s.key, last, s.tiers.longest))
      call('ZREMRANGEBYSCORE', s.key, '-inf', old)
      in_chunks('ZADD', s.key, s.members)
      call('PEXPIREAT', s.key, ends)
    end
  end
  if #index > 0 then
    -- An id may be recorded as sent for as long as it is in flight, and is known for the dedupe window from then on.
    local last = newest_of(KEYS[4])
    if last and last > horizon then
      call('ZREMRANGEBYSCORE', KEYS[4], '(' .. text(horizon), '+inf')
      last = newest_of(KEYS[4])
    end
    old, ends = bounds(keep(KEYS[4], last, tonumber(ARGV[1]) + retention() + 1000000))
    in_chunks('ZADD', KEYS[4], index)
    call('ZREMRANGEBYSCORE', KEYS[4], '-inf', old)
    call('ZREMRANGEBYRANK', KEYS[4], '0', '-100001')
    call('PEXPIREAT', KEYS[4], ends)
  end
end

return { now, now - clock, verdicts, refusals }
