-- admit.lua decides which events of a batch may be posted, and charges them. Nothing else decides about
-- limits.
--
-- An event belongs to its category, to its group if the group has a limit, and to the global scope. It is
-- charged to all of them or to none. A scope's rule has tiers (COUNT, WINDOW). An event of cost c fits if in
-- every tier of every scope
--     slots that count in (now - WINDOW, now]  +  slots kept for others  +  c  <=  COUNT
-- A fixed tier counts from the last multiple of its WINDOW since 1970 instead. Slots are kept in the global
-- scope only, in tiers with a COUNT above the sum of all reservations: slots that other categories have
-- reserved and do not use.
--
-- A scope has two keys. A worker writes the one that its own rule selects, and counts both:
--   log      one member per slot: "errors:e1 1795149541123457", and "errors:e1 1795149541123457 2" for the
--            second slot of the same event. The member names the admission. Its score is the time from which
--            the slot counts: the admission at first. Then begin.lua moves it to the beginning of each post,
--            and sent.lua or answered.lua to Slack's response.
--   buckets  one member per bucket, scored by its last microsecond: "<slots before it> <slots up to its end>
--            <time of its first slot>". "0 3 <time>" and "3 8 <time>" are two buckets of 3 and 5 slots. All
--            slots leave a window with the end of their bucket: up to one width late, never early. Buckets
--            cannot move a slot: it counts from its admission.
--
-- KEYS[1]     meta        hash        "clock" -> the latest score in any log; "token" identifies the store;
--                                     nothing is decided before "opens" (quarantine.lua);
--                                     "seen <worker>" -> time of that worker's latest admission
-- KEYS[2]     in flight   hash        id -> the record of an event that was admitted and is not settled, such
--                                     as "1795149541123457g:1:1795149542000000:p7 message-3": time of the
--                                     admission; `g` if a group was charged as well; number of posts that
--                                     have begun; time and name of the last one, without the name if every
--                                     post certainly failed; the stream message
-- KEYS[3]     sent        sorted set  id -> time when it was sent (sent.lua)
-- KEYS[4]     categories  sorted set  category, or "<category> <source>" -> time of its latest admission. No
--                                     decision depends on it; a key of another type is left untouched.
-- KEYS[5...]  scopes      log and buckets of the global scope, then of every group and category of the batch
--                         and of every category with a reservation; a group comes before its categories
--
-- ARGV. Entries at the left edge begin a line of the example below; indented ones continue it.
--   dedupe window    an id that was sent less than this ago is a duplicate
--     longest        the longest window of any limit, or longer
--     token          of the store that the caller expects; empty accepts any store and skips the quarantine
--     worker         the caller's name
--     dry run        1: write nothing; else 0. To learn only whether the limits have room, pass one event
--                    with an empty id.
--   R                rules. For each: T, the bucket width (0 writes logs), T times COUNT, WINDOW, and 1 if
--                    the tier is fixed, else 0
--   each scope       numbers of its rule and of its parent, the next wider scope (0 for the global one); how
--                    long to keep its entries
--   Q                reservations. For each: the number of a category's scope, slots of the global limit
--     O              origins. For each: an entry of KEYS[4], the number of its category's scope
--   N                events: N ids, N stream messages, N numbers of origins, N costs (absent if all are 1)
-- Times are whole microseconds since 1970 by the server's clock, durations are microseconds, and numbers
-- count from 1.
--
-- Reply: one of
--   { "decided", now, lag, verdicts, refusals, readmitted, redecided }
--       now       the time of the decision
--       lag       now less TIME: more than a few microseconds only after the clock was set back
--       verdicts  for each event: 1 admitted, 0 a duplicate, -k refused, see the k-th refusal
--       refusals  for each, the tier that is last to have room; on a tie, the first of the narrowest scope:
--                   number of the scope, number of the tier
--                   slots that count there
--                   microseconds until an event of this cost fits, if nothing is admitted or posted
--                   meanwhile. -1 means never: the cost is above COUNT less the slots reserved for others, or
--                   above 1,000 in a log.
--                   slots kept for others
--                   1 if the wait is a lower bound, else 0
--       readmitted  number and admission time of each event that was admitted again free of charge
--       redecided   number, posts, and start and name of the last post of each event that was decided again.
--                   A name means that a message may be in Slack: the caller looks for it before it posts. The
--                   name is empty if no post had begun, or if they certainly failed.
--   { "closed", now, wait }   workers restore lost admissions; nothing is decided for `wait` microseconds
--   { "unknown store", now }  the store has another token: restore the admissions of this worker, then retry
--
-- The caller guarantees
--   Ids         have no blanks and contain the category. Two events with the same id are one event.
--   Messages    of the stream have a name, the same at each delivery, and a cost that does not change.
--   Scopes      each origin and each reservation names the scope of a category, the parent of no other.
--   Keeping     entries are kept for the longest window in which any worker counts them, or longer. Of a
--               category with a reservation, they are kept for the windows of the global limit too.
--   Widths      a bucket width divides each fixed WINDOW of its rule.
--   Memory      Redis evicts no key (maxmemory-policy noeviction): a lost log counts nothing.
-- Numbers that cannot be meant, such as a tier without a COUNT, a scope without a rule, one key twice, or
-- entries that are not kept for the scope's own windows, fail the call before anything is written. So do more
-- than 5,000 events or scopes.
--
-- Guarantees
--   Never too many  No window of a log ever holds more than COUNT slots. One slot is one message, and it
--                   counts from the beginning of its post, then from Slack's response. So no window of the
--                   server's time holds more messages than COUNT, provided that Slack's response is recorded
--                   while the slots count: within the shortest WINDOW, and before a fixed reset. Otherwise,
--                   for example after a crash, the message counts from the beginning of its post. If a post
--                   is repeated because its response was lost, both messages share a slot. Buckets bound
--                   admissions.
--   Set-back clock  If the clock was set back to less than a day before the latest score, `now` stays just
--                   after that until TIME has caught up: nothing is freed meanwhile. If it was set back
--                   further, logs ignore slots that lie ahead, so a scope may be filled once more; buckets
--                   count them, so a scope may stay full for the length of the step. If "opens" lies ahead
--                   again, quarantine.lua bounds how long the store is closed.
--   Idempotent      While the slots of an event in flight count in every tier of its scopes, the same stream
--                   message is admitted again, free of charge, and another one is a duplicate. Once
--                   they no longer count, the event is decided again. Its old slots leave the logs of its
--                   present scopes first, so a long window counts it once. If it is refused although a post
--                   of it may be in Slack, it keeps them. Old slots in buckets stay.
--   Posts           A second decision keeps an event's posts, whatever the verdict.
--   Read-only       A refused event leaves no trace, unless it was decided again. A dry run writes nothing,
--                   and runs on a store that is full or read-only. It counts the old slots of an event that
--                   would be decided again.
--   Atomic          Every key of a limit is read, and its type checked, before the first write. A user who
--                   may not run one of the commands, or a damaged bucket, can fail a call halfway.
--   Shared          Workers with other rules may use the same keys. Each checks its own rules against all
--                   slots in its own scopes. If only COUNT differs, a window holds at most the highest; if
--                   WINDOWs differ, it may hold more than either rule alone would allow.
--   Self-expiring   Keys expire once their newest entry no longer matters.
--
-- Why moving a slot is safe (record.lua):
--   1. It moves only while it counts in every tier. So its window that ends now already holds it, and gains
--      nothing.
--   2. It moves to the present. So a window that it joins ends later, and by then holds some of the slots of
--      the window that ends now, and later admissions, which were decided with the moved slot counted.
--   3. All slots of an admission move together, and "clock" follows. So they always have one score, and no
--      later decision ignores it.
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
local MOST_MEMBERS = 1000 -- of one event in a log: more would block Redis for too long
local MOST = 5000 -- events, and scopes: Lua can pass about 8,000 values to a command

