// Package steering is what operators ask for while workers run: to drop what matches a pattern (a mute), or
// to apply another limit to a scope (a temporary limit). Each ends by itself.
//
// All of it is one hash in Redis. lua/steer.lua changes it and gives each change a higher version. The flush
// of counts, which each replica makes every second anyway, brings back the version; a replica that knows
// another one reads the hash once. So all replicas follow within two seconds and nothing polls. The ends are
// kept by the clock of Redis, as each replica has last seen it: an entry ends at its time also while Redis is
// unavailable.
//
// A replica that finds no hash, or an older version than it knows, puts back the hash as it has read it. The
// hash stays for longer than any entry lasts, also when the last one has ended or was cleared: so nothing
// that was cleared comes back. A version is the time of its change, not a count: a count could repeat one
// that was lost, and a replica that knows the lost one would miss the change.
//
// Not covered: a change that no replica has read is lost with the store. In the second after a loss, before
// a replica has put its copy back, a change replaces all that was lost, "mute end" finds nothing, and a
// replica that has missed the last change may put back what was just cleared, until another one's next flush.
//
// What is read from Redis counts as written by anybody: each entry is checked, and one that is not valid is
// skipped and logged.
//
// Reading order: order.go (what can be asked for, and how it is stored), store.go (the hash), follow.go (what
// is in force).
package steering
