-- admit.lua decides which events of a batch may be posted. The limit is decided here and nowhere else.
--
-- An event belongs to its category, to its group if the group has a limit, and to the global scope. It is
-- charged to all of them or to none. A scope's rule has 1 to 8 tiers (COUNT, WINDOW). An event of cost c fits
-- if in every tier of every scope
--     slots taken in (now - WINDOW, now]  +  c  <=  COUNT
-- A fixed tier counts from the last multiple of its WINDOW since 1970 instead.
-- Reservations apply to each global tier whose COUNT is above the sum of all reservations: there, what other
-- categories have reserved and not used counts as taken.
--
-- A scope has two keys. A replica writes the one that its own rule selects, and always counts both:
--   log      one member per slot: "<id> <time>", for further slots of the same event "<id> <time> <n>". The
--            score is the time.
--   buckets  one member per bucket: "<slots before it> <slots up to its end> <time of its first slot>". The
--            numbers are cumulative, so the difference between two members is the number of slots between
--            them. The score is the last microsecond of the bucket. All its slots are treated as taken then:
--            they leave a window up to one bucket width late, never early.
--
-- KEYS[1]     meta        hash        "clock" -> time of the latest admission. "token" identifies the store;
--                                     nothing is decided before "opens" (quarantine.lua). "seen <replica>"
--                                     -> time of that replica's latest admission
-- KEYS[2]     in flight   hash        id -> "<time>[g]:<posts>:<time of the last>:<its name> <delivery>":
--                                     admitted and not yet settled. "g": charged to a group, too. begin.lua
--                                     updates the posts. Up to v0.1.0 it is "<time>[g] <delivery>" before the
--                                     first post.
-- KEYS[3]     sent        sorted set  id -> time when it was sent (sent.lua)
-- KEYS[4]     categories  sorted set  category, or "<category> <source>" -> time of its latest admission.
--                                     Nothing is decided from it, and a key of another type is left alone.
-- KEYS[5...]  scopes      log and buckets of the global scope, then of every group and category of the batch
--                         and of every category with a reservation; a group comes before its categories
--
-- ARGV[1]  dedupe window: an id that was sent less than this ago is a duplicate
-- ARGV[2]  retention: how long an event in flight is known; at least the longest window of any limit in force
-- ARGV[3]  token of the store that the caller knows; empty: any store
-- ARGV[4]  name of the replica
-- ARGV[5]  R, the number of rules, then for each: T, the bucket width (0: the scope is written to its log),
--          and T times COUNT, WINDOW, and 1 if the tier is fixed, else 0
-- then     for each scope: the number of its rule, the number of the next wider scope (0: none), and how long
--          to keep its entries: at least the longest window in which any replica counts them
-- then     Q, and Q times the number of a category's scope and the slots of the global limit reserved for it
-- then     O, the number of origins, and O times an entry of KEYS[4] and the number of its category's scope
-- then     N, the number of events, and column by column: N ids, N deliveries, N numbers of origins, N costs;
--          the costs may be left out if all are 1
-- Times are whole microseconds since 1970 by the server's clock, durations are microseconds, and numbers
-- count from 1. A cost is at least 1. An id has no blanks and contains the category: two events with the same id
-- are one. A delivery names the message that carries the event, and stays the same when that message is
-- redelivered. A call takes up to about 8,000 keys, and as many events: more is an error, and writes nothing.
--
-- Reply: one of
--   { "decided", now, lag, verdicts, refusals, earlier }
--       now       the time of the decision
--       lag       now less TIME: more than a few microseconds only after the clock was set back
--       verdicts  for each event: 1 admitted, 0 a duplicate, -k refused, see the k-th refusal
--       refusals  for each the tier without room that frees last; of equal ones that of the narrowest scope:
--                 { scope, tier, slots taken there, wait, slots kept for others, lower bound }
--                 wait: microseconds until an event of this cost fits; -1: it never does, also if it costs
--                 more than 1000 in a log. lower bound: 1 if the wait may be longer, else 0
--       earlier   number and admission time of each event that was admitted again without a charge, in turn
--   { "closed", now, wait }   nothing is decided for `wait` microseconds: replicas are putting back what the
--                             store forgot
--   { "unknown store", now }  the store has another token: put back what this replica remembers, ask again
--
-- Guarantees
--   All or nothing  An event is charged to all of its scopes or to none. A refused event leaves nothing.
--   Never too many  No window holds more than COUNT. After the clock was set back by up to a day, `now`
--                   stands still until TIME has caught up. After a longer step back, what lies ahead counts
--                   in buckets, and in a log when TIME gets there.
--   Idempotent      An event in flight for the same delivery is admitted again without a charge: a
--                   redelivery, or a call repeated after its reply was lost. For another delivery it is a
--                   duplicate.
--   Read-only       A call that admits nothing writes nothing.
--   Atomic          Everything is read before anything is written: a key of another type fails the call and
--                   changes nothing.
--   Shared          Replicas with other rules may use the same keys. Each checks its own rule against all
--                   admissions: a window holds at most what the widest of their limits allows.
--   Self-expiring   Keys expire once their newest entry no longer matters.
--
-- By hand: one event of "errors" under 100/30m and 10/30m. Run again it is admitted again, without a charge,
-- because its id is the same.
--   redis-cli --eval lua/admit.lua \
--     '{notifier}:meta' '{notifier}:inflight' '{notifier}:sent' '{notifier}:categories' \
--     '{notifier}:global' '{notifier}:buckets:global' \
--     '{notifier}:category:errors' '{notifier}:buckets:category:errors' , \
--     86400000000 1800000000 '' by-hand \
--     2  1 0 100 1800000000 0  1 0 10 1800000000 0 \
--     1 0 1800000000  2 1 1800000000 \
--     0  1 errors 2 \
--     1 errors:e1 delivery-1 1
-- Eleven events of "storm", the last of which is refused (-1):
--   for i in 1 2 3 4 5 6 7 8 9 10 11; do redis-cli --eval lua/admit.lua \
--     '{notifier}:meta' '{notifier}:inflight' '{notifier}:sent' '{notifier}:categories' \
--     '{notifier}:global' '{notifier}:buckets:global' \
--     '{notifier}:category:storm' '{notifier}:buckets:category:storm' , \
--     86400000000 1800000000 '' by-hand \
--     2  1 0 100 1800000000 0  1 0 10 1800000000 0 \
--     1 0 1800000000  2 1 1800000000 \
--     0  1 storm 2 \
--     1 storm:e$i delivery-$i 1; done

