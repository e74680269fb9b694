-- The plain script with two sets: one member per admitted event in the global set and in its category's.
-- KEYS: global, category. ARGV: limit of each, window in microseconds, the event's id. Returns 1 to send it, else 0.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
for i = 1, 2 do
  redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', now - ARGV[3])
  if redis.call('ZCARD', KEYS[i]) >= tonumber(ARGV[i]) then
    return 0
  end
end
for i = 1, 2 do
  redis.call('ZADD', KEYS[i], now, ARGV[4])
  redis.call('PEXPIRE', KEYS[i], math.ceil(ARGV[3] / 1000))
end
return 1
