-- reform.lua stores a scope in its other form, with everything that still counts, so that admit.lua can add to it. See there for
-- the two forms. Calling it again changes nothing.
--
-- KEYS[1]  register  sorted set, as in admit.lua
-- KEYS[2]  scope     sorted set, its exact form
-- KEYS[3]  scope     sorted set, its form in buckets
-- KEYS[4]  in flight hash, as in admit.lua, if the scope is the global one: then the register takes over which ids are in flight
-- ARGV[1]  the longest window of the scope's limit in microseconds
-- ARGV[2]  dedupe window in microseconds, as in admit.lua
-- ARGV[3...] lengths of the buckets in microseconds; none: the scope is to be exact
--
-- Reply: 1 it has the other form now, 0 it is left as it is: there is nothing to copy, or another replica still wants it exact
--
-- A slot that was in a bucket counts from the bucket's end, or from now if that has not come. It has no id any more, so its
-- event cannot be refunded in this scope. A bucket of more than a million slots is none of ours, and is not copied.

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
local horizon = clock + math.max(86400000000, tonumber(ARGV[2]))
local latest = tonumber(redis.call('ZSCORE', KEYS[1], ' clock') or 0)
local now = latest <= horizon and math.max(clock, latest) or clock
local month = 2678400000 -- milliseconds: no entry is kept for longer
local exact = #ARGV == 2
local from, to = KEYS[exact and 3 or 2], KEYS[exact and 2 or 3]

local wanted = tonumber(redis.call('ZSCORE', KEYS[1], ' exact ' .. KEYS[2]) or 0)
if (not exact and wanted > now) or redis.call('EXISTS', from) == 0 or (not exact and redis.call('EXISTS', to) == 1) then
  return 0
end

-- mark(name, ends) moves a mark of the register to a later time, and keeps the register until then.
local function mark(name, ends)
  redis.call('ZADD', KEYS[1], 'GT', text(ends), name)
  redis.call('PEXPIREAT', KEYS[1], text(math.max(redis.call('PEXPIRETIME', KEYS[1]), math.ceil(ends / 1000) + 1)))
end

local entries = redis.call('ZREVRANGE', from, 0, -1, 'WITHSCORES') -- the newest first
local asked = redis.call('PEXPIRETIME', from) - 1 - math.floor(tonumber(entries[2]) / 1000)
local keeps = math.max(math.ceil(tonumber(ARGV[1]) / 1000), math.min(asked, month))
local newest
if exact then
  -- Both forms are there if the register was lost: then each slot has to have a name of its own.
  local there = redis.call('ZREVRANGE', to, 0, 0, 'WITHSCORES')
  newest = tonumber(there[2])
  keeps = math.max(keeps, newest and math.min(redis.call('PEXPIRETIME', to) - 1 - math.floor(newest / 1000), month) or 0)
  local suffix = newest and ' copied ' .. text(now) or ' copied'
  for i = 1, #entries, 2 do
    local before, total = string.match(entries[i], '^(%d+) (%d+) ')
    local at = math.min(now, math.max(0, tonumber(entries[i + 1])))
    newest = math.max(newest or at, at)
    before, total = tonumber(before or 0), tonumber(total or 0)
    for slot = before + 1, total <= before + 1000000 and total or before do
      redis.call('ZADD', to, text(at), text(slot) .. suffix)
    end
  end
  mark(' exact ' .. to, now + tonumber(ARGV[1]))
else
  local before, total, ends, began = 0, 0, nil, nil
  for i = #entries - 1, 1, -2 do
    local at, last = math.max(0, math.min(tonumber(entries[i + 1]), horizon)), math.huge
    if KEYS[4] and redis.call('HEXISTS', KEYS[4], entries[i]) == 1 then
      redis.call('ZADD', KEYS[1], 'GT', text(at), entries[i]) -- a post of it may have begun later
    end
    for g = 3, #ARGV do
      last = math.min(last, at - at % tonumber(ARGV[g]) + tonumber(ARGV[g]) - 1)
    end
    if ends and last ~= ends then
      redis.call('ZADD', to, text(ends), text(before) .. ' ' .. text(total) .. ' ' .. text(began))
      before, began = total, nil
    end
    total, ends, began = total + 1, last, began or at
  end
  redis.call('ZADD', to, text(ends), text(before) .. ' ' .. text(total) .. ' ' .. text(began))
  newest = ends
  mark(' buckets', now + 2000 * keeps)
end
redis.call('PEXPIREAT', to, text(math.floor(newest / 1000) + keeps + 1))
redis.call('DEL', from)
return 1
