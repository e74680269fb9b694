-- now.lua returns the time of the server that holds a key. Each node of a Cluster has its own clock.
--
-- KEYS[1]  any key of the namespace. It is not read.
-- ARGV     none
--
-- Reply: microseconds since 1970.

local time = redis.call('TIME')
return tonumber(time[1]) * 1000000 + tonumber(time[2])