local KEYS, ARGV, tonumber, format = KEYS, ARGV, tonumber, string.format -- globals are slower
local call, pcall = redis.call, redis.pcall

-- text writes a whole number. Lua's own conversion keeps 14 digits; a time has 16.
local function text(number)
  return format('%.0f', number)
end

-- expire lets a key expire once its newest entry is no longer needed. It never shortens an existing expiry.
local function expire(key, newest, keep)
  local when = text(math.floor((newest + keep) / 1000) + 1)
  if call('PEXPIREAT', key, when, 'GT') == 0 then
    call('PEXPIREAT', key, when, 'NX')
  end
end

-- in_chunks passes values to a command, a thousand at a time, and returns its last reply.
local function in_chunks(how, command, key, values)
  local last
  for from = 1, #values, 1000 do
    last = how(command, key, unpack(values, from, math.min(from + 999, #values)))
  end
  return last
end

-- CLOCK AND STORE

local time = call('TIME')
local server_time = time[1] * 1000000 + time[2]
local meta = call('HMGET', KEYS[1], 'clock', 'token', 'opens')
local latest = tonumber(meta[1]) or 0
if latest > server_time + DAY then
  latest = 0 -- the clock was far ahead when it was stored
end
local now = math.max(server_time, latest + 1) -- later than every admission: no two have the same time
local stamp = text(now)

if ARGV[3] ~= '' then
  if meta[2] ~= ARGV[3] then
    return { 'unknown store', now }
  end
  local opens = tonumber(meta[3]) or 0
  if opens > server_time then
    return { 'closed', now, opens - server_time }
  end
end

-- INPUT. A wrong caller fails here.

local at = 0 -- the argument that was read last

local function number(least, most)
  at = at + 1
  local argument = ARGV[at]
  local n = argument and argument + 0 -- half the cost of tonumber
  if not n or n < least or n % 1 ~= 0 or (most and n > most) then
    local range = most and least .. ' to ' .. most or 'from ' .. least
    error('argument ' .. at .. ' is ' .. tostring(argument) .. ', expected a whole number ' .. range)
  end
  return n
end

local dedupe, longest = number(1), number(1)
at = at + 2 -- token and worker
local worker = ARGV[at]
local dry_run = number(0, 1) == 1

local rules = {}
for r = 1, number(1) do
  local tiers = number(1)
  local width = number(0)
  local rule = { width = width, most_cost = width == 0 and MOST_MEMBERS or math.huge, longest = 0 }
  for t = 1, tiers do
    local count, window, fixed = number(1), number(1), number(0, 1) == 1
    if window > longest then
      error('rule ' .. r .. ': a window is longer than the longest')
    end
    if window > rule.longest then
      rule.longest = window
    end
    local last_outside, resets = now - window, false
    if fixed then
      last_outside = now - now % window - 1
      resets = last_outside + 1 + window
      if rule.width > 0 and window % rule.width > 0 then
        error('rule ' .. r .. ': its bucket width does not divide its fixed window')
      end
    end
    rule[t] = {
      count = count,
      window = window,
      resets = resets, -- when a fixed window ends
      last_outside = last_outside, -- an entry with this score, or a lower one, counts no more
      inside = format('(%.0f', last_outside), -- the range of those that count begins here
    }
  end
  rules[r] = rule
end

local scopes, bucket_keys, distinct = {}, {}, {}
for n = 1, (#KEYS - 4) / 2 do
  local rule, parent, keep = rules[number(1)], scopes[number(0)] or false, number(1)
  local log, buckets = KEYS[3 + 2 * n], KEYS[4 + 2 * n]
  if not rule or (n > 1 and not parent) or distinct[log] or distinct[buckets] or log == buckets then
    error('scope ' .. n .. ' has no rule, no parent before it, or is there twice')
  end
  distinct[log], distinct[buckets] = true, true
  if keep < rule.longest then
    error('scope ' .. n .. ' does not keep its entries for its longest window')
  end
  bucket_keys[n] = buckets
  scopes[n] = {
    number = n,
    log = log,
    buckets = buckets,
    rule = rule,
    parent = parent,
    keep = keep,
    stored = false, -- contents of the keys; see read_scope
    batch = 0, -- slots taken by this batch
    members = false, -- of the log, to be added: scores and names
    refusals = false, -- by cost
    cached_at = -1, -- the value of `changes` when they were found
  }
end
local global = scopes[1]

-- Slots of the global scope that are reserved: by category's scope, and by tier how many are unused.
local reserves = { total = 0, of = {}, unused = {} }
for q = 1, number(0) do
  local s, slots = scopes[number(1)], number(1)
  if not s or reserves.of[s] then
    error('reservation ' .. q .. ' has no scope, or is there twice')
  end
  reserves.of[s] = slots
  reserves.total = reserves.total + slots
end

local origins = {} -- by their numbers as text, which saves a conversion for each event
for o = 1, number(0) do
  at = at + 1
  local entry = ARGV[at]
  local category = scopes[number(1)] or error('origin ' .. o .. ' has no scope')
  origins[text(o)] = { entry = entry, category = category, indexed = false }
end

local events = number(0)
if events > MOST or #scopes > MOST then
  error('more than ' .. MOST .. ' events or scopes')
end
local before_ids, before_stream_messages, before_costs = at, at + events, at + 3 * events
at = at + 2 * events
local event_origins, event_costs = {}, {}
for i = 1, events do
  at = at + 1
  event_origins[i] = origins[ARGV[at]] or error('event ' .. i .. ' has no origin')
end
for i = 1, events do
  event_costs[i] = #ARGV > before_costs and number(1) or 1
end

-- STORED. `now` stands still in a script, so each tier is counted once.

-- Logs. No score is later than `now`, unless the clock was set back by more than a day.

local function log_count(s, tier)
  return s.stored.entries > 0 and call('ZCOUNT', s.log, tier.inside, stamp) or 0
end

-- log_leaves returns the score of the slot with which `leave` slots, 1 or more, have left a tier.
local function log_leaves(s, tier, leave)
  local left = 0
  if s.stored.entries > s.stored.counted[tier] then
    left = call('ZCOUNT', s.log, '-inf', text(tier.last_outside))
  end
  local rank = text(left + leave - 1)
  return tonumber(call('ZRANGE', s.log, rank, rank, 'WITHSCORES')[2])
end

-- Buckets. Ends and numbers of slots rise together, so the slots of a tier are a difference of two numbers.

local any_bucket = call('EXISTS', unpack(bucket_keys)) > 0 -- most stores have no buckets
local NO_BUCKET = { ends = 0, slots_before = 0, total = 0 }

local function newest_bucket(s)
  local last = any_bucket and call('ZREVRANGE', s.buckets, '0', '0', 'WITHSCORES') or {}
  if not last[1] then
    return NO_BUCKET
  end
  local slots_before, total, began = string.match(last[1], '^(%d+) (%d+) (%d+)$')
  if not total then
    error(s.buckets .. ' has a member that is not a bucket: ' .. last[1])
  end
  return {
    member = last[1],
    ends = tonumber(last[2]), -- its last microsecond
    slots_before = tonumber(slots_before),
    total = tonumber(total), -- slots up to its end
    began = began, -- time of its first slot
  }
end

local function buckets_count(s, tier)
  local total = s.stored.bucket.total
  if total == 0 then
    return 0
  end
  local first = call('ZRANGEBYSCORE', s.buckets, tier.inside, '+inf', 'LIMIT', '0', '1')[1]
  return first and total - tonumber(string.match(first, '^%d+')) or 0
end

-- oldest returns the lowest score of a key that counts in a tier and is at most up_to, or nil.
local function oldest(key, tier, up_to)
  return tonumber(call('ZRANGEBYSCORE', key, tier.inside, up_to, 'WITHSCORES', 'LIMIT', '0', '1')[2])
end

-- bucket_end returns the end of the bucket that takes the slots of this batch: the newest, or a new one.
local function bucket_end(s)
  local newest, width = s.stored.bucket, s.rule.width
  local ends = now - now % width + width - 1
  if newest.ends < now then
    return ends
  end
  if tonumber(newest.began) > now then
    return newest.ends -- the clock was set back by more than a day, and older buckets may lie ahead too
  end
  return math.min(ends, newest.ends) -- a wider one of another worker is cut
end

-- Scopes.

local function read_scope(s)
  s.stored = { entries = call('ZCARD', s.log), bucket = newest_bucket(s), counted = {} }
end
for n = 1, #scopes do
  read_scope(scopes[n])
end

-- taken returns the slots of a scope that count in a tier, including slots of this batch. The tier may belong
-- to another scope.
local function taken(s, tier)
  local counted = s.stored.counted
  if not counted[tier] then
    counted[tier] = log_count(s, tier) + buckets_count(s, tier)
  end
  return counted[tier] + s.batch
end

-- DECIDING

-- kept_slots returns the slots that a global tier keeps for categories other than this one.
local function kept_slots(tier, category)
  if reserves.total == 0 or reserves.total >= tier.count then
    return 0
  end
  local unused = reserves.unused[tier]
  if not unused then
    unused = 0
    for s, slots in pairs(reserves.of) do
      unused = unused + math.max(0, slots - taken(s, tier))
    end
    reserves.unused[tier] = unused
  end
  local own = reserves.of[category]
  return own and unused - math.max(0, own - taken(category, tier)) or unused
end

-- has_room reports whether `slots` fit into a tier beside those that count there.
local function has_room(s, tier, slots)
  local room = tier.count - slots
  if s.stored.bucket.total == 0 and s.stored.entries + s.batch <= room then
    return true -- even with those that have left the window
  end
  return taken(s, tier) <= room
end

-- fits is the decision. It reports whether an event of this cost has room in every tier of its category, its
-- group and the global scope.
local function fits(category, cost)
  local s = category
  while s do
    for t = 1, #s.rule do
      local tier = s.rule[t]
      local kept = s == global and kept_slots(tier, category) or 0
      if not has_room(s, tier, kept + cost) or cost > s.rule.most_cost then
        return false
      end
    end
    s = s.parent
  end
  return true
end

-- EXPLAINING a refusal: by which tier, and for how long. Nothing in this section decides.

-- frees returns when `leave` slots will have left a tier, and whether that is a lower bound.
local function frees(s, tier, leave)
  local newest = s.stored.bucket
  if tier.resets then
    return tier.resets, newest.ends >= tier.resets -- another worker's bucket may end in the next window
  end
  local bucket = newest.total > 0 and oldest(s.buckets, tier, '+inf')
  if bucket then -- when the oldest entry leaves, at the earliest
    return math.min(bucket, oldest(s.log, tier, stamp) or bucket) + tier.window, true
  end
  if leave <= s.stored.counted[tier] then
    return log_leaves(s, tier, leave) + tier.window, false
  end
  if s.rule.width > 0 then -- slots of this batch have to leave too
    return bucket_end(s) + tier.window, true
  end
  return now + tier.window, false
end

-- refusal_by returns the refusal of one scope, a row of the reply: the tier that is last to have room. It
-- returns false if every tier has room.
local function refusal_by(s, cost, category)
  local row, lower_bound = false, false
  for t = 1, #s.rule do
    local tier = s.rule[t]
    local kept, reserved = 0, 0 -- for others, now and in the long run
    if s == global and reserves.total < tier.count then
      kept, reserved = kept_slots(tier, category), reserves.total - (reserves.of[category] or 0)
    end
    local too_many = cost > s.rule.most_cost
    if too_many or not has_room(s, tier, kept + cost) then
      local never = too_many or cost > tier.count - reserved
      local slots, free_at, or_later = taken(s, tier), math.huge, false
      if not never then
        free_at, or_later = frees(s, tier, slots - (tier.count - kept - cost))
      end
      lower_bound = lower_bound or or_later or (reserved > 0 and not never)
      if not row or free_at > row.free_at then
        local wait = never and -1 or free_at - server_time
        row = { s.number, t, slots, wait, kept, 0, free_at = free_at, verdict = false }
      end
    end
  end
  if lower_bound then
    row[6] = 1
  end
  return row
end

-- later returns the one of two refusals that ends last, as a lower bound if either of them is one.
local function later(row, wider)
  local last, first = row, wider
  if wider.free_at > row.free_at then
    last, first = wider, row
  end
  if first[6] > last[6] then
    return { last[1], last[2], last[3], last[4], last[5], 1, free_at = last.free_at, verdict = false }
  end
  return last
end

local changes = 0 -- of slots, by this batch

-- cached returns the refusal of an event of this cost that was found since the last change.
local function cached(s, cost)
  return s.cached_at == changes and s.refusals[cost]
end

-- explain returns the refusal of a scope and its parents, whichever is last to have room; false if none
-- refuses. In a storm many events are refused alike, so rows are kept until the batch takes another slot.
local function explain(s, cost, category)
  -- The global scope keeps fewer slots from a category with a reservation than from others. So outside its
  -- own scope such a category neither uses the rows of others nor leaves its own to them.
  local shared = s == category or not reserves.of[category]
  local row = shared and cached(s, cost)
  if row then
    return row
  end
  row = refusal_by(s, cost, category)
  local wider = s.parent and explain(s.parent, cost, category)
  row = row and wider and later(row, wider) or row or wider
  if row and shared then
    if s.cached_at ~= changes then
      s.refusals, s.cached_at = {}, changes
    end
    s.refusals[cost] = row
  end
  return row
end

-- THE BATCH

-- find looks up all ids with one command. If the key does not exist, EXISTS is cheaper than many ids.
local function find(command, key)
  if events == 0 or (events > 8 and call('EXISTS', key) == 0) then
    return {}
  end
  return call(command, key, unpack(ARGV, before_ids + 1, before_ids + events))
end
local in_flight, sent = find('HMGET', KEYS[2]), find('ZMSCORE', KEYS[3])

local verdicts, refusals, readmitted, redecided = {}, {}, {}, {}
local admitted = {} -- id -> stream message, of this batch
local records, index = {}, {} -- fields and values for KEYS[2], scores and members for KEYS[4]

-- parse_record returns the texts of a record: time of the admission, number of posts, time and name of the
-- last one, and the stream message. Without a record it returns nil.
local function parse_record(record)
  return string.match(record or '', '^(%d+)g?:(%d+):(%d+):([^ ]*) (.*)$')
end

-- still_counts reports whether the slots of an admission count in every tier of a category's scopes. If the
-- log does not have them and the scope has buckets, they are taken to be there: a bucket names no slots.
local function still_counts(category, id, since)
  local s = category
  while s do
    local from = s.stored.entries > 0 and call('ZSCORE', s.log, id .. ' ' .. since)
    if not from and s.stored.bucket.total == 0 then
      return false
    end
    from = tonumber(from or since)
    for _, tier in ipairs(s.rule) do
      if from <= tier.last_outside then
        return false
      end
    end
    s = s.parent
  end
  return true
end

-- seen_before returns the verdict on an event that is in flight or was sent, else nil.
local function seen_before(i, id, category)
  local stream_message, since = admitted[id], now
  if not stream_message then
    local admission, _, _, _, of = parse_record(in_flight[i])
    if admission and still_counts(category, id, admission) then
      stream_message, since = of, tonumber(admission)
    end
  end
  if stream_message then
    if stream_message ~= ARGV[before_stream_messages + i] then
      return 0
    end
    readmitted[#readmitted + 1], readmitted[#readmitted + 2] = i, since
    return 1
  end
  if sent[i] and tonumber(sent[i]) > now - dedupe then
    return 0
  end
end

-- charge takes slots in all scopes. They are written at the end.
local function charge(category, id, cost)
  local name = id .. ' ' .. stamp
  local s = category
  while s do
    s.batch = s.batch + cost
    if s.rule.width == 0 then
      local members = s.members or {}
      s.members = members
      members[#members + 1], members[#members + 2] = stamp, name
      for slot = 2, cost do
        members[#members + 1], members[#members + 2] = stamp, name .. ' ' .. slot
      end
    end
    s = s.parent
  end
  changes = changes + 1
  if reserves.of[category] then
    reserves.unused = {}
  end
end

-- decide returns the verdict on an event whose slots do not count: -k refuses it, 1 charges it. `posts` is
-- the part of its record about posts.
local function decide(i, id, origin, posts)
  local category, cost = origin.category, event_costs[i]
  local row = cached(category, cost)
  if row or not fits(category, cost) then
    row = row or explain(category, cost, category) or error('no tier refuses what does not fit')
    if not row.verdict then
      refusals[#refusals + 1] = row
      row.verdict = -#refusals
    end
    return row.verdict
  end
  charge(category, id, cost)
  admitted[id] = ARGV[before_stream_messages + i]
  local grouped = category.parent == global and '' or 'g'
  records[#records + 1], records[#records + 2] = id, stamp .. grouped .. ':' .. posts .. ' ' .. admitted[id]
  if not origin.indexed then
    origin.indexed = true
    index[#index + 1], index[#index + 2] = stamp, origin.entry
  end
  return 1
end

-- DECIDED AGAIN. Few events are: their slots have left a window before they were posted.

-- take_out removes an event's old slots from the logs that have them, and returns them. All slots of an
-- admission have the score of the first.
local function take_out(category, id, since)
  local removed = {}
  local s = category
  while s do
    local name = id .. ' ' .. since
    local score = call('ZSCORE', s.log, name)
    if score then
      local members, member, slot = {}, name, 1
      while call('ZREM', s.log, member) == 1 do
        members[#members + 1], members[#members + 2] = score, member
        slot = slot + 1
        member = name .. ' ' .. slot
      end
      removed[s] = members
      read_scope(s)
    end
    s = s.parent
  end
  changes, reserves.unused = changes + 1, {}
  return removed
end

-- put_back sets the expiry too, which a key loses when it becomes empty.
local function put_back(removed)
  for s, members in pairs(removed) do
    call('ZADD', s.log, unpack(members))
    expire(s.log, now, s.keep)
    read_scope(s)
  end
  changes, reserves.unused = changes + 1, {}
end

-- decide_again decides an event that has a record, as if its logs had no slots of it. A dry run leaves them.
local function decide_again(i, id, origin)
  local since, posts, begun, name = parse_record(in_flight[i])
  local n = #redecided
  redecided[n + 1], redecided[n + 2] = i, tonumber(posts)
  redecided[n + 3], redecided[n + 4] = tonumber(begun), name
  local removed = dry_run and {} or take_out(origin.category, id, since)
  local verdict = decide(i, id, origin, posts .. ':' .. begun .. ':' .. name)
  if verdict < 0 and name ~= '' then
    put_back(removed) -- a message may be in the channel
  elseif verdict < 0 and posts == '0' and not dry_run then
    call('HDEL', KEYS[2], id) -- nothing is left that the record could tell
  end
  return verdict
end

for i = 1, events do
  local id, origin = ARGV[before_ids + i], event_origins[i]
  local verdict
  if admitted[id] or in_flight[i] or sent[i] then
    verdict = seen_before(i, id, origin.category)
    if not verdict and parse_record(in_flight[i]) then
      verdict = decide_again(i, id, origin)
    end
  end
  verdicts[i] = verdict or decide(i, id, origin, '0:0:')
end

local reply = { 'decided', now, now - server_time, verdicts, refusals, readmitted, redecided }
if #records == 0 or dry_run then
  return reply
end

-- WRITE. Every key that is written was read: its type is right. If Redis is out of memory or read-only, the
-- first command fails the call, and Redis checks neither again in the same script. (ZREM, the first one if
-- events are decided again, needs no memory.)

local function write_log(s)
  in_chunks(call, 'ZADD', s.log, s.members)
  expire(s.log, now, s.keep)
  -- Trim entries past `keep`; a long backlog takes several calls.
  local stale = s.stored.entries > 0 and call('ZCOUNT', s.log, '-inf', text(now - s.keep)) or 0
  if stale > 0 then
    call('ZREMRANGEBYRANK', s.log, '0', text(math.min(stale, 1000 + 2 * s.batch) - 1))
  end
end

local function write_buckets(s)
  local newest = s.stored.bucket
  local goes_on = newest.ends >= now
  local ends, slots_before, began = bucket_end(s), newest.total, stamp
  if goes_on then
    slots_before, began = newest.slots_before, newest.began
  end
  local total = newest.total + s.batch
  call('ZADD', s.buckets, text(ends), text(slots_before) .. ' ' .. text(total) .. ' ' .. began)
  if goes_on then
    call('ZREM', s.buckets, newest.member) -- last: Redis deletes an empty key, and its expiry with it
  end
  expire(s.buckets, ends, s.keep)
  call('ZREMRANGEBYSCORE', s.buckets, '-inf', text(now - s.keep))
end

call('HSET', KEYS[1], 'clock', stamp, 'seen ' .. worker, stamp)
call('PEXPIRE', KEYS[1], text((MONTH + DAY) / 1000))
for _, s in ipairs(scopes) do
  if s.batch > 0 and s.rule.width == 0 then
    write_log(s)
  elseif s.batch > 0 then
    write_buckets(s)
  end
end
in_chunks(call, 'HSET', KEYS[2], records)
expire(KEYS[2], now, math.max(longest, dedupe)) -- posts are known for as long as ids

-- pcall from here on: these keys and fields only pile up, which must not fail a decision.
local indexed = in_chunks(pcall, 'ZADD', KEYS[4], index)
if type(indexed) == 'number' then
  pcall('PEXPIREAT', KEYS[4], text(math.floor((now + dedupe + longest) / 1000) + 1))
end

-- sweep looks at some fields of a hash, and removes those that nothing has touched for a month.
local function sweep(key, fields, touched)
  local some = pcall('HRANDFIELD', key, text(math.min(fields, 1000)), 'WITHVALUES')
  for f = 1, #some, 2 do
    local last = touched(some[f], some[f + 1])
    if last and last < now - MONTH then
      pcall('HDEL', key, some[f])
    end
  end
end

-- Every 16th call or so. The record of an event whose message was purged is never settled, so on average a
-- call looks at two records for each one that it writes, up to 1,000.
if now % 16 == 0 then
  pcall('ZREMRANGEBYSCORE', KEYS[4], '-inf', text(now - dedupe - longest))
  sweep(KEYS[2], 16 * #records, function(_, record)
    local since, _, begun = parse_record(record)
    return since and math.max(tonumber(since), tonumber(begun))
  end)
  sweep(KEYS[1], 16, function(field, value)
    return string.find(field, '^seen ') and tonumber(value)
  end)
end
return reply
