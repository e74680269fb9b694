// Package ratelimit decides how many notifications may be sent, for all workers together.
//
// A Limiter passes a batch of events to one Redis script, lua/admit.lua, and returns a Decision for each. A
// refusal is a value. An error means that Redis could not decide: then nothing may be sent, and nothing
// dropped. Every call may be repeated, because an admitted event is not charged again for the same message.
// Before each post, Begin records it in Redis, so that another worker knows after a crash that the event may
// be in Slack.
//
// Redis may lose admissions: a failover loses all writes that the new primary has not received. Every worker
// therefore remembers its own admissions. After a failover, a restart or a loss, the scripts refuse to decide
// until the workers have restored the admissions that they remember: the store, which is this deployment's
// keys in Redis, is closed. Meanwhile calls fail with an error that says so; they may be repeated.
//
//	client, guard, err := ratelimit.OpenGuarded(url, nil, 8)
//	limiter, err := ratelimit.New(client, namespace, rules, dedupe)
//	healer, err := ratelimit.NewHealer(limiter, guard, ratelimit.Healing{Replica: name, Log: log})
//	go healer.Run(ctx)
//
// A command that only reads needs no Healer and opens its client with Open.
//
// The package knows Redis, the limiter's keys and the limits. It does not know NATS, Slack or the content of
// an event.
//
// # What healing does not cover
//
// docs/design.md describes the protocol. A limit keeps its slots in a log, with one entry for each, or, if it
// has a precision, in buckets, with one number for each interval.
//
//   - master_replid also changes when a replica attaches to a primary that has had none for an hour, and when a
//     Cluster moves a slot. Such a change costs a pause of 1.5 s, more on a distant server, and loses nothing.
//   - If two workers remember one event because it was redelivered, both restore it. In a log it is charged once.
//     In buckets it is charged twice if the worker that admitted it second restores first.
//   - A refund that the new primary has not received is lost, and so is the record of an event that was sent
//     through the old primary after the promotion.
//   - If the store is restored from a copy older than the longest window, the records of events in flight are
//     lost, and these events are decided again.
//   - Admissions on both sides of a partition count together once all workers use one primary again.
package ratelimit
