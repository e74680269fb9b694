-- restore.lua puts back what one replica remembers of its admissions, into a store that may have forgotten some of them: a
-- replica that was made primary before it had received them, or a store that came back empty. Calling it again changes nothing:
-- what is there already is left as it is.
--
-- KEYS[1]    register   sorted set, as in admit.lua
-- KEYS[2]    in flight  hash
-- KEYS[3]    sent       sorted set
-- KEYS[4...] scopes     sorted sets, two keys each as in admit.lua; the first is global
-- ARGV[1]    dedupe window in microseconds, as in admit.lua
-- ARGV[2]    retention in microseconds, as in admit.lua
-- ARGV[3]    S, the number of scopes, and for each: how long its entries are needed in microseconds; G; G lengths of its buckets in
--            microseconds, G = 0: it is to be exact
-- then       N, the number of admissions; N ids; and for each of them
--            time of admission in microseconds (0: not known, it is known as sent only); cost; number of its category's scope;
--            number of its group's scope, 0: it was not charged to a group; posts that have begun; time of the last; its name;
--            delivery; time at which it was recorded as sent, 0: it was not
--
-- Reply: { now, slots, in flight, sent }: the time in microseconds, how many slots were put back into the global scope, and how many
-- ids as in flight and as sent.
--
-- An exact scope has a member for each slot, so those that are missing are added. A bucket does not show whose slots it has. But
-- an admission, with all that it is charged to, is stored at once with its id. So an admission is in the buckets if the store knows
-- its id, in flight or sent, and is not if the store does not know it. An admission that is older than ids are known is left out.
-- A scope keeps the form in which it is stored; admit.lua changes that where it has to.

local call = redis.call

local function text(number)
  return string.format('%.0f', number)
end

local at = 2 -- the argument that was read last
local function number()
  at = at + 1
  return tonumber(ARGV[at])
end

local time = call('TIME')
local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
local horizon = clock + math.max(86400000000, tonumber(ARGV[1]))
local month = 2678400000 -- milliseconds: no entry is kept for longer
local marks = call('ZMSCORE', KEYS[1], ' clock', ' kept', ' buckets')
local latest, kept, bucketed = tonumber(marks[1] or 0), tonumber(marks[2] or 0), tonumber(marks[3] or 0)
latest = latest <= horizon and latest or 0

local scopes = {}
for n = 1, number() do
  local s = { n = n, keeps = number(), grains = {}, slots = {}, key = KEYS[2 + 2 * n], buckets = KEYS[3 + 2 * n] }
  for g = 1, number() do
    s.grains[g] = number()
  end
  scopes[n] = s
end
local global = scopes[1]

local count = number()
local ids = at
at = at + count
local records = count > 0 and call('HMGET', KEYS[2], unpack(ARGV, ids + 1, ids + count)) or {}
local was_sent = count > 0 and call('ZMSCORE', KEYS[3], unpack(ARGV, ids + 1, ids + count)) or {}
local admissions, newest = {}, latest
for i = 1, count do
  local a = { id = ARGV[ids + i], since = number(), cost = number(), category = number(), group = number(),
              posts = number(), begun = number(), name = ARGV[at + 1], delivery = ARGV[at + 2] }
  at = at + 2
  a.sent = number()
  admissions[i] = a
  if a.since <= horizon and a.begun <= horizon and a.sent <= horizon then
    newest = math.max(newest, a.since)
  else
    a.unknown = true
  end
  local state, delivery = string.match(records[i] or '', '^([^ ]*) (.*)$')
  a.there, a.flag = string.match(state or '', '^(%d+)(g?)')
  a.there = tonumber(a.there)
  a.there = a.there and a.there <= horizon and a.there or nil
  a.there_sent = tonumber(was_sent[i] or nil)
  a.same = a.there and delivery == a.delivery
  a.there_posts, a.there_begun = string.match(state or '', '^%d+g?:(%d+):(%d+)')
  a.there_posts, a.there_begun = tonumber(a.there_posts or 0), tonumber(a.there_begun or 0)
end
local now = math.max(clock, newest)
local asked = math.floor(kept / 1000) >= math.floor(now / 1000) and kept <= latest + month * 1000 and kept - latest or 0
local retention = math.max(tonumber(ARGV[2]), asked)
for _, a in ipairs(admissions) do
  -- A record that is known no more is of an earlier admission, if not of this time: the same message was admitted anew. If it is of
  -- this time, it only lacks the posts that have begun since.
  a.same = a.same and (a.there == a.since or math.max(a.there, a.there_begun) > now - retention)
  a.counted = a.same or (a.there or 0) >= a.since or (a.there_sent or 0) >= a.since
