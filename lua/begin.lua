-- begin.lua permits one post: of an admitted event, or of a message without one. It records the post before
-- it is made: a worker that finds this record, and none of the event as sent, knows that the event may be in
-- Slack. If the post certainly failed, answered.lua removes its name from the record.
--
-- KEYS[1]  in flight  hash        as in admit.lua; this script records the posts
-- KEYS[2]  pauses     sorted set  channel, or "*" for the workspace -> end of its pause; see answered.lua
-- KEYS[3]  probes     hash        channel, or "*" -> "<began> <longest> <name>": the one post that tests
--                                 after a pause whether Slack takes posts again; and a field of answered.lua
-- KEYS[4]  pace       sorted set  of one channel: name of a post -> time from which it counts for one window;
--                                 "<name> next" -> time at which a slot is free that is kept for this post
-- KEYS[5]  meta       hash        as in admit.lua
-- KEYS[6]  waiting    hash        worker -> "<since> <until> <name>": its post to the channel that has waited
--                                 longest for the pace; a slot is left to it until then
-- ARGV[1]  id, as in admit.lua; empty: a message without an event
-- ARGV[2]  delivery, as in admit.lua
-- ARGV[3]  name of the last post of this event whose result the caller knows, or has looked up; empty before
--          the first
-- ARGV[4]  name of this post: unique, without colons and blanks
-- ARGV[5]  how long a post may take, with the record of its result
-- ARGV[6]  channel, as the settings name it
-- ARGV[7]  COUNT of the pace: so many posts to one channel in each window; 0: no pace
-- ARGV[8]  the pace's window; without a pace, for how long a call with the same name is the same call
-- ARGV[9]  1: if the pace is full, the next free slot is kept for this post; 0: it waits with the others
-- ARGV[10] the longest pause, and the longest window of a pace. A pause that ends later than that counts for
--          nothing, nor does a slot that is twice as far ahead
-- ARGV[11] how long the posts of an event are known, from the last one on: the dedupe window or the retention
--          of admit.lua, whichever is longer
-- ARGV[12] token of the store that the caller knows, as in admit.lua; empty: any store
-- ARGV[13] name of the worker. Empty: the post neither leaves a slot to others nor has one left to it
-- ARGV[14] since when the post waits
-- Times are whole microseconds since 1970 by the server's clock, durations are microseconds.
--
-- Reply: one of
--   { 'post', posts, '' }           post it; so many posts of this event have begun, this one included
--   { 'wait workspace', wait, '' }  post nothing for so long: Slack has asked for it, or another post probes
--   { 'wait channel', wait, '' }    post nothing to this channel, for the same reasons
--   { 'wait pace', wait, '' }       the channel's pace has no room; one window at most, then ask again
--   { 'wait event', wait, '' }      another replica may be posting this event now
--   { 'unknown', posts, name }      so many posts have begun, and the caller does not know the result of the
--                                   last one, which has this name: the event may be in Slack
--   { 'not in flight', 0, '' }      the event is not in flight for this delivery: ask admit.lua
--   { 'unknown store', 0, '' }      the store has another token: put back what this replica remembers, then
--                                   ask again
--
-- Guarantees
--   Order        the workspace's pause, the channel's, the record, the pace: the first that does not permit
--                is the answer.
--   Probe        after a pause one post goes first. The others ask again every 200 ms, until its answer is
--                recorded or it has taken ARGV[5]. A minute after the pause nobody waits for a probe.
--   Rolling      a slot counts from the answer (answered.lua moves it), and until there is one for no less
--                than ARGV[5] and a window. So no window has more than COUNT posts in it, whenever Slack
--                counts them.
--   In order     a full pace leaves a slot to the oldest post of each worker, for a second after its wait has
--                ended. A dead worker delays the others by that second.
--   Shared       replicas with different paces share the slots: the newest 2,000 of an hour are kept.
--   Repeatable   a call that is repeated with the same name, because its reply was lost, takes nothing again.
--   Fails whole  everything is read before anything is written: a key of another type fails the call and
--                changes nothing.

local MINUTE = 60000000
local HOUR = 60 * MINUTE
local ASK_AGAIN = 200000
local SECOND = 1000000

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local known, name, longest = ARGV[3], ARGV[4], tonumber(ARGV[5])
local channel, count, window = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local longest_pause = tonumber(ARGV[10])

if ARGV[12] ~= '' and redis.call('HGET', KEYS[5], 'token') ~= ARGV[12] then
  return { 'unknown store', 0, '' }
end

-- probing(scope) is the name of the post that probes now, or nil. One that began in the future is from before
-- the clock was set back, and is not waited for.
local function probing(scope)
  local began, lasts, by = string.match(redis.call('HGET', KEYS[3], scope) or '', '^(%d+) (%d+) (.*)$')
  if by and tonumber(began) <= now and now < tonumber(began) + math.min(tonumber(lasts), longest_pause) then
    return by
  end
end

