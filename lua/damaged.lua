-- damaged.lua names the keys of another type than the scripts store there. Redis's own error about such a key (WRONGTYPE) does
-- not name it. It changes nothing.
--
-- KEYS[1..]  any keys of the namespace
-- ARGV       for each of KEYS the type that it is to have: zset or hash
--
-- Reply: those of KEYS that exist and are of another type.

local damaged = {}
for i, key in ipairs(KEYS) do
  local length
  if ARGV[i] == 'zset' then
    length = redis.pcall('ZCARD', key)
  else
    length = redis.pcall('HLEN', key)
  end
  if type(length) ~= 'number' and string.find(length.err, 'WRONGTYPE', 1, true) then
    damaged[#damaged + 1] = key
  end
end
return damaged