local DAY = 86400000000
local MONTH = 2678400000000 -- the longest window that a limit can have
local MOST_MEMBERS = 1000 -- that one event may add to a log: more would block Redis for too long

local call, pcall = redis.call, redis.pcall

-- text writes a whole number. Lua's own conversion keeps 14 digits; a time has 16.
local function text(number)
  return string.format('%.0f', number)
end

-- STORE

local time = call('TIME')
local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
local meta = call('HMGET', KEYS[1], 'clock', 'token', 'opens')
local latest = tonumber(meta[1]) or 0
if latest > clock + DAY then
  latest = 0 -- the clock was far ahead when it was stored
end
local now = math.max(clock, latest + 1) -- later than every admission: no two have the same time
local stamp = text(now)

if ARGV[3] ~= '' then
  if meta[2] ~= ARGV[3] then
    return { 'unknown store', now }
  end
  local opens = tonumber(meta[3]) or 0
  if opens > clock then
    return { 'closed', now, opens - clock }
  end
end

-- INPUT

local dedupe, retention, replica = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[4]
local at = 4 -- the argument that was read last

local function argument()
  at = at + 1
  return ARGV[at]
end

local function number()
  return tonumber(argument())
end

local rules = {}
for r = 1, number() do
  local tiers = number()
  local rule = { width = number() }
  for t = 1, tiers do
    local count, window, fixed = number(), number(), number() == 1
    local before = fixed and now - now % window - 1 or now - window -- the last microsecond before the window
    rule[t] = {
      count = count,
      window = window,
      resets = fixed and before + 1 + window, -- when a fixed window ends
      before = text(before),
      after = '(' .. text(before),
      unused = false, -- reserved slots that are not used; false: not known
    }
  end
  rules[r] = rule
end

