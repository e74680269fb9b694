-- begin.lua permits one post: of an admitted event, or of a message without one. It records the post before it is made: a
-- worker that finds this record, and none of the event as sent, knows that the event may be in Slack.
--
-- KEYS[1]  in flight  hash        id -> "<time of admission>[g] <delivery>" as in admit.lua, and once posts of it have begun
--                                 "<time of admission>[g]:<posts begun>:<time of the last>:<name of the last> <delivery>"
-- KEYS[2]  pauses     sorted set  channel, or "*" for the workspace -> end of its pause in microseconds; see answered.lua
-- KEYS[3]  probes     hash        channel or "*" -> "<began> <longest> <name>": the post with which one replica tests after a
--                                 pause whether Slack accepts posts again; "?<channel>" -> the same, of the post from
--                                 whose answer the channel's ID will be known
-- KEYS[4]  channels   hash        channel as the settings name it -> its ID
-- KEYS[5]  pace       sorted set  of one channel: name of a post -> its time in microseconds, from which it counts for one
--                                 window; "<name> next" -> the time at which a slot is free that is kept for this post
-- KEYS[6]  register   sorted set  as in admit.lua; a record is known for as long after a post began as after the admission
-- ARGV[1]  id, as in admit.lua; empty: a message without an event
-- ARGV[2]  delivery, as in admit.lua
-- ARGV[3]  name of the last post of this event whose result the caller knows, or has looked up; empty before the first
-- ARGV[4]  name of this post: unique, without colons and spaces
-- ARGV[5]  how long a post may take, with the record of its result, in microseconds
-- ARGV[6]  channel, as the settings name it
-- ARGV[7]  channel, as KEYS[5] names it: its ID, or while that is unknown its name
-- ARGV[8]  1: ARGV[6] is a name, whose ID the first answer shows; 0: it is an ID itself
-- ARGV[9]  COUNT of the pace: so many posts to one channel in each window; 0: no pace
-- ARGV[10] the pace's window in microseconds
-- ARGV[11] 1: if the pace is full, the next free slot is kept for this post; 0: it waits with the others
-- ARGV[12] the longest pause that there is, in microseconds. What is stored of a pause, a probe or a slot and is further
--          ahead of TIME (a slot: than twice this) was not stored by answered.lua or begin.lua, and does not count
--
-- Reply: { status, number, text }
--   1, posts        post it; the post is recorded, and this many have begun for this event, including this one
--   2, posts        the same, as the one probe after a pause
--   0, microseconds wait this long with every event: Slack has asked for it, or another probe is in progress
--   6, microseconds wait this long with this channel, for the same reasons
--   6, microseconds, "damaged"  the same, because KEYS[5] is no sorted set
--   7, microseconds wait this long with this channel: the pace has no room, or the channel's ID is not known yet and
--                   another post is about to show it. No longer than one window: ask again then
--   3, microseconds wait this long with this event: another replica may be posting it now
--   4, posts, name  this many posts have begun, and the caller does not know the result of the last one, which has this
--                   name: the event may be in Slack
--   5, 0            the event is not in flight for this delivery: ask admit.lua
--   8, 0, channel   ask again with this channel as ARGV[7] and in KEYS[5]
--
-- Guarantees
--   Order       the workspace's pause, the channel's, the record, the pace: the first that does not permit is the answer.
--               Only with 1 and 2 anything is recorded, and a slot is taken.
--   Rolling     a slot counts from the answer (answered.lua moves it). Until there is one it counts for a window and no
--               less than ARGV[5]. So no window has more than COUNT posts in it, whenever Slack counts them.
--   Repeatable  a call that is repeated with the same name, because its reply was lost, takes nothing a second time.
--   Shared      replicas with different paces share the set. It expires a certain time after its newest entry, which shows
--               how long its entries are needed: 10 seconds, or the longest window that any replica has asked for.

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local known, name, longest = ARGV[3], ARGV[4], tonumber(ARGV[5])
local channel, key, count, window = ARGV[6], ARGV[7], tonumber(ARGV[9]), tonumber(ARGV[10])
if count == 0 then
  window = 10000000
end
local longest_pause = tonumber(ARGV[12])

local learning = false
if ARGV[8] == '1' then
  local id = redis.call('HGET', KEYS[4], channel)
  learning = not id
  if (id or channel) ~= key then
    return { 8, 0, id or channel }
  end
end

-- probing(field) is the name of the post that probes now, or nil. One that began in the future is from before the clock was
-- set back: nobody may have to wait for it for longer than a post can take.
local function probing(field)
  local began, lasts, by = string.match(redis.call('HGET', KEYS[3], field) or '', '^(%d+) (%d+) (.*)$')
  if by and tonumber(began) <= now and now < tonumber(began) + math.min(tonumber(lasts), longest_pause) then
    return by
  end
end