end

-- open(s) looks up in which form a scope is stored, or is to be. A group's or category's key of another type is left alone.
local function open(s)
  for k, key in ipairs({ s.key, s.buckets }) do
    local all = redis.pcall('ZCARD', key)
    if type(all) ~= 'number' then
      if s == global or not string.find(all.err, 'WRONGTYPE', 1, true) then
        call('ZCARD', key)
      end
      s.form = 'damaged'
      return
    elseif all > 0 then
      s.form = k == 1 and 'exact' or 'buckets'
    end
  end
  local wanted = tonumber(call('ZSCORE', KEYS[1], ' exact ' .. s.key) or 0)
  s.form = s.form or #s.grains > 0 and wanted <= now and 'buckets' or 'exact'
end
for _, s in ipairs(scopes) do
  open(s)
end
if global.form == 'exact' then -- it shows which ids are in flight, as in admit.lua
  global.window, global.keeps = global.keeps, math.max(global.keeps, retention)
end

-- expire(s, key, last, newest) lets a scope expire as admit.lua does: so long after its newest entry as entries are needed.
local function expire(s, key, last, newest)
  local keeps = math.ceil(s.keeps / 1000)
  keeps = last and math.max(keeps, math.min(call('PEXPIRETIME', key) - 1 - math.floor(last / 1000), month)) or keeps
  call('PEXPIREAT', key, text(math.floor(newest / 1000) + keeps + 1))
  return keeps
end