local scopes, logs, buckets = {}, {}, {}
for n = 1, (#KEYS - 4) / 2 do
  local log, bucket = KEYS[3 + 2 * n], KEYS[4 + 2 * n]
  logs[n], buckets[n] = log, bucket
  scopes[n] = {
    number = n,
    log = log,
    buckets = bucket,
    rule = rules[number()],
    wider = scopes[number()] or false,
    keep = number(),
    reserved = 0, -- slots of the global limit
    used = false, -- slots in a tier, by tier, without those of this batch; false: nothing was read yet
    entries = 0, -- of the log
    newest = false, -- bucket: its member
    ends = 0, -- the newest bucket's last microsecond
    before = 0, -- slots before the newest bucket
    total = 0, -- slots up to its end
    began = false, -- time of its first slot
    added = 0, -- slots taken by this batch
    members = false, -- of the log, to be added
    refusals = false, -- by cost, of a category's events
    decided = 0, -- global slots that the batch had taken when these were found
  }
end
local global = scopes[1]

local reservations, reserved = {}, 0
for q = 1, number() do
  local s = scopes[number()]
  s.reserved = number()
  reservations[q] = s
  reserved = reserved + s.reserved
end

local origins = {}
for o = 1, number() do
  origins[o] = { entry = argument(), category = scopes[number()], touched = false }
end

local events = number()
local ids, deliveries, origin_of, costs = at, at + events, at + 2 * events, at + 3 * events

-- One command for all of a batch. If the key does not exist, EXISTS is cheaper than looking for many ids.
local function find(command, key)
  if events == 0 or events > 8 and call('EXISTS', key) == 0 then
    return {}
  end
  return call(command, key, unpack(ARGV, ids + 1, ids + events))
end
local in_flight, sent = find('HMGET', KEYS[2]), find('ZMSCORE', KEYS[3])
local any_log, any_bucket = call('EXISTS', unpack(logs)) > 0, call('EXISTS', unpack(buckets)) > 0

-- COUNT. Time stands still in a script, so each tier is counted once. What the batch adds is in `added`.

local function look(s)
  s.used = {}
  if any_log then
    s.entries = call('ZCARD', s.log)
  end
  local last = any_bucket and call('ZREVRANGE', s.buckets, '0', '0', 'WITHSCORES') or {}
  if last[1] then
    local before, total, began = string.match(last[1], '^(%d+) (%d+) (%d+)$')
    if not total then
      error(s.buckets .. ' has a member that is not a bucket: ' .. last[1])
    end
    s.newest, s.ends = last[1], tonumber(last[2])
    s.before, s.total, s.began = tonumber(before), tonumber(total), began
  end
end

-- used(s, tier) is how many slots of a scope count in a tier. The tier may be that of another scope.
local function used(s, tier)
  if not s.used then
    look(s)
  end
  local slots = s.used[tier]
  if not slots then
    slots = s.entries > 0 and call('ZCOUNT', s.log, tier.after, stamp) or 0
    if s.total > 0 then
      local first = call('ZRANGEBYSCORE', s.buckets, tier.after, '+inf', 'LIMIT', '0', '1')[1]
      slots = slots + (first and s.total - tonumber(string.match(first, '^%d+')) or 0)
    end
    s.used[tier] = slots
  end
  return slots + s.added
end

-- reserves(tier, category) is whether slots of a global tier are reserved for other categories.
local function reserves(tier, category)
  return reserved > category.reserved and reserved < tier.count
end

-- kept(tier, category) is how many of them are not used, and so kept for those categories.
local function kept(tier, category)
  if not reserves(tier, category) then
    return 0
  end
  if not tier.unused then
    tier.unused = 0
    for _, s in ipairs(reservations) do
      tier.unused = tier.unused + math.max(0, s.reserved - used(s, tier))
    end
  end
  if category.reserved == 0 then
    return tier.unused
  end
  return tier.unused - math.max(0, category.reserved - used(category, tier))
end

-- bucket_end(s) is the end of the bucket that takes the slots of this batch. A bucket that has not ended is
-- used again; if another replica made it wider, it is cut at this rule's width.
local function bucket_end(s)
  local width = s.rule.width
  local ends = now - now % width + width - 1
  if s.ends < now then
    return ends
  end
  if tonumber(s.began) > now then
    return s.ends -- from before the clock was set back by more than a day: others may precede it
  end
  return math.min(ends, s.ends)
end

-- oldest(key, tier, newest) is the time of the oldest entry that counts in a tier.
local function oldest(key, tier, newest)
  return call('ZRANGEBYSCORE', key, tier.after, newest, 'WITHSCORES', 'LIMIT', '0', '1')[2]
end

-- frees(s, tier, leave) is when `leave` slots will have left a tier, and whether that is a lower bound.
local function frees(s, tier, leave)
  if tier.resets then
    return tier.resets, false
  end
  local bucket = s.total > 0 and oldest(s.buckets, tier, '+inf')
  if bucket then
    return math.min(tonumber(bucket), tonumber(oldest(s.log, tier, stamp) or bucket)) + tier.window, true
  end
  if leave > s.used[tier] then
    -- Some of them were taken by this batch.
    if s.rule.width > 0 then
      return bucket_end(s) + tier.window, true
    end
    return now + tier.window, false
  end
  local expired = s.entries > s.used[tier] and call('ZCOUNT', s.log, '-inf', tier.before) or 0
  local rank = expired + leave - 1
  return tonumber(call('ZRANGE', s.log, rank, rank, 'WITHSCORES')[2]) + tier.window, false
end

-- DECIDE

local verdicts, refusals, earlier = {}, {}, {}
local admitted = {} -- id -> delivery, of this batch

-- read(record) is when an event in flight was admitted, when it was admitted or last posted, and its
-- delivery; or nothing.
local function read(record)
  local since, begun, delivery = string.match(record, '^(%d+)g?:%d+:(%d+):[^ ]* (.*)$')
  if not since then
    since, delivery = string.match(record, '^(%d+)g? (.*)$')
  end
  since = tonumber(since)
  return since, since and math.max(since, tonumber(begun) or 0), delivery
end

-- seen_before(i, id) is the verdict on an event that is in flight or was sent, else nil.
local function seen_before(i, id)
  local since, last, delivery = read(in_flight[i] or '')
  if admitted[id] then
    since, last, delivery = now, now, admitted[id]
  end
  if since and last > now - retention then
    if delivery ~= ARGV[deliveries + i] then
      return 0
    end
    earlier[#earlier + 1], earlier[#earlier + 2] = i, since
    return 1
  end
  if sent[i] and tonumber(sent[i]) > now - dedupe then
    return 0
  end
end

-- refusal(category, cost) is a row of the reply for the tier without room that frees last; nil: it fits.
local function refusal(category, cost)
  local row, last = nil, -1
  local s = category
  while s do
    for t, tier in ipairs(s.rule) do
      local others = s == global and kept(tier, category) or 0
      local room = tier.count - others - cost
      if s.rule.width == 0 and cost > MOST_MEMBERS then
        room = -1
      end
      local slots = used(s, tier)
      if slots > room then
        local free_at, lower_bound = math.huge, false
        if room >= 0 then
          free_at, lower_bound = frees(s, tier, slots - room)
        end
        lower_bound = lower_bound or s == global and reserves(tier, category)
        if free_at > last then
          local wait = free_at < math.huge and free_at - clock or -1
          row, last = { s.number, t, slots, wait, others, lower_bound and 1 or 0 }, free_at
        end
      end
    end
    s = s.wider
  end
  return row
end

-- charge(category, id, cost) takes slots in all scopes. They are written at the end.
local function charge(category, id, cost)
  local name = id .. ' ' .. stamp
  local s = category
  while s do
    s.added = s.added + cost
    if s.rule.width == 0 then
      local members = s.members or {}
      s.members = members
      members[#members + 1], members[#members + 2] = stamp, name
      for slot = 2, cost do
        members[#members + 1], members[#members + 2] = stamp, name .. ' ' .. slot
      end
    end
    s = s.wider
  end
  if category.reserved > 0 then
    for _, tier in ipairs(global.rule) do
      tier.unused = false
    end
  end
end

local records, index = {}, {} -- what HSET, and ZADD to the categories, are given
for i = 1, events do
  local id = ARGV[ids + i]
  local verdict = (admitted[id] or in_flight[i] or sent[i]) and seen_before(i, id)
  if not verdict then
    local origin = origins[tonumber(ARGV[origin_of + i])]
    local category, cost = origin.category, ARGV[costs + i] or '1'
    -- In a storm many events are refused alike. A refusal holds until the batch takes another slot.
    if not category.refusals or category.decided ~= global.added then
      category.refusals, category.decided = {}, global.added
    end
    verdict = category.refusals[cost]
    if not verdict then
      local row = refusal(category, tonumber(cost))
      if row then
        refusals[#refusals + 1] = row
        verdict = -#refusals
        category.refusals[cost] = verdict
      else
        verdict = 1
        charge(category, id, tonumber(cost))
        admitted[id] = ARGV[deliveries + i]
        records[#records + 1] = id
        local grouped = category.wider == global and '' or 'g'
        records[#records + 1] = stamp .. grouped .. ':0:0: ' .. admitted[id]
        if not origin.touched then
          origin.touched = true
          index[#index + 1], index[#index + 2] = stamp, origin.entry
        end
      end
    end
  end
  verdicts[i] = verdict
end

local reply = { 'decided', now, now - clock, verdicts, refusals, earlier }
if #records == 0 then
  return reply
end

-- WRITE. If Redis is out of memory or read-only, the first command fails the call; Redis checks neither again
-- in the same script. All keys that are written were read, and have their types.

-- in_chunks passes values to a command a thousand at a time: Lua cannot pass more than some 8,000.
local function in_chunks(how, command, key, values)
  for from = 1, #values, 1000 do
    how(command, key, unpack(values, from, math.min(from + 999, #values)))
  end
end

-- expire lets a key expire when its newest entry is no longer kept, and never earlier than was set before.
local function expire(key, newest, keep)
  local when = text(math.floor((newest + keep) / 1000) + 1)
  if call('PEXPIREAT', key, when, 'GT') == 0 then
    call('PEXPIREAT', key, when, 'NX')
  end
end

local function write_log(s)
  in_chunks(call, 'ZADD', s.log, s.members)
  expire(s.log, now, s.keep)
  -- Remove what is no longer kept; a long backlog over several calls.
  local stale = s.entries > 0 and call('ZCOUNT', s.log, '-inf', text(now - s.keep)) or 0
  if stale > 0 then
    call('ZREMRANGEBYRANK', s.log, '0', text(math.min(stale, 1000 + 2 * s.added) - 1))
  end
end

local function write_buckets(s)
  local goes_on = s.ends >= now
  local ends, before, began = bucket_end(s), s.total, stamp
  if goes_on then
    before, began = s.before, s.began
  end
  call('ZADD', s.buckets, text(ends), text(before) .. ' ' .. text(s.total + s.added) .. ' ' .. began)
  if goes_on then
    call('ZREM', s.buckets, s.newest) -- last: Redis deletes an empty key, and its expiry with it
  end
  expire(s.buckets, ends, s.keep)
  call('ZREMRANGEBYSCORE', s.buckets, '-inf', text(now - s.keep))
end

call('HSET', KEYS[1], 'clock', stamp, 'seen ' .. replica, stamp)
call('PEXPIRE', KEYS[1], text((MONTH + DAY) / 1000))
for _, s in ipairs(scopes) do
  if s.added > 0 and s.rule.width == 0 then
    write_log(s)
  elseif s.added > 0 then
    write_buckets(s)
  end
end
in_chunks(call, 'HSET', KEYS[2], records)
expire(KEYS[2], now, retention)

-- If a message was purged from its stream, nobody settles its event. So look at a few records, and delete
-- those that no window has. v0.1.0's users may not run HRANDFIELD: hence pcall.
local some = pcall('HRANDFIELD', KEYS[2], '3', 'WITHVALUES')
for i = 1, #some, 2 do
  local _, last = read(some[i + 1])
  if last and last < now - MONTH then
    call('HDEL', KEYS[2], some[i])
  end
end

-- The index of categories. pcall: whatever is wrong with it, the events are charged.
local indexed = pcall('ZREMRANGEBYSCORE', KEYS[4], '-inf', text(now - dedupe - retention))
if type(indexed) == 'number' then
  in_chunks(pcall, 'ZADD', KEYS[4], index)
  pcall('ZREMRANGEBYRANK', KEYS[4], '0', '-100001')
  pcall('PEXPIREAT', KEYS[4], text(math.floor((now + dedupe + retention) / 1000) + 1))
end
return reply