local probes = {} -- what this post will probe
for i, scope in ipairs({ '*', key }) do
  local ends = tonumber(redis.call('ZSCORE', KEYS[2], scope) or 0)
  if ends + 60000000 > now and ends <= now + longest_pause then
    local by = probing(scope)
    if by ~= name and (ends > now or by) then
      -- While another one probes, ask again soon: that may end at any moment.
      return { i == 1 and 0 or 6, ends > now and ends - now or 200000, '' }
    end
    probes[#probes + 1] = scope
  end
end

local admitted, posts, began, last, delivery, marks
if ARGV[1] ~= '' then
  marks = redis.call('ZMSCORE', KEYS[6], ' clock', ' kept')
  local record = redis.call('HGET', KEYS[1], ARGV[1])
  if record then
    admitted, posts, began, last, delivery = string.match(record, '^(%d+g?):(%d+):(%d+):([^ ]*) (.*)$')
    if not admitted then
      posts, began, last = '0', '0', ''
      admitted, delivery = string.match(record, '^(%d+g?) (.*)$')
    end
  end
  if delivery ~= ARGV[2] then
    return { 5, 0, '' }
  end
end
posts = tonumber(posts or 0)
local recorded = posts > 0 and last == name
if posts > 0 and not recorded and last ~= known then
  local ends = tonumber(began) + longest
  -- A clock that was set back must not make it wait for longer than a post can take.
  if ends > now and tonumber(began) <= now then
    return { 3, ends - now, '' }
  end
  return { 4, posts, last }
end

-- put(member, time, instead) stores a slot, and removes the one that was kept for it.
local function put(member, at, instead)
  local function newest()
    return tonumber(redis.call('ZREVRANGE', KEYS[5], 0, 0, 'WITHSCORES')[2])
  end
  local keep, before = math.max(10000, math.ceil(window / 1000)), newest()
  if before then
    keep = math.max(keep, redis.call('PEXPIRETIME', KEYS[5]) - 1 - math.floor(before / 1000))
  end
  redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', text(now - keep * 1000))
  redis.call('ZADD', KEYS[5], text(at), member)
  if instead then
    redis.call('ZREM', KEYS[5], instead)
  end
  redis.call('PEXPIREAT', KEYS[5], text(math.floor(newest() / 1000) + keep + 1))
end

-- frees(kept) is when the pace has room: when the entry leaves that stands COUNT - 1 from the newest. A slot that is kept for
-- this post already is not counted: if it is among the newer ones, the next entry decides.
local function frees(kept)
  local entries = redis.call('ZREVRANGE', KEYS[5], count - 1, count, 'WITHSCORES')
  local own = tonumber(redis.call('ZSCORE', KEYS[5], kept) or 0)
  local entry = tonumber(entries[2])
  if entry and own >= entry then
    entry = tonumber(entries[4])
  end
  return entry and entry + window or 0
end

local latest = redis.pcall('ZREVRANGE', KEYS[5], 0, 0, 'WITHSCORES')
if latest.err and not string.find(latest.err, 'WRONGTYPE', 1, true) then
  latest = redis.call('ZREVRANGE', KEYS[5], 0, 0, 'WITHSCORES') -- any other error fails the call
end
if latest.err then
  return { 6, 5000000, 'damaged' }
end
local furthest = now + 2 * longest_pause -- one is for the longest window of a pace
if (tonumber(latest[2]) or 0) > furthest then
  redis.call('ZREMRANGEBYSCORE', KEYS[5], '(' .. text(furthest), '+inf')
end
local slot = tonumber(redis.call('ZSCORE', KEYS[5], name) or 0)
if slot + window <= now then
  if learning and (probing('?' .. channel) or name) ~= name then
    return { 7, 200000, '' }
  end
  local kept = name .. ' next'
  local free = count > 0 and frees(kept) or 0
  if free > now then
    if ARGV[11] == '1' then
      put(kept, free)
    end
    -- An entry in the future is a post without an answer yet. Answered at once, it leaves in one window.
    return { 7, math.min(free - now, window), '' }
  end
  put(name, now + math.max(0, longest - window), kept)
end

if ARGV[1] == '' then
  posts = 1
elseif not recorded then
  posts = posts + 1
  redis.call('HSET', KEYS[1], ARGV[1], admitted .. ':' .. text(posts) .. ':' .. text(now) .. ':' .. name .. ' ' .. delivery)
  -- After a clock that stepped back the admission is the later one, or the post before: neither may be known for less long.
  redis.call('ZADD', KEYS[6], 'GT', text(math.max(now, tonumber(string.match(admitted, '^%d+')))), ARGV[1])
  local ends = math.floor((now + tonumber(marks[2] or 0) - tonumber(marks[1] or 0)) / 1000) + 1
  for _, key in ipairs({ KEYS[1], KEYS[6] }) do
    redis.call('PEXPIREAT', key, text(math.max(redis.call('PEXPIRETIME', key), ends)))
  end
end
local status = #probes > 0 and 2 or 1
if learning then
  probes[#probes + 1] = '?' .. channel
end
for _, scope in ipairs(probes) do
  if probing(scope) ~= name then
    redis.call('HSET', KEYS[3], scope, text(now) .. ' ' .. text(longest) .. ' ' .. name)
    redis.call('PEXPIREAT', KEYS[3], text(math.max(redis.call('PEXPIRETIME', KEYS[3]), math.ceil((now + longest) / 1000) + 60000)))
  end
end
return { status, posts, '' }
