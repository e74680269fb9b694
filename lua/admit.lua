-- admit.lua decides, for a batch of events, which may be sent. It is the one place where a limit is decided.
--
-- An event is charged to all of its scopes, or to none: its category's, that of the category's group if the group has a limit,
-- and the global one. A scope has 1 to 8 tiers (COUNT, WINDOW); an event of cost c fits when in every tier of every scope
--     (slots taken in (now - WINDOW, now]) + c <= COUNT,
-- in a fixed tier: slots taken since the last multiple of WINDOW. In the global tiers whose COUNT is above all reserves, what
-- other categories have not used of theirs counts as taken.
-- A scope is stored in one of two forms. Exact: a member per slot, its score the microsecond of admission. In buckets: a member
-- per bucket, "<slots before it> <slots with it>", counted from the first bucket ever; its score is the bucket's last
-- microsecond, the time that all of its slots count from. So a slot frees up to a bucket's length late, and never early.
--
-- KEYS[1]     register        sorted set   id in flight -> time of its admission, or of the beginning of its last post;
--                                          " clock" -> the latest admission; " kept" -> that and the longest retention;
--                                          " buckets" -> until when there may be buckets; " exact <key>" -> until when a
--                                          replica wants that scope exact
-- KEYS[2]     in flight       hash         id -> "<time of admission> <delivery>": admitted, not yet sent; begin.lua
--                                          puts ":<posts begun>:<time and name of the last>" behind the time
-- KEYS[3]     sent            sorted set   id -> time it was recorded as sent (written by sent.lua)
-- KEYS[4]     categories      sorted set   an index: category, and "<category> <source>" for ids that count together with a
--                                          source -> time of its last admission, less than a second older at most
-- KEYS[5...]  scopes          sorted sets  two keys each, "{...}:<scope>" of its exact form and "{...}:buckets:<scope>"; at most
--                                          one of them exists. The first is global; then "group:<name>" and "category:<name>",
--                                          those of the batch and those with a reserve, a group before its categories.
--             All keys carry the same hash tag, so that they share one slot of a Redis Cluster.
--
-- ARGV[1]     dedupe window in microseconds: an id sent within it is a duplicate
-- ARGV[2]     retention in microseconds: how long an id in flight is known (and longer while other replicas ask for that)
-- ARGV[3]     R, the number of rules that follow; the first is the global scope's
-- then R x    T, G, T x (COUNT, WINDOW in microseconds, 1 if it is fixed else 0), G x length of buckets in microseconds: a
--             bucket ends before the next multiple of any of them; G = 0: this scope is to be exact
-- then        for each scope but the global one: the number of its rule, and of the scope above it (1 is the global one)
-- then        Q, and Q x (number of a category's scope, slots that are reserved for it)
-- then        S, the number of distinct sources in the batch, and S x (number of its category's scope, "<category> <source>")
-- then        N, the number of events, and these column by column: N ids, N deliveries, N categories (the number of the scope;
--             with C scopes C + 1 is the first source and its category), N costs; the last column may be left out if every
--             event costs 1
--             An id is 1 to 64 bytes without a space, and the caller has put the category (and the source) into it: the
--             script takes two events with the same id for one, whatever their categories. The delivery names the stream
--             message that carries the event; the same message delivered again has the same one. All numbers are whole.
--
-- Reply: { now, lag, verdicts, refusals }, or { now, lag, scope }: nothing was decided, because an event fits, and this scope is
-- not stored in the form that it is to have: run reform.lua on it and ask again
--   now       microseconds: the clock that decided
--   lag       microseconds by which that clock is ahead of TIME; above 0 only after TIME stepped back
--   verdicts  one number per event:  1 send it,  0 a duplicate,  -k refused as given in the k-th refusal,  5 or more: not
--             decided, because that one of KEYS is no sorted set, and holds nothing that could be counted
--   refusals  five numbers each: number of the scope, tier (1..T), slots used in it, microseconds from TIME until an event of
--             this cost fits if nothing else comes in (-1: it never does), and slots of it that are kept for other categories;
--             with any of these the time is a lower bound
--   Of all the tiers that refuse, the one that frees last is named; of those alike, that of the narrowest scope.
--
-- Guarantees
--   All or nothing      an event is charged to all of its scopes or to none; a refused event stores nothing.
--   Exact               windows roll by the microsecond of the server's clock, which never goes back: a clock
--                       that was set back stands still at the newest admission until it has caught up.
--   Idempotent          an id in flight for the same delivery is answered 1 and charged nothing: a redelivery,
--                       or a call repeated after its answer was lost. For another delivery it is a duplicate.
--   A storm is free     a batch without an admission only reads: nothing to replicate, nothing to store.
--   Found again         every id that is in an exact set can be found by what is in the index: that keeps the 100,000 entries
--                       with the latest admissions, for the retention and the dedupe window after it.
--   One damaged key     a group's or category's key of another type concerns the events in it alone. Any other key of another
--                       type fails the call, before anything is charged or recorded; entries far in the future may be
--                       removed by then.
--   No stop for ever    what is further ahead of TIME than the dedupe window, and than a day, is no admission of ours. It is
--                       removed when an exact scope is nearly full, and from the index when it is met. A clock, and an event in
--                       flight or sent, that far ahead is unknown, and so is one with a record of another form.
--   Clean               keys expire when their last entry can no longer matter. Entries out of the window are
--                       removed when the next one is added; they are never counted.
--   Rules may change    replicas with other rules may use the same keys. Each holds its own rules against what all
--                       have admitted, and none removes or lets expire what another one's longer window still counts.
--
-- By hand, one event "e1" of category "errors" under 100/30m and 10/30m; run again it shows 1 again, because the id is the same:
--   redis-cli --eval lua/admit.lua '{notifier}:register' '{notifier}:inflight' '{notifier}:sent' '{notifier}:categories' '{notifier}:global' '{notifier}:buckets:global' '{notifier}:category:errors' '{notifier}:buckets:category:errors' , 86400000000 1800000000 2 1 0 100 1800000000 0 1 0 10 1800000000 0 2 1 0 0 1 errors:e1 by-hand-1 2
-- The same for as many events as it takes until one is refused, with -1:
--   for i in 1 2 3 4 5 6 7 8 9 10 11; do redis-cli --eval lua/admit.lua '{notifier}:register' '{notifier}:inflight' '{notifier}:sent' '{notifier}:categories' '{notifier}:global' '{notifier}:buckets:global' '{notifier}:category:errors' '{notifier}:buckets:category:errors' , 86400000000 1800000000 2 1 0 100 1800000000 0 1 0 10 1800000000 0 2 1 0 0 1 errors:loop-$i by-hand-$i 2; done

-- Locals are faster than globals, and this runs once per event.
local KEYS, ARGV, call, tonumber, huge = KEYS, ARGV, redis.call, tonumber, math.huge

-- Numbers are formatted with %.0f: Lua's own conversion keeps 14 digits, and a time in microseconds has 16.
local function text(number)
  return string.format('%.0f', number)
end

local time = call('TIME')
local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
-- Further ahead than this no clock was that has been set back since.
local horizon = clock + math.max(86400000000, tonumber(ARGV[1]))
local marks = call('ZMSCORE', KEYS[1], ' clock', ' kept', ' buckets')
local latest, kept, bucketed = tonumber(marks[1] or 0), tonumber(marks[2] or 0), tonumber(marks[3] or 0)
if latest > horizon then
  latest, kept = 0, 0
end
local now = math.max(clock, latest)
-- Ids in flight are known for as long as any replica asks for.
local retention = tonumber(ARGV[2])
if kept > now then
  retention = math.max(retention, kept - latest)
end
local stamp -- now as text; set with the first admission, because a storm has none

local at = 2 -- the argument that was read last
local function number()
  at = at + 1
  return tonumber(ARGV[at])
end

local rules = {}
for r = 1, number() do
  local tiers, grains = { smallest = huge, longest = 0, ends = false }, 0
  rules[r] = tiers
  local count_of_tiers = number()
  grains = number()
  for t = 1, count_of_tiers do
    local count, window, after, next = number(), number(), nil, false
    if number() == 1 then
      after = now - now % window - 1
      next = after + 1 + window
    end
    tiers[t] = { count = count, window = window, after = after or now - window, next = next, kept = false }
    tiers.smallest, tiers.longest = math.min(tiers.smallest, count), math.max(tiers.longest, window)
  end
  for _ = 1, grains do -- ends: the last microsecond of a bucket that begins now
    local grain = number()
    tiers.grain = math.min(tiers.grain or grain, grain)
    tiers.ends = math.min(tiers.ends or huge, now - now % grain + grain - 1)
  end
end

-- A scope. above: the next wider one. form: the one that it is stored in, exact or buckets, once it was looked up by open; all:
-- entries before the batch, added: slots that this batch has taken so far; they are added to the set only at the end. (The
-- constructor names every field that most batches need, because Lua is slow to grow a table.)
local function scope(n, tiers, above)
  return { n = n, exact = KEYS[3 + 2 * n], buckets = KEYS[4 + 2 * n], tiers = tiers, above = above, longest = tiers.longest, spare = 0,
           form = false, key = false, all = 0, added = 0, members = false, cost = false, at = false, verdict = false, looked = false }
end

local scopes, by_number = { scope(1, rules[1]) }, {}
local global = scopes[1]
for n = 2, (#KEYS - 4) / 2 do
  scopes[n] = scope(n, rules[number()], scopes[number()])
  by_number[tostring(n)] = scopes[n] -- as in the events' column
end
local reserves = {}
for r = 1, number() do
  local s = scopes[number()]
  s.slots, s.longest = number(), math.max(s.longest, global.longest)
  reserves[r], global.spare = s, global.spare + s.slots
end
local sources = false -- by the numbers that stand for a source and its category; few batches have any
for s = 1, number() do
  sources = sources or {}
  sources[tostring(#scopes + s)] = { category = by_number[ARGV[at + 1]], entry = ARGV[at + 2], added = false }
  at = at + 2
end

-- The columns of the events: the i-th id is ARGV[ids + i], and so on.
local events = number()
local ids = at
local deliveries, of, costs = ids + events, ids + 2 * events, ids + 3 * events

-- read(s, key, command, ...) runs a command on one of a scope's keys. It returns nil if that key is of another type.
local function read(s, key, command, ...)
  local reply = redis.pcall(command, KEYS[key], ...)
  if type(reply) ~= 'table' or not reply.err then
    return reply
  elseif s == global or not string.find(reply.err, 'WRONGTYPE', 1, true) then
    return call(command, KEYS[key], ...) -- any other error fails the call
  end
  s.damaged = key
end

-- The two forms of a scope: what is taken of it, when a tier has room, and how slots are taken and written.
local exact, buckets = {}, {}

-- taken(s, after) is how many slots are taken that count from a time after the given one.
function exact.taken(s, after)
  s.counts = s.counts or {}
  s.counts[after] = s.counts[after] or call('ZCOUNT', s.key, '(' .. text(after), '+inf')
  return s.counts[after] + s.added
end

function buckets.taken(s, after)
  s.counts = s.counts or {}
  if not s.counts[after] then
    local first = call('ZRANGEBYSCORE', s.key, '(' .. text(after), '+inf', 'LIMIT', 0, 1)[1]
    s.counts[after] = first and s.total - string.match(first, '^%d*') or 0
  end
  return s.counts[after] + s.added
end

-- look(s, tier, cost, count) returns when the tier has room for the cost, or false if it has room now, and how many slots are
-- taken. count is the tier's, or less: what is kept for others is no room.
-- Of an exact scope the entry at rank COUNT - cost, counted from the newest, decides: there is no room while it is in the
-- window. Entries of this batch are the newest, and their time is now.
function exact.look(s, tier, cost, count)
  if s.all + s.added + cost <= count then
    return false
  elseif count < cost then
    return huge, exact.taken(s, tier.after)
  end
  local rank = count - cost - s.added
  if rank < 0 then
    return tier.next or now + tier.window, exact.taken(s, tier.after)
  end
  local entry = tonumber(call('ZREVRANGE', s.key, rank, rank, 'WITHSCORES')[2])
  if not entry or entry <= tier.after then
    return false
  elseif s.all == rank + 1 then -- it is the oldest entry, so all entries are in the window
    return tier.next or entry + tier.window, s.all + s.added
  end
  return tier.next or entry + tier.window, exact.taken(s, tier.after)
end

-- Of buckets it is the first one up to which as many slots are taken as have to leave.
function buckets.look(s, tier, cost, count)
  local slots = buckets.taken(s, tier.after)
  if slots + cost <= count then
    return false
  elseif count < cost or tier.next then
    return count < cost and huge or tier.next, slots
  end
  local leave = s.total + s.added + cost - count
  if s.added > 0 and leave > s.before then
    return s.ends + tier.window, slots -- it is the bucket of this batch
  end
  local low, high = 0, call('ZCARD', s.key) - 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    local name = call('ZRANGE', s.key, middle, middle)[1]
    if tonumber(string.match(name, '%d*$')) < leave then
      low = middle + 1
    else
      high = middle
    end
  end
  return tonumber(call('ZRANGE', s.key, low, low, 'WITHSCORES')[2]) + tier.window, slots
end

function exact.take(s, id, cost)
  s.members = s.members or {}
  for slot = 1, cost do
    local n = 2 * (s.added + slot)
    s.members[n - 1] = stamp
    s.members[n] = slot == 1 and id or id .. ' ' .. slot -- an id has no space, so no id equals this name
  end
  s.added = s.added + cost
end

-- The newest bucket goes on while it has not ended, but never beyond the end of one that begins now: it may be another
-- replica's, whose buckets are longer.
function buckets.take(s, id, cost)
  if s.added == 0 then
    s.joins = s.last >= now
    s.before, s.ends = s.joins and s.before or s.total, s.joins and math.min(s.last, s.tiers.ends) or s.tiers.ends
  end
  s.added = s.added + cost
end

-- open(s) looks up how a scope is stored. It returns false if its key is of another type.
local function open(s)
  if s.form or s.damaged then
    return s.form
  end
  if s.tiers.ends or bucketed > now then
    local newest = read(s, 4 + 2 * s.n, 'ZREVRANGE', '0', '0', 'WITHSCORES')
    if newest and newest[1] and tonumber(newest[2]) > horizon + 2678400000000 then -- the longest bucket
      call('ZREMRANGEBYSCORE', s.buckets, '(' .. text(horizon + 2678400000000), '+inf')
      newest = call('ZREVRANGE', s.buckets, '0', '0', 'WITHSCORES')
    end
    if not newest then
      return false
    elseif newest[1] then
      local before, total = string.match(newest[1], '^(%d+) (%d+)$')
      if not before then
        s.damaged = 4 + 2 * s.n
        return false
      end
      s.form, s.key, s.all, s.name = buckets, s.buckets, huge, newest[1]
      s.before, s.total, s.last = tonumber(before), tonumber(total), tonumber(newest[2])
      return true
    end
  end
  s.all = read(s, 3 + 2 * s.n, 'ZCARD')
  if not s.all then
    return false
  elseif s.all == 0 and s.tiers.ends then
    s.form, s.key, s.all, s.before, s.total, s.last = buckets, s.buckets, huge, 0, 0, 0
  else
    s.form, s.key = exact, s.exact
  end
  return true
end

-- held(tier, category) is how many slots of a global tier are kept for other categories. A bucket that may have begun before
-- the window does not count as used: the global scope may have forgotten it.
local function held(tier, category)
  local slots = 0
  for _, s in ipairs(reserves) do
    if s ~= category then
      local used = open(s) and s.form.taken(s, tier.after + (s.form == buckets and s.tiers.grain or 0)) or 0
      slots = slots + math.max(0, s.slots - used)
    end
  end
  return slots
end

-- refuse(s, cost, category) checks all tiers of a scope and returns the refusal by the tier without room that frees last, or
-- nil. The result is valid for that cost, and without reserves for all categories, until this batch takes another slot in it.
local function refuse(s, cost, category)
  if s.all + s.added + cost + s.spare <= s.tiers.smallest then
    return nil -- there are at least as many entries overall as in the window
  end
  if s.form == exact and not s.looked then
    s.looked = true
    if tonumber(call('ZREVRANGE', s.key, '0', '0', 'WITHSCORES')[2] or 0) > horizon then
      call('ZREMRANGEBYSCORE', s.key, '(' .. text(horizon), '+inf')
      s.all = call('ZCARD', s.key)
    end
  end
  local whose = s.spare > 0 and category.slots and category or s
  if s.asked ~= cost or s.asked_at ~= s.added or s.asked_by ~= whose then
    s.asked, s.asked_at, s.asked_by, s.refusal = cost, s.added, whose, nil
    for t, tier in ipairs(s.tiers) do
      local kept_for_others = s.spare > 0 and s.spare < tier.count and held(tier, category) or 0
      local frees, slots = s.form.look(s, tier, cost, tier.count - kept_for_others)
      if frees and (not s.refusal or frees > s.refusal.frees) then
        s.refusal = { s.n, t, slots, frees < huge and frees - clock or -1, kept_for_others, frees = frees }
      end
    end
  end
  return s.refusal
end

-- misformed(s): an admission may not be added to the form that is stored, because this replica wants the scope exact, or wants
-- buckets and no other replica still wants it exact.
local function misformed(s)
  if s.tiers.ends then
    return s.form == exact and tonumber(call('ZSCORE', KEYS[1], ' exact ' .. s.exact) or 0) <= now
  end
  return s.form == buckets
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
local register, records = {}, {} -- what ZADD is to add to the register, and HSET to the in-flight hash
local misfit -- a scope to be stored in another form first

-- known(i, id) is the verdict on an event that was seen before, or nil.
local function known(i, id)
  if admitted[id] then
    return admitted[id] == ARGV[deliveries + i] and 1 or 0
  end
  if in_flight[i] then
    local since, begun, by = string.match(in_flight[i], '^(%d+):?%d*:?(%d*)[^ ]* (.*)$')
    since = since and math.max(tonumber(since), tonumber(begun) or 0)
    if since and since > now - retention and since <= horizon then
      return by == ARGV[deliveries + i] and 1 or 0
    end
  end
  local last = sent[i] and tonumber(sent[i])
  if last and last > now - math.max(tonumber(ARGV[1]), retention) and last <= horizon then
    return 0
  end
end

-- decide(i, id, category, cost) is the verdict on a new event.
local function decide(i, id, category, cost)
  local s, refusal = category, nil
  repeat
    if not open(s) then
      return s.damaged
    end
    local r = refuse(s, cost, category)
    if r and (not refusal or r.frees > refusal.frees) then
      refusal = r
    end
    s = s.above
  until not s
  if refusal then
    if not refusal.row then
      for n = 1, 5 do
        refusals[#refusals + 1] = refusal[n]
      end
      refusal.row = #refusals / 5
    end
    return -refusal.row
  end
  stamp, s = stamp or text(now), category
  repeat
    if s.added == 0 and misformed(s) then
      misfit = s.n
    end
    s.form.take(s, id, cost)
    s = s.above
  until not s
  register[#register + 1] = stamp
  register[#register + 1] = id
  records[#records + 1] = id
  records[#records + 1] = stamp .. ' ' .. ARGV[deliveries + i]
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
    local category = by_number[ARGV[of + i]] or sources[ARGV[of + i]].category
    -- In a storm a category is refused in the same way again and again: the verdict is reused until the next admission.
    if category.cost ~= cost or category.at ~= global.added then
      category.cost, category.at = cost, global.added
      category.verdict = decide(i, id, category, tonumber(cost))
    end
    verdict = category.verdict
  end
  verdicts[i] = verdict
end
if misfit then
  return { now, now - clock, misfit }
end

-- Lua can pass only a few thousand values to one call.
local function in_chunks(command, key, values)
  for from = 1, #values, 1000 do
    call(command, key, unpack(values, from, math.min(from + 999, #values)))
  end
end

-- prepare(key, last, window, newest) removes from a sorted set, before its newest entry is added, what nobody counts any more,
-- and returns when it is to expire, and how many milliseconds it keeps its entries. That is the longest window that this replica
-- or, as far as the set shows, any other has asked for: a set expires that long after its newest entry (a millisecond is added,
-- so that none is lost to rounding), and last is the time of the newest one so far.
local function prepare(key, last, window, newest)
  local keeps = math.ceil(window / 1000)
  if last then
    keeps = math.max(keeps, call('PEXPIRETIME', key) - 1 - math.floor(last / 1000))
  end
  call('ZREMRANGEBYSCORE', key, '-inf', text(now - keeps * 1000))
  return text(math.floor(newest / 1000) + keeps + 1), keeps
end

function exact.write(s)
  -- No replica keeps an exact scope for longer than the register, so a lookup is needed only if the register is kept longer.
  local last = s.longest < retention and s.all > 0 and tonumber(call('ZREVRANGE', s.key, '0', '0', 'WITHSCORES')[2])
  local ends = prepare(s.key, last, s.longest, now)
  in_chunks('ZADD', s.key, s.members)
  call('PEXPIREAT', s.key, ends)
  if bucketed > now and not s.tiers.ends then
    register[#register + 1] = text(now + s.longest)
    register[#register + 1] = ' exact ' .. s.exact
  end
end

function buckets.write(s)
  local ends, keeps = prepare(s.key, s.name and s.last, s.longest, s.ends)
  if s.joins then
    call('ZREM', s.key, s.name)
  end
  call('ZADD', s.key, text(s.ends), text(s.before) .. ' ' .. text(s.total + s.added))
  call('PEXPIREAT', s.key, ends)
  bucketed = math.max(bucketed, now + 2000 * keeps)
end

if #records > 0 then
  -- The index. An entry that is less than a second old stays: a busy notifier writes it once a second, and only looks at
  -- it with its other batches. That is done before anything is added, because a key of another type fails the call.
  local names, index = {}, {}
  for _, s in ipairs(scopes) do
    if s.added > 0 then
      names[#names + 1] = string.match(s.exact, '^{[^}]*}:category:(.*)$')
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

  -- When an id leaves the register, its in-flight record is stale.
  local old = text(now - retention)
  local gone = call('ZRANGEBYSCORE', KEYS[1], '-inf', old)
  if #gone > 0 then
    call('ZREMRANGEBYSCORE', KEYS[1], '-inf', old)
    in_chunks('HDEL', KEYS[2], gone)
  end
  in_chunks('HSET', KEYS[2], records)
  call('PEXPIREAT', KEYS[2], text(math.ceil((now + retention) / 1000) + 1))
  for _, s in ipairs(scopes) do
    if s.added > 0 then
      s.form.write(s)
    end
  end
  local n, marked = #register, { stamp, ' clock', text(now + retention), ' kept', text(bucketed), ' buckets' }
  for i = 1, bucketed > now and 6 or 4 do
    register[n + i] = marked[i]
  end
  in_chunks('ZADD', KEYS[1], register)
  call('PEXPIREAT', KEYS[1], text(math.ceil(math.max(now + retention, bucketed) / 1000) + 1))
  if #index > 0 then
    -- An id may be recorded as sent for as long as it is in flight, and is known for the dedupe window from then on.
    local last = tonumber(call('ZREVRANGE', KEYS[4], '0', '0', 'WITHSCORES')[2])
    if last and last > horizon then
      call('ZREMRANGEBYSCORE', KEYS[4], '(' .. text(horizon), '+inf')
      last = tonumber(call('ZREVRANGE', KEYS[4], '0', '0', 'WITHSCORES')[2])
    end
    local ends = prepare(KEYS[4], last, tonumber(ARGV[1]) + retention + 1000000, now)
    in_chunks('ZADD', KEYS[4], index)
    call('ZREMRANGEBYRANK', KEYS[4], '0', '-100001')
    call('PEXPIREAT', KEYS[4], ends)
  end
end

return { now, now - clock, verdicts, refusals }
