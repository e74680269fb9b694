// Package ratelimit decides how many notifications may be sent, for all replicas together.
//
// A Limiter passes a batch of events to one Redis script, lua/admit.lua, and returns a Decision for each. A
// refusal is a value. An error means that Redis could not decide: then nothing may be sent, and nothing
// dropped. Every call may be repeated, because an admitted event is not charged again for the same delivery.
// Before each post, Begin records it in Redis, so that another replica knows after a crash that the event may
// be in Slack.
//
// Redis may lose admissions: a failover loses all writes that the new primary has not received. Every worker
// therefore remembers its own admissions. After a failover, a restart or a loss, the store stays closed until
// the replicas have restored them. Meanwhile calls fail with an error that says so; they may be repeated.
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
// # Limits of healing
//
// docs/design.md describes the protocol. In addition:
//
//   - master_replid also changes when a first replica attaches, an hour after the last one has left, and when
//     a slot of a Cluster moves. Such a change costs a pause of 1.5 s and loses nothing.
//   - If two replicas remember one event because it was redelivered, both restore it. A log stores its slots
//     once. Buckets store them twice if the second replica to admit the event restores it first.
//   - A refund that the new primary has not received is lost, and so is the record of an event that was sent
//     through the old primary after the promotion.
//   - A store that is reset to a time before the longest window has lost the records of events in flight
//     at the reset. They are decided again.
//   - Admissions on both sides of a partition count together once all replicas use one primary again.
package ratelimit