local function in_chunks(command, key, option, values)
  local added = 0
  for from = 1, #values, 1000 do
    added = added + call(command, key, option, unpack(values, from, math.min(from + 999, #values)))
  end
  return added
end

-- add(s) adds the missing slots of an exact scope, and returns how many were missing.
local function add(s)
  local members, last = {}, tonumber(call('ZREVRANGE', s.key, 0, 0, 'WITHSCORES')[2])
  for _, a in ipairs(s.slots) do
    for slot = 1, a.cost do
      members[#members + 1] = text(a.since)
      members[#members + 1] = slot == 1 and a.id or a.id .. ' ' .. slot
    end
  end
  for i = 2, #members, 2 do -- the name of a slot that no window counts any more, and that has not been removed
    local there = tonumber(call('ZSCORE', s.key, members[i]) or nil)
    if there and there <= now - s.keeps then
      call('ZADD', s.key, 'XX', members[i - 1], members[i])
    end
  end
  local added = in_chunks('ZADD', s.key, 'NX', members)
  local keeps = expire(s, s.key, last, tonumber(call('ZREVRANGE', s.key, 0, 0, 'WITHSCORES')[2]))
  bucketed = #s.grains > 0 and math.max(bucketed, now + 2000 * keeps) or bucketed
  return added
end

-- pour(s) adds slots to the buckets in which they were, or to new ones, and moves those after them. It returns how many it added.
local function pour(s)
  local entries, list, base, last, added = call('ZRANGE', s.buckets, 0, -1, 'WITHSCORES'), {}, 0, nil, 0
  for i = 1, #entries, 2 do
    local before, total, began = string.match(entries[i], '^(%d+) (%d+) (%d+)$')
    if not total then
      return 0 -- damaged: admit.lua names it
    end
    last = tonumber(entries[i + 1])
    base = i == 1 and tonumber(before) or base
    list[#list + 1] = { name = entries[i], ends = last, slots = tonumber(total) - tonumber(before), began = tonumber(began) }
  end
  table.sort(s.slots, function(a, b) return a.since < b.since end)
  local b = 1 -- the first bucket that ends after the admission
  for _, a in ipairs(s.slots) do
    while list[b] and list[b].ends < a.since do
      b = b + 1
    end
    local ends = #s.grains > 0 and math.huge or a.since
    for _, grain in ipairs(s.grains) do
      ends = math.min(ends, a.since - a.since % grain + grain - 1)
    end
    if not list[b] or #s.grains > 0 and list[b].ends > ends then
      table.insert(list, b, { ends = ends, slots = 0, began = a.since })
    end
    list[b].slots, list[b].began = list[b].slots + a.cost, math.min(list[b].began, a.since)
    added = added + a.cost
  end
  local total, gone, members = base, {}, {}
  for _, bucket in ipairs(list) do
    local name = text(total) .. ' ' .. text(total + bucket.slots) .. ' ' .. text(bucket.began)
    total = total + bucket.slots
    if name ~= bucket.name then
      gone[#gone + 1] = bucket.name
      members[#members + 1] = text(bucket.ends)
      members[#members + 1] = name
    end
  end
  for _, name in ipairs(gone) do
    call('ZREM', s.buckets, name)
  end
  for i = 1, #members, 2 do
    call('ZADD', s.buckets, members[i], members[i + 1])
  end
  bucketed = math.max(bucketed, now + 2000 * expire(s, s.buckets, last, list[#list].ends))
  return added
end

-- charge(s, a) notes the slots of an admission in a scope, if they may be missing there.
local function charge(s, a)
  local counts = s.form == 'exact' and a.since > now - s.keeps
    or s.form == 'buckets' and not a.counted and a.since > now - math.min(tonumber(ARGV[2]), s.keeps)
  if counts then
    s.slots[#s.slots + 1] = a
  end
end
for _, a in ipairs(admissions) do
  if a.since > 0 and not a.unknown then
    charge(global, a)
    charge(scopes[a.category], a)
    if a.group > 0 then
      charge(scopes[a.group], a)
    end
  end
end
local slots = 0
for _, s in ipairs(scopes) do
  local added = #s.slots == 0 and 0 or s.form == 'exact' and add(s) or s.form == 'buckets' and pour(s) or 0
  slots = slots + (s == global and added or 0)
end
for _, s in ipairs(bucketed > now and scopes or {}) do -- as admit.lua does
  if #s.slots > 0 and #s.grains == 0 then
    call('ZADD', KEYS[1], 'GT', text(now + (s.window or s.keeps)), ' exact ' .. s.key)
  end
end

-- The states of the ids. One that was sent is no longer in flight; of the posts of one that is, the later state counts.
local flights, sents, last_sent = 0, 0, tonumber(call('ZREVRANGE', KEYS[3], '1', '1', 'WITHSCORES')[2])
local remembers = math.max(tonumber(ARGV[1]), retention)
for _, a in ipairs(admissions) do
  local touched = math.max(a.since, a.begun)
  if a.unknown then
    touched = 0
  elseif a.sent > now - remembers then
    sents = sents + call('ZADD', KEYS[3], 'GT', 'CH', text(a.sent), a.id) -- a later time counts too: the set is to live for longer
    if a.there and a.there <= a.sent then
      call('HDEL', KEYS[2], a.id)
      call('ZREM', KEYS[1], a.id)
    end
  elseif a.sent == 0 and touched > now - retention and (a.there_sent or 0) < a.since then
    local missing = not a.there or not a.same and a.there < a.since
    if missing or a.same and a.posts > a.there_posts then
      local state = missing and text(a.since) .. (a.group > 0 and 'g' or '') or text(a.there) .. a.flag
      state = a.posts > 0 and state .. ':' .. text(a.posts) .. ':' .. text(a.begun) .. ':' .. a.name or state
      flights = flights + call('HSET', KEYS[2], a.id, state .. ' ' .. a.delivery)
      if a.posts > 0 or global.form == 'buckets' then
        call('ZADD', KEYS[1], 'GT', text(touched), a.id)
      end
    end
  end
end
if sents > 0 then
  local keep = math.ceil(remembers / 1000)
  if last_sent then
    keep = math.max(keep, math.min(call('PEXPIRETIME', KEYS[3]) - 1 - math.floor(last_sent / 1000), month))
  end
  call('ZADD', KEYS[3], '+inf', string.rep('-', 65)) -- as in sent.lua
  call('PEXPIREAT', KEYS[3], text(math.floor(tonumber(call('ZREVRANGE', KEYS[3], '1', '1', 'WITHSCORES')[2]) / 1000) + keep + 1))
end
if count > 0 then
  if newest > 0 then
    call('ZADD', KEYS[1], text(newest), ' clock', text(newest + retention), ' kept')
  end
  if bucketed > now then
    call('ZADD', KEYS[1], 'GT', text(bucketed), ' buckets')
  end
  for key, ends in pairs({ [KEYS[1]] = math.max(now + retention, bucketed), [KEYS[2]] = now + retention }) do
    call('PEXPIREAT', key, text(math.max(call('PEXPIRETIME', key), math.floor(ends / 1000) + 1)))
  end
end
return { now, slots, flights, sents }
