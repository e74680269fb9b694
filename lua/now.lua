-- now.lua tells the time of the server that keeps a key: the nodes of a Cluster have a clock each.
--
-- KEYS[1]  any key of the namespace; it is not touched
-- ARGV     none
--
-- Reply: microseconds since 1970.

local time = redis.call('TIME')
return tonumber(time[1]) * 1000000 + tonumber(time[2])
