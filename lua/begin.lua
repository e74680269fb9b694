-- begin.lua permits one post to Slack, of an admitted event or of a message without an event. It records the
-- post before it is made. If the record of an event names a post and the event is not recorded as sent, the
-- message may be in Slack. If the post certainly failed, answered.lua removes its name from the record.
--
-- An event's slots count from its post: they move to the beginning of the post, and again when Slack's
-- response is recorded. If they no longer count, the event is not posted and has to be decided again. So no
-- window holds more messages than its limit.
--
-- KEYS[1]  in flight  hash        as in admit.lua; this script records the posts
-- KEYS[2]  pauses     sorted set  channel, or "*" for the workspace -> end of its pause
-- KEYS[3]  probes     hash        channel, or "*" -> "<began> <lease> <name>": the one post that tests after
--                                 a pause whether Slack accepts posts again; and a field of answered.lua
-- KEYS[4]  pace       sorted set  of one channel: name of a post -> time from which it counts for one window;
--                                 "<name> next" -> time at which the slot kept for this post becomes free
-- KEYS[5]  meta       hash        as in admit.lua
-- KEYS[6]  waiting    hash        worker -> "<since> <until> <name>": its post that has waited longest for
--                                 the channel's pace. Other posts leave it a slot until then.
-- KEYS[7..9]  logs    sorted set  of the event's category, group and global scope, as in admit.lua, whether
--                                 they hold its slots or not. Absent for a message without an event.
-- ARGV[1]  id, as in admit.lua. Empty for a message without an event.
-- ARGV[2]  stream message, as in admit.lua
-- ARGV[3]  name of the event's last post with a result that the caller knows or has looked up. Empty before
--          the first post.
-- ARGV[4]  name of this post: unique, without colons and blanks
-- ARGV[5]  lease: the longest time that the post and the record of its result can take
-- ARGV[6]  channel, as the settings name it
-- ARGV[7]  COUNT of the pace, the posts to one channel in each window. Zero means no pace.
-- ARGV[8]  window of the pace. Without a pace: how long a repeated call is recognized by its name.
-- ARGV[9]  1: if the pace is full, keep its next free slot for this post; 0: the post waits with the others
-- ARGV[10] the longest pause, also the longest window of a pace. Pauses that end later are ignored, and so
--          are slots of the pace more than twice as far ahead.
-- ARGV[11] how long an event's posts are known, counted from the end of the last one's lease: the dedupe
--          window or the longest window of any limit, whichever is longer
-- ARGV[12] token of the store that the caller expects, as in admit.lua. Empty accepts any store.
-- ARGV[13] name of the worker. If empty, the post leaves no slot to others, and others leave none to it.
-- ARGV[14] start of the post's wait
-- ARGV[15...]  only with an event: its cost; how long each of KEYS[7..9] keeps entries; for each tier of its
--          scopes the number of the log (1 to 3), WINDOW, and 1 if the tier is fixed, else 0
-- Times are whole microseconds since 1970 by the server's clock, durations are microseconds.
--
-- Reply: one of
--   { 'post', posts, '', time }           make the post. It is number `posts` of its event, 1 without an
--                                         event. The slots count from `time`.
--   { 'wait workspace', wait, '', time }  the workspace is paused, or another post probes it
--   { 'wait channel', wait, '', time }    the channel is paused, or another post probes it
--   { 'wait pace', wait, '', time }       the channel's pace is full; `wait` is at most one window
--   { 'wait event', wait, '', time }      another worker may be posting this event now
--   { 'unknown', posts, name, time }      `posts` have begun, and the caller does not know the result of the
--                                         last one, `name`: the message may be in Slack. If that is ARGV[4],
--                                         the lease of this post has ended before the call was repeated, and
--                                         another worker may know its name by now: post under another name.
--   { 'not in flight', 0, '', time }      the event is not in flight for this message, or its slots no
--                                         longer count: call admit.lua
--   { 'unknown store', 0, '', time }      the store has another token: call restore.lua, then this script
--                                         again
-- `time` is the present by the clock of admit.lua. After a "wait", call again in `wait` microseconds.
--
-- Guarantees
--   Bounded      Slots move only while they count in every tier; see move in record.lua. Buckets cannot move
--                them: there they count from the admission.
--   Order        The reply names the first obstacle: pause of the workspace, pause of the channel, record,
--                pace.
--   Probe        After a pause one post goes first. The others wait in steps of 200 ms until its result is
--                recorded or its lease has ended. A minute after the pause no post waits for a probe.
--   Rolling      A post counts in the pace from Slack's response. Before that is recorded, the post counts
--                from the permit, for one window or the lease, whichever is longer. So no window has more
--                than COUNT posts with a recorded response, no matter when between permit and response Slack
--                counts them.
--   In order     A full pace leaves a slot to the oldest post of each worker, until a second after the wait
--                of that post has ended. So a dead worker delays the others by a second.
--   Shared       Workers with different paces share the slots. The newest 2,000 slots of an hour are kept.
--   Repeatable   A call repeated with the same name, because its reply was lost, takes nothing twice. It
--                checks pauses, lease and slots again, and keeps its slot in the pace. Lease, slots, pace and
--                probe then count from the repeated call.
--   Fails whole  All keys are read before the first write, so a key of another type fails the call and
--                changes nothing.

