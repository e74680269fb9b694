-- admit.lua decides which events of a batch may be posted. Nothing else decides about limits. A dry run
-- replies with the decision and writes nothing.
--
-- An event belongs to its category, to its group if the group has a limit, and to the global scope. It is
-- charged to all of them or to none. A scope's rule has tiers (COUNT, WINDOW). An event of cost c fits if in
-- every tier of every scope
--     slots taken in (now - WINDOW, now]  +  slots kept for others  +  c  <=  COUNT
-- A fixed tier counts from the last multiple of its WINDOW since 1970 instead. Slots are kept in the global
-- scope only, in tiers with a COUNT above the sum of all reservations: slots that other categories have
-- reserved but not used.
--
-- A scope has two keys. A replica writes the one that its own rule selects, and always counts both:
--   log      one member per slot, scored by the time of the admission: "errors:e1 1795149541123457", and
--            "errors:e1 1795149541123457 2" for the second slot of the same event
--   buckets  one member per bucket, scored by its last microsecond: "<slots before it> <slots up to its end>
--            <time of its first slot>". "0 3 <time>" and "3 8 <time>" are two buckets of 3 and 5 slots. All
--            slots leave a window with the end of their bucket: up to one width late, never early.
--
-- KEYS[1]     meta        hash        "clock" -> time of the latest admission; "token" identifies the store;
--                                     nothing is decided before "opens" (quarantine.lua);
--                                     "seen <replica>" -> time of that replica's latest admission
-- KEYS[2]     in flight   hash        id -> an event that was admitted and is not settled, for example
--                                     "1795149541123457g:1:1795149542000000:p7 message-3": when it was
--                                     admitted; `g` means that a group was charged as well; posts that have
--                                     begun (begin.lua), when the last one did, its name (empty if it
--                                     certainly failed: answered.lua); the delivery. Posts are known for as
--                                     long as what was sent: an event that is decided again keeps them.
--                                     v0.1.0 writes "1795149541123457g message-3" until the first post.
-- KEYS[3]     sent        sorted set  id -> time when it was sent (sent.lua)
-- KEYS[4]     categories  sorted set  category, or "<category> <source>" -> time of its latest admission. No
--                                     decision depends on it; a key of another type is left untouched.
-- KEYS[5...]  scopes      log and buckets of the global scope, then of every group and category of the batch
--                         and of every category with a reservation; a group comes before its categories
--
-- ARGV. What stands at the left edge begins a line of the example below; what is indented continues it.
--   dedupe window    an id that was sent less than this ago is a duplicate
--     retention      how long an event in flight needs no second decision: the longest window of any limit,
--                    or longer
--     token          of the store that the caller expects; empty accepts any store and skips the quarantine
--     replica        the caller's name
--     dry run        1: write nothing; else 0. To learn only if the limits have room, pass empty ids: no
--                    event in flight or sent has one.
--   R                rules. For each: T, the bucket width (0: it writes logs), T times COUNT, WINDOW, and 1
--                    if the tier is fixed, else 0
--   each scope       the number of its rule; that of the next wider scope (0: it is the global one); how long
--                    to keep its entries: the longest window in which any replica counts them, or longer
--   Q                reservations. For each: the number of a category's scope, slots of the global limit
--     O              origins. For each: an entry of KEYS[4], the number of its category's scope
--   N                events: N ids, N deliveries, N numbers of origins, N costs (none: all are 1)
-- Times are whole microseconds since 1970 by the server's clock, durations are microseconds, and numbers
-- count from 1. An id has no blanks and contains the category: two events with the same id are one. A
-- delivery names the message that carries the event, and stays the same when that message is redelivered. A
-- call accepts up to 5,000 events and 5,000 scopes; a larger one fails without writing.
--
-- Reply: one of
--   { "decided", now, lag, verdicts, refusals, earlier, posted }
--       now       the time of the decision
--       lag       now less TIME: more than a few microseconds only after the clock was set back
--       verdicts  for each event: 1 admitted, 0 a duplicate, -k refused, see the k-th refusal
--       refusals  for each, the tier that is last to have room; on a tie, the first of the narrowest scope:
--                   number of the scope, number of the tier
--                   slots taken there
--                   microseconds until an event of this cost fits. -1: never, because its cost is above
--                   COUNT less the slots kept, or above 1,000 in a log
--                   slots kept for others
--                   1 if it may have to wait longer than that, else 0
--       earlier   number and admission time of each event that was admitted again, alternating
--       posted    number, number of posts, start and name of the last post of each event that was decided
--                 again after posts of it had begun; the name is empty if that post certainly failed
--   { "closed", now, wait }   nothing is decided for `wait` microseconds: replicas put back what it forgot
--   { "unknown store", now }  the store has another token: put back what this replica remembers, ask again
--
-- Guarantees
--   Never too many  No window of the server's time holds more than COUNT. If the clock was set back to less
--                   than a day before the latest admission, `now` stays just after that until TIME has caught
--                   up: nothing is freed meanwhile. If it was set back further, logs do not count what lies
--                   ahead, so a scope may be filled once more; buckets do, so a scope may stay full for the
--                   length of the step. What expired while the clock was ahead is lost in any case.
--   Idempotent      An event still in flight is admitted again, free of charge, when the same delivery asks
--                   again: redelivered, or because a reply was lost. Another delivery is a duplicate.
--   Posts           A second decision keeps what is known of an event's posts, whatever it decides.
--   Read-only       A call that admits nothing writes nothing: a refused event leaves no trace. A dry run
--                   writes nothing at all. It needs no permission to write, and no memory.
--   Atomic          Every key's type is checked before the first write.
--   Shared          Replicas with other rules may use the same keys. Each checks its own rules against all
--                   slots in its own scopes. If only COUNT differs, a window holds at most the highest; if
--                   WINDOWs differ, it may hold more than either rule alone would allow.
--   Self-expiring   Keys expire once their newest entry no longer matters.
--
-- By hand, on Redis 7.0 or later: one event of "errors" under 100/30m and 10/30m. Running it again admits the
-- event again without a charge. With ids up to errors:e11 the last one is refused. With 1 after by-hand it is
-- a dry run.
--   redis-cli --eval lua/admit.lua \
--     '{notifier}:meta' '{notifier}:inflight' '{notifier}:sent' '{notifier}:categories' \
--     '{notifier}:global' '{notifier}:buckets:global' \
--     '{notifier}:category:errors' '{notifier}:buckets:category:errors' , \
--     86400000000 1800000000 '' by-hand 0 \
--     2  1 0 100 1800000000 0  1 0 10 1800000000 0 \
--     1 0 1800000000  2 1 1800000000 \
--     0  1 errors 2 \
--     1 errors:e1 delivery-1 1

