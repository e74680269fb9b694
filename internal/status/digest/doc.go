// Package digest reports in Slack, at most once in an interval, what was not sent:
//
//	In the last 30 minutes 412 events were not sent: 380 of errors (its limit 10/30m; most from https://ci.example/job1) and 32 of
//	deploys (the global limit 100/30m). Next free global slot: 14:32.
//
// The Recorders of package stats add up in Redis what the limits have refused, for all replicas. Each replica
// runs a Digest, and one of them posts when the interval is over: the first to get the lease, a key in Redis
// that expires. An interval begins, by the clock of Redis, with the first drop that no digest has reported,
// so nothing is posted if nothing was dropped.
//
// The digest takes no slot of the limits and cannot be starved by events, because it never asks the limiter.
// It does wait while Slack has asked for a pause, and makes all replicas pause when Slack asks the digest to.
// Only the replica with the lease asks for a permit to post. If it has to wait for that, it gives up the
// lease, and whichever replica asks next uses the same turn in the pace.
//
// With a bot token the last digest is edited for an hour instead of posting another one: it then covers the
// time since its own first drop, and a storm is one message an hour.
//
// The package knows the drops in Redis and the text of the message. It does not know how events are decided
// or posted.
//
// # What is guaranteed
//
// What is about to be posted is copied before the post, and removed from what is pending when the result is
// recorded; both by lua/digest.lua, which checks the lease. So a copy that the next holder of the lease finds
// is of a post without a result.
//
// A drop is reported at most once, and by exactly one message as long as no attempt is ambiguous. Drops are
// no longer pending only when an attempt has succeeded or is ambiguous. A definite failure leaves all of them
// to the next attempt, after an exponential backoff. A post is ambiguous if its response was lost, or if its
// replica died between the post and the record of its result: it is assumed to have arrived and not posted
// again, because each drop has its log line anyway and a digest that arrives twice would count it twice. The
// log has the number of drops in it. An ambiguous edit is repeated at once, because a repetition is harmless,
// and its drops are in every later edit too.
//
// Two posts are at least an interval apart unless the first one failed. Drops counted by a replica within the
// last second before it dies are never reported; see package stats for that and for the bound on categories.
//
// Reading order: digest.go (the loop), attempt.go (one attempt), lua/digest.lua and store.go (what is in
// Redis), message.go (what can be edited), text.go (the text), sources.go (who has caused it).
package digest
