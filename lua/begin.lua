-- begin.lua gives leave to post one admitted event, and notes the post before it is made: whoever finds the note without
-- a record of the event as sent knows that Slack may have it.
--
-- KEYS[1]  in flight  hash    id -> "<time of admission> <delivery>", and once posts of it have begun
--                             "<time of admission>:<posts begun>:<time of the last one> <delivery>"
-- KEYS[2]  pause      string  until when nobody posts, in microseconds; stays for a while after that, see pause.lua
-- KEYS[3]  probe      string  is there while one replica tries whether Slack takes posts again after a pause
-- ARGV[1]  id, as in admit.lua
-- ARGV[2]  delivery, as in admit.lua
-- ARGV[3]  how many posts of this event the caller knows the end of; 0 before its first
-- ARGV[4]  how long a post may take, in microseconds
--
-- Reply: { leave, number }
--   1, posts        go on; it is noted as the post that makes it so many
--   2, posts        the same, as the one probe after a pause: say with pause.lua how it went
--   0, microseconds wait so long, with every event: Slack has asked for it, or another replica's probe is under way
--   3, microseconds wait so long, with this event: another replica may be posting it now
--   4, posts        so many have begun, more than the caller knows of: the event may be in Slack. Nothing is noted
--   5, 0            it is not in flight for this delivery: ask admit.lua

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local longest = tonumber(ARGV[4])

local stored = redis.call('GET', KEYS[2])
local pause = stored and tonumber(stored)
if pause and pause > now then
  return { 0, pause - now }
end
if pause and redis.call('EXISTS', KEYS[3]) == 1 then
  return { 0, 200000 } -- ask again soon: the probe may end at any moment
end

local record = redis.call('HGET', KEYS[1], ARGV[1])
local admitted, posts, last, delivery
if record then
  admitted, posts, last, delivery = string.match(record, '^(%d+):(%d+):(%d+) (.*)$')
  if not admitted then
    posts, last = '0', '0'
    admitted, delivery = string.match(record, '^(%d+) (.*)$')
  end
end
if delivery ~= ARGV[2] then
  return { 5, 0 }
end
posts = tonumber(posts)
if posts > tonumber(ARGV[3]) then
  local ends = tonumber(last) + longest
  -- A clock that was set back must not make it wait for longer than a post can take.
  if ends > now and tonumber(last) <= now then
    return { 3, ends - now }
  end
  return { 4, posts }
end

posts = posts + 1
redis.call('HSET', KEYS[1], ARGV[1], admitted .. ':' .. text(posts) .. ':' .. text(now) .. ' ' .. delivery)
if pause then
  redis.call('SET', KEYS[3], text(now), 'PX', text(math.ceil(longest / 1000)))
  return { 2, posts }
end
return { 1, posts }
