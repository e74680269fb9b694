// Package steering is what operators ask for while workers run: to drop what matches a pattern (a mute), or to apply another
// limit to a scope (a limit for a while). Each ends by itself.
//
// All of it is one hash in Redis. lua/steer.lua changes it and gives each change a higher version. The flush of counts, which
// each replica makes every second anyway, brings back the version; a replica that knows another one reads the hash once. So all
// replicas follow within two seconds and nothing polls. The ends are kept by the clock of Redis, as each replica has last seen
// it: an entry ends at its time also while Redis is unavailable. A replica that finds the hash lost puts back what it knows.
//
// What is read from Redis counts as written by anybody: each entry is checked, and one that is not valid is skipped and logged.
//
// Reading order: order.go (what can be asked for, and how it is stored), store.go (the hash), follow.go (what is in force).
package steering
