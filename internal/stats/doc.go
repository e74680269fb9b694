// Package stats keeps what all replicas together have done lately, for pages, the status command and the digest.
//
// Each replica has a Recorder: Observe counts a settled event in memory, and about once a second the counts are added
// to those in Redis, beside the limits. A Reader reads them back for all replicas. None of it decides anything: where
// Redis is away, counts wait in memory, and events are not held up.
//
// # What is guaranteed
//
// A count reaches Redis once. Each call of lua/flush.lua carries a number; a call whose answer was lost is repeated
// with the same number, and the script counts it only the first time. What can be lost: the counts since the last flush
// when a process dies (about a second's), those of minutes beyond the last hour while Redis is away (the log says how
// many), and what Redis itself forgets. Nothing is counted twice, unless a call is repeated more than a day later.
//
// # Bounds
//
// Publishers choose the categories. A minute has at most 100 of them in each replica and 100 in Redis, the first that
// come; the rest counts as Other. Every key expires when nobody writes to it any more.
//
// Reading order: keys.go (what is stored where), recorder.go (Observe), flush.go (on the way to Redis), heartbeat.go
// (the replicas), drop.go (for the digest), reader.go (back from Redis).
package stats
