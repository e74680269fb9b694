// Package steering holds the overrides that operators set while workers run: a mute drops the events that
// match a pattern, and a temporary limit replaces the limit of a scope. Each ends by itself.
//
// All overrides are one hash in Redis. lua/steer.lua changes the hash and gives each change a higher version.
// Each worker polls the version once a second and reads the hash if the version is new, so a change is in
// force everywhere within two seconds. Ends are kept by Redis's clock as the worker last saw it: an override
// ends in time even while Redis is unavailable.
//
// If a worker finds no hash, or an older version than it knows, it restores the hash as it last read it. The
// hash outlives its last entry by more than an entry can last, so a cleared override does not come back. A
// version is the time of its change rather than a count: a count could repeat a lost one, and a worker that
// knows the lost one would miss the change.
//
// Two things are not covered. A change that no worker has read is lost with the store. In the second after a
// loss, before a worker has restored its copy, a change replaces all lost overrides, "mute end" finds
// nothing, and a worker that missed the last change may restore an override that was just cleared, until
// another worker polls.
//
// Any client of Redis may have written the hash: each entry is checked, and an invalid one is skipped
// and logged.
package steering