local MINUTE = 60000000
local HOUR = 60 * MINUTE
local PROBE_POLL = 200000
local SECOND = 1000000

local now = server_time()
local meta = redis.call('HMGET', KEYS[5], 'token', 'clock')
local known, name, lease = ARGV[3], ARGV[4], tonumber(ARGV[5])
local channel, count, window = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local longest_pause = tonumber(ARGV[10])

local counts_from = decision_time(now, meta[2])

local function reply(status, number, last)
  return { status, number, last or '', counts_from }
end

if ARGV[12] ~= '' and meta[1] ~= ARGV[12] then
  return reply('unknown store', 0)
end

-- probing returns the name of the post that probes a scope now, or nil. It ignores a probe that began in the
-- future, before the clock was set back.
local function probing(scope)
  local began, lasts, by = string.match(redis.call('HGET', KEYS[3], scope) or '', '^(%d+) (%d+) (.*)$')
  if by and tonumber(began) <= now and now < tonumber(began) + math.min(tonumber(lasts), longest_pause) then
    return by
  end
end

local probes = {} -- scopes that this post will probe
for _, scope in ipairs({ '*', channel }) do
  local ends = tonumber(redis.call('ZSCORE', KEYS[2], scope) or 0)
  if ends + MINUTE > now and ends <= now + longest_pause then
    local by = probing(scope)
    if by ~= name and (ends > now or by) then
      local status = scope == '*' and 'wait workspace' or 'wait channel'
      return reply(status, ends > now and ends - now or PROBE_POLL)
    end
    probes[#probes + 1] = scope
  end
end

local slots = ARGV[1] ~= '' and read_slots(7, 15) or false
local record, repeated = false, false
if slots then
  record = parse_record(redis.call('HGET', KEYS[1], ARGV[1]))
  if not record or record.stream_message ~= ARGV[2] then
    return reply('not in flight', 0)
  end
  repeated = record.name == name
  -- A post that began in the future is from before the clock was set back: waiting could take much longer
  -- than a lease.
  local ends = record.begun + lease
  local leased = ends > now and record.begun <= now
  if record.name ~= '' and record.name ~= known and not (repeated and leased) then
    if leased then
      return reply('wait event', ends - now)
    end
    return reply('unknown', record.posts, record.name)
  end
  if not still_count(record, ARGV[1], slots, counts_from) then
    return reply('not in flight', 0)
  end
end

-- Count the older waiting posts, of each worker at most one. Entries that have missed their time are ignored
-- and removed. So are entries too far ahead, written before the clock was set back: no post waits longer
-- than a window.
local worker, since, late = ARGV[13], tonumber(ARGV[14]), math.min(SECOND, window)
local older, expired = 0, {} -- expired: workers with an entry to remove
local queued, own_place = false, false -- an older post of this worker waits; this one does
local waiting = count > 0 and worker ~= '' and redis.call('HGETALL', KEYS[6]) or {}
for i = 1, #waiting, 2 do
  local other, ends, by = string.match(waiting[i + 1], '^(%d+) (%d+) (.*)$')
  if not by or tonumber(ends) <= now or tonumber(ends) > now + window + 2 * late then
    expired[#expired + 1] = waiting[i]
  elseif by == name then
    own_place = true
  elseif tonumber(other) < since then
    older = older + 1
    queued = queued or waiting[i] == worker
  end
end

local kept = name .. ' next'
local own = redis.call('ZMSCORE', KEYS[4], name, kept)

-- frees returns when the pace has room for this post behind `others` waiting posts: when the slot leaves
-- that has COUNT - 1 newer ones, the others included. It returns one window from now if the others fill a
-- window, and 0 if there is room. The slot kept for this post does not count: if it is among the newer ones,
-- the next one decides.
local max_score = text(now + 2 * longest_pause)
local function frees(others)
  if others >= count then
    return now + window
  end
  local newer = count - 1 - others
  local slots = redis.call('ZREVRANGEBYSCORE', KEYS[4], max_score, '-inf', 'WITHSCORES', 'LIMIT', newer, 2)
  local slot = tonumber(slots[2])
  if slot and own[2] and tonumber(own[2]) >= slot then
    slot = tonumber(slots[4])
  end
  return slot and slot + window or 0
end

-- queue enters this post for its worker until shortly after the wait, unless an older post is entered.
local function queue(wait)
  if worker ~= '' and not queued then
    redis.call('HSET', KEYS[6], worker, ARGV[14] .. ' ' .. text(now + wait + late) .. ' ' .. name)
    redis.call('PEXPIRE', KEYS[6], text((longest_pause + MINUTE) / 1000))
  end
end

local function put(member, at)
  redis.call('ZADD', KEYS[4], text(at), member)
  redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', text(now - HOUR))
  redis.call('ZREMRANGEBYSCORE', KEYS[4], '(' .. max_score, '+inf')
  redis.call('ZREMRANGEBYRANK', KEYS[4], 0, -2001)
  redis.call('PEXPIRE', KEYS[4], text((HOUR + 2 * longest_pause) / 1000))
end

if not own[1] or tonumber(own[1]) + window <= now then -- else this call is repeated, and has its slot
  for _, other in ipairs(expired) do
    redis.call('HDEL', KEYS[6], other)
  end
  local free = count > 0 and frees(older) or 0
  if free > now then
    if ARGV[9] == '1' then
      put(kept, free)
    end
    -- Room can come before `free`. A slot in the future belongs to a post without a response yet, and leaves
    -- one window after the response. An older post may never take the slot that is left to it.
    local wait = math.min(free - now, window, math.max(frees(0) - now, 0) + late)
    queue(wait)
    return reply('wait pace', wait)
  end
  redis.call('ZREM', KEYS[4], kept)
  if own_place then
    redis.call('HDEL', KEYS[6], worker)
  end
end
put(name, now + math.max(0, lease - window))

if record then
  move(record, ARGV[1], slots, KEYS[5], counts_from)
  record.posts, record.begun, record.name = record.posts + (repeated and 0 or 1), now, name
  redis.call('HSET', KEYS[1], ARGV[1], write_record(record))
  expire(KEYS[1], now + lease, tonumber(ARGV[11]))
end
for _, scope in ipairs(probes) do
  redis.call('HSET', KEYS[3], scope, text(now) .. ' ' .. text(lease) .. ' ' .. name)
  redis.call('PEXPIRE', KEYS[3], text((longest_pause + MINUTE) / 1000))
end
return reply('post', record and record.posts or 1)
