-- admit.lua decides, for a batch of events, which may be sent. It is the one place where a limit is decided.
-- An event is charged to all of its scopes, or to none: its category's, its group's if that has a limit, and the global one. A
-- scope has 1 to 8 tiers (COUNT, WINDOW); an event of cost c fits when in every tier of every scope
--     (slots taken in (now - WINDOW, now], of a fixed tier since the last multiple of WINDOW) + c <= COUNT.
-- In the global tiers whose COUNT is above all reserves, what other categories have not used of theirs counts as taken.
-- A scope is stored in one of two forms. Exact: a member per slot, its score the microsecond of admission. In buckets: a member
-- per bucket, "<slots before it> <slots with it> <its first admission>", its score the bucket's last microsecond, from which all
-- of its slots count: a slot frees up to a bucket's length late, and never early. Slots are counted from the first bucket ever.
--
-- KEYS[1]     register    sorted set  " clock" -> the latest admission; " kept" -> that and the longest retention; " buckets" ->
--                                     until when there may be buckets; " exact <key>" -> until when a replica wants that scope
--                                     exact; id in flight -> beginning of its last post (begin.lua), or, while the global
--                                     scope is in buckets, time of admission
-- KEYS[2]     in flight   hash        id -> "<time of admission>[g] <delivery>": admitted, not yet sent; "g": charged to a group;
--                                     see begin.lua too
-- KEYS[3]     sent        sorted set  id -> time it was recorded as sent (written by sent.lua)
-- KEYS[4...]  scopes      sorted sets, two keys each, "{...}:<scope>" of its exact form and "{...}:buckets:<scope>"; one of them
--                         exists at most. The first is global; then "group:<name>" and "category:<name>", those of the batch and
--                         those with a reserve, a group before its categories. All keys share one slot of a Redis Cluster.
--
-- ARGV[1]     dedupe window in microseconds: an id sent within it is a duplicate
-- ARGV[2]     retention in microseconds: how long an id in flight is known (longer while other replicas ask for that)
-- ARGV[3]     the number in the mark " healed" of a store that has forgotten nothing (healed.lua); 0: any store
-- ARGV[4]     R, the number of rules that follow; the first is the global scope's
-- then R x    T, G, T x (COUNT, WINDOW in microseconds, 1 if it is fixed else 0), G x length of buckets in microseconds: a
--             bucket ends before the next multiple of any of them; G = 0: the scope is to be exact
-- then        for each scope but the global one: the numbers of its rule, and of the next wider scope (1 is the global one)
-- then        Q, and Q x (number of a category's scope, slots that are reserved for it)
-- then        N, the number of events, and these column by column: N ids, N deliveries, N numbers of their categories' scopes,
--             N costs, which may be left out if all are 1.
--             An id is 1 to 64 bytes without a space, with the category (and the source) in it: two events with the same id are
--             one. The delivery names the message that carries the event, the same at each redelivery. All numbers are whole.
--
-- Reply: { now, lag, verdicts, refusals, earlier }, or { now, lag, n }: nothing was decided, because an event fits, and the n-th
-- scope is not stored in the form that it is to have: run reform.lua and ask again; 0: the store may have forgotten admissions
--   now       microseconds: the clock that decided
--   lag       microseconds by which that clock is ahead of TIME; above 0 only after TIME stepped back
--   verdicts  one number per event:  1 send it,  0 a duplicate,  -k refused as given in the k-th refusal,  4 or more: not
--             decided, because that one of KEYS is no sorted set, or holds nothing that could be counted
--   refusals  five numbers each: number of the scope, tier (1..T), slots used in it, microseconds from TIME until an event of
--             this cost fits if nothing else comes in (-1: it never does), and slots that are kept for other categories; with
--             any of these the time is a lower bound
--   earlier   two numbers for each event that was in flight already: its number in the batch, the microsecond of its admission
--   Of all the tiers that refuse, the one that frees last is named; of those alike, that of the narrowest scope.
--
-- Guarantees
--   All or nothing   an event is charged to all of its scopes or to none; a refused event stores nothing.
--   Exact            windows roll by the microsecond of the server's clock; one that was set back stands still until it is even.
--   Idempotent       an id in flight for the same delivery is answered 1 and charged nothing: a redelivery, or a call repeated
--                    after its answer was lost. For another delivery it is a duplicate.
--   A storm is free  a batch without an admission only reads: nothing to replicate, nothing to store.
--   One damaged key  a group's or category's key of another type concerns the events in it alone. Any other fails the call, before
--                    anything is charged or recorded.
--   No stop for ever what is further ahead of TIME than the dedupe window, and than a day, is no admission of ours. It is removed
--                    when an exact scope is nearly full, and when it is the newest bucket; an event in flight or sent that
--                    far ahead, or with a record of another form, is unknown.
--   Clean            keys expire when their last entry can no longer matter; tidy.lua removes what is stale.
--   Rules may change replicas with other rules may use the same keys. Each holds its own rules against what all have admitted,
--                    and none removes or lets expire what another one's longer window still counts.
--
-- By hand, an event of "errors" under 100/30m and 10/30m; run again it shows 1 again, because the id is the same:
--   redis-cli --eval lua/admit.lua '{notifier}:register' '{notifier}:inflight' '{notifier}:sent' '{notifier}:global' '{notifier}:buckets:global' '{notifier}:category:errors' '{notifier}:buckets:category:errors' , 86400000000 1800000000 0 2 1 0 100 1800000000 0 1 0 10 1800000000 0 2 1 0 1 errors:e1 by-hand-1 2
-- Eleven events, the last of which is refused (-1):
--   for i in 1 2 3 4 5 6 7 8 9 10 11; do redis-cli --eval lua/admit.lua '{notifier}:register' '{notifier}:inflight' '{notifier}:sent' '{notifier}:global' '{notifier}:buckets:global' '{notifier}:category:errors' '{notifier}:buckets:category:errors' , 86400000000 1800000000 0 2 1 0 100 1800000000 0 1 0 10 1800000000 0 2 1 0 1 errors:loop-$i by-hand-$i 2; done

local KEYS, ARGV, call, tonumber, match, huge = KEYS, ARGV, redis.call, tonumber, string.match, math.huge

-- Numbers are formatted with %.0f: Lua's own conversion keeps 14 digits, and a time in microseconds has 16.
local texts = {}
local function text(number)
  texts[number] = texts[number] or string.format('%.0f', number)
  return texts[number]
end

local time = call('TIME')
local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
local horizon = clock + math.max(86400000000, tonumber(ARGV[1])) -- further ahead no clock was that has been set back since
local month = 2678400000000 -- the longest window, and the longest bucket
local marks = call('ZMSCORE', KEYS[1], ' clock', ' kept', ' buckets', ' healed')
local latest, kept, bucketed = tonumber(marks[1] or 0), tonumber(marks[2] or 0), tonumber(marks[3] or 0)
latest = latest <= horizon and latest or 0
local now = math.max(clock, latest)
if ARGV[3] ~= '0' and tonumber(marks[4] or 0) ~= tonumber(ARGV[3]) then return { now, now - clock, 0 } end
local stamp = text(now)
-- The longest that anybody asks for, to the end of that millisecond, as keys are kept.
local retention = math.max(tonumber(ARGV[2]), math.floor(kept / 1000) >= math.floor(now / 1000) and kept <= latest + month and kept - latest or 0)
bucketed = math.min(bucketed, now + 2 * month)
local marked = bucketed > now -- another replica may count a scope in buckets

local at, rules = 3, {} -- at: the argument that was read last
local function number()
  at = at + 1
  return tonumber(ARGV[at])
end
for r = 1, number() do
  local count, grains = number(), number()
  local tiers = { smallest = huge, longest = 0, grain = huge, ends = grains > 0 and huge or false }
  for t = 1, count do
    local tier = { count = number(), window = number() }
    local began = number() == 1 and now - now % tier.window
    tier.next = began and began + tier.window -- when a fixed window ends
    tier.after = began and began - 1 or now - tier.window
    tiers[t], tiers.smallest, tiers.longest = tier, math.min(tiers.smallest, tier.count), math.max(tiers.longest, tier.window)
  end
  for _ = 1, grains do
    local grain = number()
    tiers.grain, tiers.ends = math.min(tiers.grain, grain), math.min(tiers.ends, now - now % grain + grain - 1)
  end -- ends: the last microsecond of a bucket that begins now
  rules[r] = tiers
end

-- A scope. above: the next wider one. form and key: how and where it is stored, once open has looked. all: entries before the
-- batch. added: slots that this batch has taken; they are stored at the end. (Lua is slow to grow a table: all fields are here.)
local function scope(n, tiers, above)
  return { n = n, tiers = tiers, above = above, form = false, key = false, all = 0, added = 0, cost = false, at = false, verdict = false,
           looked = false, asked = false, asked_at = false, refusal = false, members = {} }
end

local scopes, reserves, spare = { scope(1, rules[1]) }, {}, 0
local global = scopes[1]
for n = 2, (#KEYS - 3) / 2 do
  scopes[n] = scope(n, rules[number()], scopes[number()])
end
for r = 1, number() do
  reserves[r] = scopes[number()]
  reserves[r].slots = number()
  spare = spare + reserves[r].slots
end
local events = number() -- and their columns: the i-th id is ARGV[ids + i], and so on
local ids, deliveries, of, costs = at, at + events, at + 2 * events, at + 3 * events

-- newest(key, bound) is the time of the newest entry of a set, its name, and how many beyond the bound were removed before.
local function newest(key, bound)
  local entry, removed = call('ZREVRANGE', key, '0', '0', 'WITHSCORES'), 0
  if entry[2] and tonumber(entry[2]) > bound then
    removed = call('ZREMRANGEBYSCORE', key, '(' .. text(bound), '+inf')
    entry = call('ZREVRANGE', key, '0', '0', 'WITHSCORES')
  end
  return tonumber(entry[2]), entry[1], removed
end

-- The two forms of a scope: when a tier has room, and how slots are taken.
local exact, buckets = {}, {}

-- open(s) looks up how a scope is stored. It returns false if its key is of another type; that of the global scope, and any other
-- error, fails the call.
local function open(s)
  if s.form or s.damaged then
    return s.form
  end
  for k = 2, (s.tiers.ends or marked) and 3 or 2 do
    local key, all = KEYS[k + 2 * s.n], redis.pcall('ZCARD', KEYS[k + 2 * s.n])
    if type(all) ~= 'number' then
      s.form, s.damaged = false, (s ~= global and string.find(all.err, 'WRONGTYPE', 1, true) or call('ZCARD', key)) and k + 2 * s.n
      return false
    elseif k == 2 or all > 0 then
      s.key, s.form, s.all = key, k == 3 and buckets or exact, all
    end
  end
  if s.all == 0 and s.tiers.ends or s.form == buckets then
    s.form, s.key = buckets, KEYS[3 + 2 * s.n]
    local ends, name = newest(s.key, horizon + month)
    local before, total, began = match(name or '0 0 0', '^(%d+) (%d+) (%d+)$')
    s.all, s.name, s.ends, s.before, s.total, s.began = huge, name, ends or 0, tonumber(before), tonumber(total), began
    local sound = total and s.before <= s.total and s.total < 9007199254740992 -- what a number holds exactly
    s.form, s.damaged = sound and buckets, not sound and 3 + 2 * s.n
  end
  return not s.damaged
end

-- taken(s, after) is how many slots are taken that count from a time after the given one.
local function taken(s, after)
  if s.form == exact then
    return call('ZCOUNT', s.key, '(' .. text(after), '+inf') + s.added
  end
  if s.added > 0 and s.ends <= after then
    return 0
  end
  local first = call('ZRANGEBYSCORE', s.key, '(' .. text(after), '+inf', 'LIMIT', '0', '1')[1]
  return (first and math.max(0, s.total - tonumber(match(first, '^%d+') or 0)) or 0) + s.added
end

-- look(s, tier, cost, count) returns when the tier has room for the cost, or false if it has room now, and how many slots are
-- taken. count is the tier's, less what is kept for others. Of an exact scope the entry at rank COUNT - cost, counted from the
-- newest, decides: there is no room while it is in the window. Entries of this batch are the newest, and their time is now.
function exact.look(s, tier, cost, count)
  local rank = count - cost - s.added
  if s.all <= rank then
    return false
  end
  local entry = rank < 0 and now or tonumber(call('ZREVRANGE', s.key, rank, rank, 'WITHSCORES')[2])
  if count < cost then
    return huge, taken(s, tier.after)
  elseif entry <= tier.after then
    return false
  end
  return tier.next or entry + tier.window, s.all == rank + 1 and s.all + s.added or taken(s, tier.after) -- all: it is the oldest
end

-- Of buckets it is the first one up to which as many slots are taken as have to leave.
function buckets.look(s, tier, cost, count)
  local slots = taken(s, tier.after)
  if slots + cost <= count then
    return false
  elseif count < cost or tier.next then
    return count < cost and huge or tier.next, slots
  end
  local leave, low, high = s.total + s.added + cost - count, 0, call('ZCARD', s.key) - 1
  if leave > s.before then
    return s.ends + tier.window, slots -- the newest one
  end
  while low < high do
    local middle = math.floor((low + high) / 2)
    if tonumber(match(call('ZRANGE', s.key, middle, middle)[1], ' (%d+)') or 0) < leave then
      low = middle + 1
    else
      high = middle
    end
  end
  return tonumber(call('ZRANGE', s.key, low, low, 'WITHSCORES')[2]) + tier.window, slots
end

function exact.take(s, id, cost)
  local members = s.members
  for slot = 1, cost do
    local name = slot == 1 and id or id .. ' ' .. slot -- an id has no space: no id equals this name
    -- A limit in buckets may count a slot for longer than its id is known. The id's older slot then stays, under another name.
    local older = (s.tiers.ends or marked) and call('ZSCORE', s.key, name)
    if older then
      members[#members + 1], members[#members + 2] = older, name .. ' ' .. older
    end
    members[#members + 1], members[#members + 2] = stamp, name
  end
end

-- The newest bucket goes on until it ends, or where one that begins now would: another replica's buckets may be longer.
function buckets.take(s)
  if s.added == 0 then
    s.last, s.joins = s.ends, s.ends >= now
    s.ends = s.joins and math.min(s.ends, s.tiers.ends) or s.tiers.ends
    s.before, s.began = s.joins and s.before or s.total, s.joins and s.began or stamp
  end
end

-- held(tier, category) is how many slots of a global tier are kept for other categories. A bucket that may have begun before the
-- window does not count as used: the global scope may have forgotten it.
local function held(tier, category)
  local slots = 0
  for _, s in ipairs(spare < tier.count and reserves or {}) do
    if s ~= category then
      local used = open(s) and taken(s, tier.after + (s.form == buckets and s.tiers.ends and s.tiers.grain - 1 or 0)) or 0
      slots = slots + math.max(0, s.slots - used)
    end
  end
  return slots
end

-- refuse(s, cost, category) checks all tiers of a scope and returns the refusal by the tier without room that frees last, or
-- nil. It is looked up again for another cost, after another slot was taken, and where other reserves count.
local function refuse(s, cost, category)
  if s.all + s.added + cost + (s == global and spare or 0) <= s.tiers.smallest then
    return nil -- there are at least as many entries overall as in the window
  end
  if s.form == exact and not s.looked then
    s.looked, s.all = true, s.all - select(3, newest(s.key, horizon))
  end
  local whose = s == global and category.slots and category or nil
  if s.asked ~= cost or s.asked_at ~= s.added or s.asked_by ~= whose then
    s.asked, s.asked_at, s.asked_by, s.refusal = cost, s.added, whose, nil
    for t, tier in ipairs(s.tiers) do
      local kept_for_others = s == global and held(tier, whose) or 0
      local frees, slots = s.form.look(s, tier, cost, tier.count - kept_for_others)
      if frees and not (s.refusal and frees <= s.refusal.frees) then
        s.refusal = { s.n, t, slots, frees < huge and math.max(0, frees - clock) or -1, kept_for_others, frees = frees }
      end
    end
  end
  return s.refusal
end

-- One lookup for the whole batch, and none if the key does not exist. For a few events asking first would cost more.
local function find(command, key)
  local worth = events > 0 and (events < 8 or call('EXISTS', key) == 1)
  return worth and call(command, key, unpack(ARGV, ids + 1, ids + events)) or {}
end
local in_flight, sent = find('HMGET', KEYS[2]), find('ZMSCORE', KEYS[3])
-- admitted: the records in flight of this batch, by id; records: the same for HSET; register: what ZADD is to add to the register;
-- misfit: a scope that is to be stored in another form first.
local verdicts, refusals, earlier, admitted, records, register, misfit = {}, {}, {}, {}, {}, {}, nil

-- known(i, id) is the verdict on an event that was seen before, or nil.
local function known(i, id)
  local state, by = match(admitted[id] or in_flight[i] or '', '^([^ ]*) (.*)$')
  local first = tonumber(match(state or '', '^%d+') or nil)
  local since = first and math.max(first, tonumber(match(state, '^%d+g?:%d+:(%d+)') or 0))
  if since and since > now - retention and since <= horizon then
    if by ~= ARGV[deliveries + i] then return 0 end
    earlier[#earlier + 1], earlier[#earlier + 2] = i, first
    return 1
  end
  local last = sent[i] and tonumber(sent[i])
  return last and last > now - math.max(tonumber(ARGV[1]), retention) and last <= horizon and 0 or nil
end

-- decide(i, id, category, cost) is the verdict on a new event.
local function decide(i, id, category, cost)
  local s, refusal = category, nil
  while s do
    if not open(s) then
      return s.damaged
    end
    local r = refuse(s, cost, category)
    refusal = r and not (refusal and r.frees <= refusal.frees) and r or refusal
    s = s.above
  end
  if refusal then
    refusal.row = refusal.row or #refusals + 1
    refusals[refusal.row] = refusal
    return -refusal.row
  end
  s = category
  while s do
    -- A scope that is to be in buckets stays exact while another replica wants that.
    if s.added == 0 and (s.form == exact) == (s.tiers.ends and true)
      and not (s.tiers.ends and tonumber(call('ZSCORE', KEYS[1], ' exact ' .. s.key) or 0) > now) then
      misfit = s.n
      return 1
    end
    s.form.take(s, id, cost)
    s.added = s.added + cost
    s = s.above
  end
  admitted[id] = stamp .. (category.above == global and ' ' or 'g ') .. ARGV[deliveries + i]
  records[#records + 1], records[#records + 2] = id, admitted[id]
  if global.form == buckets then
    register[#records - 1], register[#records] = stamp, id
  end
  return 1
end
for i = 1, events do
  local id = ARGV[ids + i]
  local verdict = (admitted[id] or in_flight[i] or sent[i]) and known(i, id)
  if not verdict then
    local cost, category = ARGV[costs + i] or 1, scopes[tonumber(ARGV[of + i])]
    -- In a storm a category is refused in the same way again and again: the verdict is reused until the next admission.
    if category.cost ~= cost or category.at ~= global.added then
      category.cost, category.at = cost, global.added
      category.verdict = decide(i, id, category, tonumber(cost))
    end
    verdict = category.verdict
  end
  if misfit then
    return { now, now - clock, misfit }
  end
  verdicts[i] = verdict
end
if #records == 0 then return { now, now - clock, verdicts, refusals, earlier } end
local function in_chunks(command, key, values) -- Lua can pass only a few thousand values to one call
  for from = 1, #values, 1000 do
    call(command, key, unpack(values, from, math.min(from + 999, #values)))
  end
end

-- store(s, window, last, members, next) adds entries to a scope and removes what nobody counts any more. Entries are kept for the
-- longest window that this replica or, as far as the set shows, any other has asked for. A set expires that long after its newest
-- entry, which is last now and then next (a millisecond is added: none is lost to rounding).
local function store(s, window, last, members, next)
  local asked = last and math.min(call('PEXPIRETIME', s.key) - 1 - math.floor(last / 1000), month / 1000)
  local keeps = math.max(math.ceil(window / 1000), asked or 0)
  in_chunks('ZADD', s.key, members)
  if s ~= global or s.form == buckets then -- tidy.lua does it with the ids of the exact global scope
    call('ZREMRANGEBYSCORE', s.key, '-inf', text(now - keeps * 1000))
  end
  call('PEXPIREAT', s.key, text(math.floor(next / 1000) + keeps + 1))
  local announce = s.tiers.ends or marked and keeps > math.ceil(window / 1000) -- so long others have to look for buckets
  bucketed = announce and math.max(bucketed, now + 2000 * keeps) or bucketed
end

call('ZADD', KEYS[1], text(now), ' clock', text(now + retention), ' kept') -- first: with Redis out of memory this fails the call
for _, s in ipairs(scopes) do
  local window = math.max(s.tiers.longest, s.slots and global.tiers.longest or 0, s == global and s.form == exact and retention or 0)
  if s.added > 0 and s.form == exact then
    -- Without buckets nobody keeps a scope for longer than the retention, so a lookup is needed only if that is longer.
    store(s, window, (window < retention or marked) and newest(s.key, huge), s.members, now)
  elseif s.added > 0 then
    store(s, window, s.name and s.last, { text(s.ends), text(s.before) .. ' ' .. text(s.total + s.added) .. ' ' .. s.began }, s.ends)
    call('ZREM', s.key, s.joins and s.name or '')
  end
end
in_chunks('HSET', KEYS[2], records)
call('PEXPIREAT', KEYS[2], text(math.floor((now + retention) / 1000) + 1))
for n, s in ipairs(bucketed > now and scopes or {}) do
  if s.added > 0 and not s.tiers.ends then
    call('ZADD', KEYS[1], 'GT', text(now + s.tiers.longest), ' exact ' .. KEYS[2 + 2 * n])
  end
end
in_chunks('ZADD', KEYS[1], register)
if bucketed > now then call('ZADD', KEYS[1], text(bucketed), ' buckets') end
call('PEXPIREAT', KEYS[1], text(math.floor(math.max(now + retention, bucketed, marks[4] and now + 120000000 or 0) / 1000) + 1)) -- healed.lua
return { now, now - clock, verdicts, refusals, earlier }
