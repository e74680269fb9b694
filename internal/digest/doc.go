// Package digest tells in Slack, now and then, what was not sent:
//
//	In the last 30 min 412 notifications were not sent: errors 380 (its limit 10/30m), deploys 32 (global limit
//	100/30m). Next free slot 14:32.
//
// The Recorders of package stats add up in Redis what the limits have refused, for all replicas. Each replica runs a
// Digest, and one of them posts when the interval is over: the one that gets the lease in Redis first. By the clock of
// Redis an interval begins with the first drop that no digest has told, so nothing is posted when nothing was dropped.
//
// The digest takes no slot of the limits and cannot be starved by events, since it never asks the limiter; but it waits
// while Slack has asked for a pause, and makes everybody wait when Slack asks the digest to.
//
// With a bot token the last digest is edited for an hour instead of posting another one: it then covers the time since
// its own first drop, and a storm is one message an hour.
//
// # What is guaranteed
//
// A drop is told at most once, and by exactly one message as long as no try ends in doubt. Drops leave the pending ones only
// when a try has ended: in success, or in doubt. A definite failure leaves all of them to the next try, with a growing
// wait. In doubt is a post whose answer was lost, or whose replica died between the post and the note of its end: it is
// taken for told and not posted again, because each drop has its log line anyway and a digest that comes twice would count
// it twice. The log says how many drops were in it. An edit in doubt is made a second time at once, since a repetition
// is harmless, and what it told is in every later edit too.
//
// Two posts are at least an interval apart unless the first one failed. Drops counted by a replica within the last second
// before it dies are never told; see package stats for that and for the bound on categories.
//
// Reading order: digest.go (the loop), try.go (one try), store.go (what Redis keeps), message.go (what can be edited),
// text.go (what is said).
package digest
