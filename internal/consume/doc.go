// Package consume is the worker: it takes events from NATS, has the limiter decide, posts to Slack, and
// settles each event.
//
//	feed ── decode ── mute, age, admit ── channel, permit, post ── settle
//	           │             │ refused                              │
//	           │             └─ settle: dropped                     └─ settle: sent, or letters: dead
//	           └─ letters: dead
//
// The loop in worker.go takes a batch from the feed and runs it through the first steps (batch.go, package
// decide). Package post takes an admitted event, at its turn, through: search for an earlier post, if one may
// be in Slack; mute; age; admit, if the admission is stale; end, if the channel refuses every message;
// permit; post. Only settle.go logs, counts and acknowledges, in this order.
//
// While Redis, Slack or NATS is unavailable, events are held: they stay in flight, in a bounded number, and
// are not charged twice. As soon as the slots of a held event have left one window, the shortest, it is
// decided again. Only that, a mute or EVENT_MAX_AGE drops it, and only a channel that refuses every message
// makes it a dead one.
package consume