local DAY = 86400000000
local MONTH = 2678400000000 -- the longest window that a limit can have
local MOST_MEMBERS = 1000 -- most members one event may add to a log: more would block Redis for too long
local MOST = 5000 -- events, and scopes: Lua can pass no more than some 8,000 values to a command

local KEYS, ARGV, tonumber = KEYS, ARGV, tonumber -- globals are slower
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
local dry_run = ARGV[5] == '1'
local at = 5 -- the argument that was read last

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
    local count = number()
    local window = number()
    local fixed = number() == 1
    local last_outside, resets = now - window, false
    if fixed then
      last_outside = now - now % window - 1
      resets = last_outside + 1 + window
    end
    local before = text(last_outside)
    rule[t] = {
      count = count,
      window = window,
      resets = resets, -- when a fixed window ends
      before = before, -- up to this score: what is not in the window
      after = '(' .. before, -- from this score: what is
      unused = false, -- reserved slots that are not used; false: not known
    }
  end
  rules[r] = rule
end

local scopes, buckets = {}, {}
for n = 1, (#KEYS - 4) / 2 do
  local rule = rules[number()]
  local wider = scopes[number()] or false
  local keep = number()
  if not rule or (n > 1 and not wider) then
    error('scope ' .. n .. ' has no rule, or no wider scope before it')
  end
  buckets[n] = KEYS[4 + 2 * n]
  scopes[n] = {
    number = n,
    log = KEYS[3 + 2 * n],
    buckets = buckets[n],
    rule = rule,
    wider = wider,
    keep = keep,
    reserved = 0, -- slots of the global limit
    counted = false, -- by tier: slots taken before this batch; false: nothing was read yet
    entries = 0, -- of the log
    newest = false, -- bucket: its member
    ends = 0, -- its last microsecond
    slots_before = 0,
    total = 0, -- slots up to its end
    began = false, -- time of its first slot
    added = 0, -- slots taken by this batch
    members = false, -- of the log, to be added
    refusals = false, -- by cost
    decided = -1, -- global slots that the batch had taken when these were found
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
  local entry = argument()
  local category = scopes[number()]
  origins[o] = { entry = entry, category = category, touched = false }
end

local events = number()
if events > MOST or #scopes > MOST then
  error('more than ' .. MOST .. ' events or scopes')
end
local ids, deliveries, origin_of, costs = at, at + events, at + 2 * events, at + 3 * events

-- One command for all of a batch. If the key does not exist, EXISTS is cheaper than looking for many ids.
local function find(command, key)
  if events == 0 or (events > 8 and call('EXISTS', key) == 0) then
    return {}
  end
  return call(command, key, unpack(ARGV, ids + 1, ids + events))
end
local in_flight, sent = find('HMGET', KEYS[2]), find('ZMSCORE', KEYS[3])
local any_bucket = call('EXISTS', unpack(buckets)) > 0 -- in most stores there is none

-- COUNT. Time stands still in a script, so each tier is counted once. What the batch adds is in `added`.

local function look(s)
  if s.counted then
    return
  end
  s.counted = {}
  s.entries = call('ZCARD', s.log)
  local last = any_bucket and call('ZREVRANGE', s.buckets, '0', '0', 'WITHSCORES') or {}
  if last[1] then
    local slots_before, total, began = string.match(last[1], '^(%d+) (%d+) (%d+)$')
    if not total then
      error(s.buckets .. ' has a member that is not a bucket: ' .. last[1])
    end
    s.newest, s.ends = last[1], tonumber(last[2])
    s.slots_before, s.total, s.began = tonumber(slots_before), tonumber(total), began
  end
end

-- used(s, tier) is how many slots of a scope count in a tier. The tier may be that of another scope.
local function used(s, tier)
  look(s)
  local slots = s.counted[tier]
  if not slots then
    slots = s.entries > 0 and call('ZCOUNT', s.log, tier.after, stamp) or 0
    if s.total > 0 then
      local first = call('ZRANGEBYSCORE', s.buckets, tier.after, '+inf', 'LIMIT', '0', '1')[1]
      slots = slots + (first and s.total - tonumber(string.match(first, '^%d+')) or 0)
    end
    s.counted[tier] = slots
  end
  return slots + s.added
end

-- exceeds(s, tier, room) is whether more than `room` slots count in a tier.
local function exceeds(s, tier, room)
  look(s)
  if s.total == 0 and s.entries + s.added <= room then
    return false -- not even with those that have left the window
  end
  return used(s, tier) > room
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

-- bucket_end(s) is the end of the bucket that takes the slots of this batch. Ends and numbers of slots rise
-- together, so no bucket but the newest may change.
local function bucket_end(s)
  local width = s.rule.width
  local ends = now - now % width + width - 1
  if s.ends < now then
    return ends -- a new one
  end
  if tonumber(s.began) > now then
    return s.ends -- from before the clock was set back by more than a day: others may precede it
  end
  return math.min(ends, s.ends) -- a wider one of another replica is cut
end

-- oldest(key, tier, newest) is the time of the oldest entry that counts in a tier.
local function oldest(key, tier, newest)
  return call('ZRANGEBYSCORE', key, tier.after, newest, 'WITHSCORES', 'LIMIT', '0', '1')[2]
end

-- frees(s, tier, leave) is when `leave` slots will have left a tier, and whether that is a lower bound.
local function frees(s, tier, leave)
  if tier.resets then
    return tier.resets, s.ends >= tier.resets -- a bucket of another replica may end in the next window
  end
  local bucket = s.total > 0 and oldest(s.buckets, tier, '+inf')
  if bucket then -- when the oldest entry leaves, at the earliest
    return math.min(tonumber(bucket), tonumber(oldest(s.log, tier, stamp) or bucket)) + tier.window, true
  end
  if leave > s.counted[tier] then -- some of them were taken by this batch
    if s.rule.width > 0 then
      return bucket_end(s) + tier.window, true
    end
    return now + tier.window, false
  end
  -- A slot of the log. Before those that count are those that have left.
  local left = s.entries > s.counted[tier] and call('ZCOUNT', s.log, '-inf', tier.before) or 0
  local rank = left + leave - 1
  return tonumber(call('ZRANGE', s.log, rank, rank, 'WITHSCORES')[2]) + tier.window, false
end

-- DECIDE

local verdicts, refusals, earlier, posted = {}, {}, {}, {}
local admitted = {} -- id -> delivery, of this batch
local records, index = {}, {} -- fields and values for KEYS[2], scores and members for KEYS[4]

-- parse_record(record) is when an event was admitted, when it was admitted or last posted, and its delivery;
-- nothing, if no release has written the record.
local function parse_record(record)
  local since, posted, delivery = string.match(record, '^(%d+)g?:%d+:(%d+):[^ ]* (.*)$')
  if not since then
    since, delivery = string.match(record, '^(%d+)g? (.*)$')
  end
  since = tonumber(since)
  return since, since and math.max(since, tonumber(posted) or 0), delivery
end

-- seen_before(i, id) is the verdict on an event that is in flight or was sent, else nil.
local function seen_before(i, id)
  local since, active_at, delivery = parse_record(in_flight[i] or '')
  if admitted[id] then
    since, active_at, delivery = now, now, admitted[id]
  end
  if since and active_at > now - retention then
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

-- refusal_by(s, cost, category) is the refusal of one scope, a row of the reply: the tier that is last to
-- have room. false: all have.
local function refusal_by(s, cost, category)
  local row, lower_bound = false, false
  for t, tier in ipairs(s.rule) do
    local others = s == global and kept(tier, category) or 0
    local room = tier.count - others - cost
    if s.rule.width == 0 and cost > MOST_MEMBERS then
      room = -1
    end
    if exceeds(s, tier, room) then
      local slots = used(s, tier)
      local free_at, or_later = math.huge, false
      if room >= 0 then
        free_at, or_later = frees(s, tier, slots - room)
      end
      lower_bound = lower_bound or or_later or (s == global and reserves(tier, category))
      if not row or free_at > row.free_at then
        local wait = free_at < math.huge and free_at - clock or -1
        row = { s.number, t, slots, wait, others, 0, free_at = free_at }
      end
    end
  end
  if lower_bound then
    row[6] = 1
  end
  return row
end

-- later(row, wider) is the one of two refusals that ends last; a lower bound if either of them is.
local function later(row, wider)
  local last, first = row, wider
  if wider.free_at > row.free_at then
    last, first = wider, row
  end
  if first[6] > last[6] then
    return { last[1], last[2], last[3], last[4], last[5], 1, free_at = last.free_at }
  end
  return last
end

-- refusal(s, cost, category) is that of a scope or a wider one, whichever is last to have room. In a storm
-- many events are refused alike, so it is found once for each cost, and kept until the batch takes another
-- slot: after that an event is still refused, but perhaps by another tier.
local function refusal(s, cost, category)
  -- The global scope keeps fewer slots from a category with a reservation than from others. So outside its
  -- own scope such a category neither uses what was found for others nor leaves its own for them.
  local shared = s == category or category.reserved == 0
  local row = shared and s.decided == global.added and s.refusals[cost]
  if row then
    return row
  end
  row = refusal_by(s, tonumber(cost), category)
  local wider = s.wider and refusal(s.wider, cost, category)
  row = row and wider and later(row, wider) or row or wider
  if row and shared then
    if s.decided ~= global.added then
      s.refusals, s.decided = {}, global.added
    end
    s.refusals[cost] = row
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

-- begun(i) returns the posts in the record of an event, for example "2:1795149542000000:p7", and adds them to
-- the reply. It returns nil if no post has begun.
local function begun(i)
  local record = in_flight[i]
  if not record then
    return
  end
  local posts, at, name = string.match(record, '^%d+g?:([1-9]%d*):(%d+):([^ ]*) ')
  if posts then
    local n = #posted
    posted[n + 1], posted[n + 2], posted[n + 3], posted[n + 4] = i, tonumber(posts), tonumber(at), name
    return posts .. ':' .. at .. ':' .. name
  end
end

-- decide(i, id) is the verdict on an event that is not known, or has outlived its admission: -k refuses it, 1
-- charges it.
local function decide(i, id)
  local posts = begun(i)
  local origin, cost = origins[tonumber(ARGV[origin_of + i])], ARGV[costs + i] or '1'
  local category = origin.category
  local row = refusal(category, cost, category)
  if row then
    if not row.verdict then
      refusals[#refusals + 1] = row
      row.verdict = -#refusals
    end
    return row.verdict
  end
  charge(category, id, tonumber(cost))
  admitted[id] = ARGV[deliveries + i]
  local grouped = category.wider == global and '' or 'g'
  records[#records + 1] = id
  records[#records + 1] = stamp .. grouped .. ':' .. (posts or '0:0:') .. ' ' .. admitted[id]
  if not origin.touched then
    origin.touched = true
    index[#index + 1], index[#index + 2] = stamp, origin.entry
  end
  return 1
end

for i = 1, events do
  local id = ARGV[ids + i]
  local known = (admitted[id] or in_flight[i] or sent[i]) and seen_before(i, id)
  verdicts[i] = known or decide(i, id)
end

local reply = { 'decided', now, now - clock, verdicts, refusals, earlier, posted }
if #records == 0 or dry_run then
  return reply
end

-- WRITE. Every key that is written was read: its type is right. If Redis is out of memory or read-only, the
-- first command fails the call; Redis checks neither again in the same script.

-- in_chunks passes values to a command, a thousand at a time, and returns its last reply.
local function in_chunks(how, command, key, values)
  local reply
  for from = 1, #values, 1000 do
    reply = how(command, key, unpack(values, from, math.min(from + 999, #values)))
  end
  return reply
end

-- expire lets a key expire once its newest entry is no longer needed; it never shortens an existing expiry.
local function expire(key, newest, keep)
  local when = text(math.floor((newest + keep) / 1000) + 1)
  if call('PEXPIREAT', key, when, 'GT') == 0 then
    call('PEXPIREAT', key, when, 'NX')
  end
end

local function write_log(s)
  in_chunks(call, 'ZADD', s.log, s.members)
  expire(s.log, now, s.keep)
  -- Trim entries past `keep`; a long backlog takes several calls.
  local stale = s.entries > 0 and call('ZCOUNT', s.log, '-inf', text(now - s.keep)) or 0
  if stale > 0 then
    call('ZREMRANGEBYRANK', s.log, '0', text(math.min(stale, 1000 + 2 * s.added) - 1))
  end
end

local function write_buckets(s)
  local goes_on = s.ends >= now
  local ends, slots_before, began = bucket_end(s), s.total, stamp
  if goes_on then
    slots_before, began = s.slots_before, s.began
  end
  local total = s.total + s.added
  call('ZADD', s.buckets, text(ends), text(slots_before) .. ' ' .. text(total) .. ' ' .. began)
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
expire(KEYS[2], now, math.max(retention, dedupe))

-- The index of categories. pcall: whatever is wrong with it must not fail the call.
local indexed = in_chunks(pcall, 'ZADD', KEYS[4], index)
if type(indexed) == 'number' then
  pcall('PEXPIREAT', KEYS[4], text(math.floor((now + dedupe + retention) / 1000) + 1))
end

-- Now and then, by the last digits of the time: trim the index, and look at some events in flight. One whose
-- message was purged is never settled: it goes when no window has it. pcall: v0.1.0's users may not run
-- HRANDFIELD.
if now % 16 == 0 then
  pcall('ZREMRANGEBYSCORE', KEYS[4], '-inf', text(now - dedupe - retention))
  local some = pcall('HRANDFIELD', KEYS[2], '16', 'WITHVALUES')
  for i = 1, #some, 2 do
    local _, active_at = parse_record(some[i + 1])
    if active_at and active_at < now - MONTH then
      call('HDEL', KEYS[2], some[i])
    end
  end
end
return reply
