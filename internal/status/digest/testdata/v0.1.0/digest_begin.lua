-- digest_begin.lua records that the digest is about to be posted: a replica that later finds this record, and no result,
-- knows that the digest may be in Slack and does not post it again. Calling it again changes nothing.
--
-- KEYS[1]  lease    as in digest_take.lua
-- KEYS[2]  posting  as in digest_take.lua
-- ARGV[1]  token, as in digest_take.lua
--
-- Reply: 1 post it; 0 the lease has expired and another replica has taken it: do not post.

if string.match(redis.call('GET', KEYS[1]) or '', '^%d+ (.*)$') ~= ARGV[1] or redis.call('EXISTS', KEYS[2]) == 0 then
  return 0
end
redis.call('HSET', KEYS[2], 'begun', '1')
return 1
