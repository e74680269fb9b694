-- begin.lua permits the post of one admitted event, and records the post before it is made: a worker that finds this
-- record, and none of the event as sent, knows that the event may be in Slack.
--
-- KEYS[1]  in flight  hash    id -> "<time of admission> <delivery>", and once posts of it have begun
--                             "<time of admission>:<posts begun>:<time of the last>:<name of the last> <delivery>"
-- KEYS[2]  pause      string  microsecond until which no replica posts; kept for a while after that, see pause.lua
-- KEYS[3]  probe      string  name of the post with which one replica tests whether Slack accepts posts again after a pause
-- ARGV[1]  id, as in admit.lua
-- ARGV[2]  delivery, as in admit.lua
-- ARGV[3]  name of the last post of this event whose result the caller knows, or has looked up; empty before the first
-- ARGV[4]  name of this post: unique, without colons and spaces
-- ARGV[5]  how long a post may take, in microseconds
--
-- Reply: { status, number, name }
--   1, posts        post it; the post is recorded, and this many have begun for this event, including this one
--   2, posts        the same, as the one probe after a pause: report its result with pause.lua
--   0, microseconds wait this long with every event: Slack has asked for it, or another replica's probe is in progress
--   3, microseconds wait this long with this event: another replica may be posting it now
--   4, posts, name  this many posts have begun, and the caller does not know the result of the last one, which has this
--                   name: the event may be in Slack. Nothing is recorded
--   5, 0            the event is not in flight for this delivery: ask admit.lua
-- A call that is repeated with the same name, because its reply was lost, gets the same reply and records nothing more.

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local known, name, longest = ARGV[3], ARGV[4], tonumber(ARGV[5])

local stored = redis.call('GET', KEYS[2])
local pause = stored and tonumber(stored)
local prober = pause and redis.call('GET', KEYS[3])
if pause and prober ~= name then
  if pause > now then
    return { 0, pause - now, '' }
  end
  if prober then
    return { 0, 200000, '' } -- ask again soon: the probe may end at any moment
  end
end

local record = redis.call('HGET', KEYS[1], ARGV[1])
local admitted, posts, began, last, delivery
if record then
  admitted, posts, began, last, delivery = string.match(record, '^(%d+):(%d+):(%d+):([^ ]*) (.*)$')
  if not admitted then
    posts, began, last = '0', '0', ''
    admitted, delivery = string.match(record, '^(%d+) (.*)$')
  end
end
if delivery ~= ARGV[2] then
  return { 5, 0, '' }
end
posts = tonumber(posts)
if posts > 0 and last == name then
  return { prober == name and 2 or 1, posts, '' }
end
if posts > 0 and last ~= known then
  local ends = tonumber(began) + longest
  -- A clock that was set back must not make it wait for longer than a post can take.
  if ends > now and tonumber(began) <= now then
    return { 3, ends - now, '' }
  end
  return { 4, posts, last }
end

posts = posts + 1
redis.call('HSET', KEYS[1], ARGV[1], admitted .. ':' .. text(posts) .. ':' .. text(now) .. ':' .. name .. ' ' .. delivery)
if pause then
  redis.call('SET', KEYS[3], name, 'PX', text(math.ceil(longest / 1000)))
  return { 2, posts, '' }
end
return { 1, posts, '' }
