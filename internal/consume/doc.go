// Package consume is the worker: it takes events from NATS, has the limiter decide, posts to Slack, and
// settles each event.
//
//	feed ── decode ── mute, age, admit ── channel, permit, post ── settle
//	           │             │ refused                              │
//	           │             └─ settle: dropped                     └─ settle: sent, or letters: dead
//	           └─ letters: dead
//
// The loop in worker.go takes a batch from the feed and runs it through the first steps (batch.go, package
// decide). Package post takes each admitted event through all steps but the decoding when its channel has room
// for it. Only settle.go logs, counts and acknowledges, in this order.
//
// While Redis, Slack or NATS is unavailable, events are held: they stay in flight, in a bounded number, and
// are not charged twice. Only a mute or EVENT_MAX_AGE drops a held event, and only a channel that refuses every
// message makes it a dead one. After its slots have left every window, an event is decided again.
package consume
