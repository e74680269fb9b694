// Package stats counts what all replicas together have done recently, for the status page, the status command
// and the digest.
//
// Each replica has a Recorder: Observe counts a settled event in memory, and about once a second the counts
// are added to those in Redis, next to the limits. A Reader reads them for all replicas. Nothing is decided
// here: while Redis is unavailable, counts wait in memory and events are not delayed.
//
// The package knows Redis and the words for outcomes. It does not know how an event is decided, posted or
// shown.
//
// # What is guaranteed
//
// A count reaches Redis once. Each call of lua/flush.lua has a number; a call whose reply was lost is
// repeated with the same number, and the script counts it only the first time. What can be lost: the counts
// since the last flush if a process dies (about a second's), those of minutes older than an hour while Redis
// is unavailable (the log has their number), and what Redis itself loses. Nothing is counted twice, unless a
// call is repeated more than a day later.
//
// # Bounds
//
// Publishers choose the categories. A minute has at most 100 of them in each replica and 100 in Redis, the
// first ones seen; all others count as OtherCategory, which is no publisher's. In ten minutes a category has
// at most 8 sources; all others count as OtherSource, and categories past the first 100 are not counted by
// source. Every key expires when it is no longer written to.
//
// Reading order: keys.go (what is stored where), recorder.go (Observe), sources.go (who causes
// events), flush.go (writing to Redis), heartbeat.go (the
// replicas), drop.go (drops for the digest), reader.go (reading from Redis).
package stats