local probes = {} -- what this post will probe
for _, scope in ipairs({ '*', channel }) do
  local ends = tonumber(redis.call('ZSCORE', KEYS[2], scope) or 0)
  if ends + MINUTE > now and ends <= now + longest_pause then
    local by = probing(scope)
    if by ~= name and (ends > now or by) then
      local status = scope == '*' and 'wait workspace' or 'wait channel'
      return { status, ends > now and ends - now or ASK_AGAIN, '' }
    end
    probes[#probes + 1] = scope
  end
end

local admitted, posts, began, last, delivery
if ARGV[1] ~= '' then
  local record = redis.call('HGET', KEYS[1], ARGV[1]) or ''
  admitted, posts, began, last, delivery = string.match(record, '^(%d+g?):(%d+):(%d+):([^ ]*) (.*)$')
  if not admitted then
    admitted, delivery = string.match(record, '^(%d+g?) (.*)$')
  end
  if delivery ~= ARGV[2] then
    return { 'not in flight', 0, '' }
  end
end
posts = tonumber(posts) or 0
last = last or ''
local recorded = last == name
if last ~= '' and not recorded and last ~= known then
  local ends = tonumber(began) + longest
  -- A clock that was set back must not make it wait for longer than a post can take.
  if ends > now and tonumber(began) <= now then
    return { 'wait event', ends - now, '' }
  end
  return { 'unknown', posts, last }
end

-- Count older waiting posts, at most one for each worker. Drop those that missed their time, and those that a
-- clock which was set back has left in the future: no post waits for more than a window.
local worker, since, late = ARGV[13], tonumber(ARGV[14]), math.min(SECOND, window)
local older, gone = 0, {}
local queued, own_place = false, false -- an older post of this worker waits; this one does
local waiting = count > 0 and worker ~= '' and redis.call('HGETALL', KEYS[6]) or {}
for i = 1, #waiting, 2 do
  local other, ends, by = string.match(waiting[i + 1], '^(%d+) (%d+) (.*)$')
  if not by or tonumber(ends) <= now or tonumber(ends) > now + window + 2 * late then
    gone[#gone + 1] = waiting[i]
  elseif by == name then
    own_place = true
  elseif tonumber(other) < since then
    older = older + 1
    queued = queued or waiting[i] == worker
  end
end

local kept = name .. ' next'
local own = redis.call('ZMSCORE', KEYS[4], name, kept)

-- frees(others) returns when the pace has room for this post after a number of others: when the slot leaves
-- that has COUNT - 1 newer ones, the others included. If they fill a window, it returns one window from now.
-- A slot that is kept for this post does not count: if it is among the newer ones, the next one decides.
local furthest = text(now + 2 * longest_pause)
local function frees(others)
  if others >= count then
    return now + window
  end
  local newer = count - 1 - others
  local slots = redis.call('ZREVRANGEBYSCORE', KEYS[4], furthest, '-inf', 'WITHSCORES', 'LIMIT', newer, 2)
  local slot = tonumber(slots[2])
  if slot and own[2] and tonumber(own[2]) >= slot then
    slot = tonumber(slots[4])
  end
  return slot and slot + window or 0
end

-- queue(wait) notes this post for its worker until shortly after the wait, unless an older one is noted.
local function queue(wait)
  if worker ~= '' and not queued then
    redis.call('HSET', KEYS[6], worker, ARGV[14] .. ' ' .. text(now + wait + late) .. ' ' .. name)
    redis.call('PEXPIRE', KEYS[6], text((longest_pause + MINUTE) / 1000))
  end
end

local function put(member, at)
  redis.call('ZADD', KEYS[4], text(at), member)
  redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', text(now - HOUR))
  redis.call('ZREMRANGEBYSCORE', KEYS[4], '(' .. furthest, '+inf')
  redis.call('ZREMRANGEBYRANK', KEYS[4], 0, -2001)
  redis.call('PEXPIRE', KEYS[4], text((HOUR + 2 * longest_pause) / 1000))
end

if not own[1] or tonumber(own[1]) + window <= now then -- else this call is repeated
  for _, other in ipairs(gone) do
    redis.call('HDEL', KEYS[6], other)
  end
  local free = count > 0 and frees(older) or 0
  if free > now then
    if ARGV[9] == '1' then
      put(kept, free)
    end
    -- A slot in the future is a post without an answer yet. Answered at once, it leaves in one window. An
    -- older post may never take the slot that is left to it. The wait for that slot ends when it is late.
    local wait = math.min(free - now, window, math.max(frees(0) - now, 0) + late)
    queue(wait)
    return { 'wait pace', wait, '' }
  end
  put(name, now + math.max(0, longest - window))
  redis.call('ZREM', KEYS[4], kept)
  if own_place then
    redis.call('HDEL', KEYS[6], worker)
  end
end

if ARGV[1] == '' then
  posts = 1
elseif not recorded then
  posts = posts + 1
  local state = admitted .. ':' .. text(posts) .. ':' .. text(now) .. ':' .. name
  redis.call('HSET', KEYS[1], ARGV[1], state .. ' ' .. delivery)
  redis.call('PEXPIREAT', KEYS[1], text(math.floor((now + tonumber(ARGV[11])) / 1000) + 1), 'GT')
end
for _, scope in ipairs(probes) do
  if probing(scope) ~= name then
    redis.call('HSET', KEYS[3], scope, text(now) .. ' ' .. text(longest) .. ' ' .. name)
    redis.call('PEXPIRE', KEYS[3], text((longest_pause + MINUTE) / 1000))
  end
end
return { 'post', posts, '' }
