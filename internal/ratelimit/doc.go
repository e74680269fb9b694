// Package ratelimit decides how many notifications may be sent, for all replicas together.
//
// A Limiter asks one Redis script (lua/admit.lua) about a batch of events at a time and returns a Decision
// for each. A refusal is a value, not an error; an error means that Redis could not decide, and then nothing
// may be sent and nothing dropped. Every call may be repeated: an event that was admitted is never charged
// again for the same delivery.
//
// Redis may forget: a failover loses what the new primary has not received. A process that decides (and does
// not only look on) opens its client with OpenGuarded, gives it to a Healer and runs that: the Limiter then
// remembers what it has admitted, and after a failover, a restart or a loss the Healer puts that back before
// anything is decided anew. Meanwhile calls fail with ErrHealing; they are to be repeated, as after any
// error.
//
//	client, guard, err := ratelimit.OpenGuarded(url, nil, 8)
//	limiter, err := ratelimit.New(client, namespace, rules, dedupe)
//	healer, err := ratelimit.NewHealer(limiter, guard, ratelimit.Healing{Replica: name, Log: log})
//	go healer.Run(ctx)
//
// The package knows Redis, the names of the limiter's keys and the limits. It does not know NATS, Slack or
// what an event contains.
//
// # Limits of healing
//
// docs/design.md describes the protocol. In addition:
//
//   - master_replid also changes when a first replica attaches, an hour after the last has left, and when a
//     slot of a Cluster moves. That costs a pause of 1.5 s, and nothing is lost.
//   - Two replicas that remember the same event, because it was redelivered, both put it back. A log has its
//     slots once; buckets have them twice if the second to admit it comes first.
//   - A refund that the new primary has not received is forgotten, and so is the record of an event that was
//     sent through the old primary after the new one took over.
//   - A store set back to before the longest window has lost the records of what was in flight then. Such an
//     event is decided again.
//   - What both sides of a partition have admitted counts together once all are back on one primary.
//
// # Reading order
//
// limit.go and parse.go (how limits are written), rules.go (which limits apply to which
// category), plan.go (with temporary limits), cost.go (what follows from them), keys.go
// (what is stored where), member.go (what stands for an event there), limiter.go (the calls), arguments.go
// (what the script is given), decision.go and reply.go (its reply), begin.go (permits to post), pace.go
// (how the pace is written), pause.go (Slack's answers and its pauses), peek.go, inflight.go,
// index.go and trace.go (queries of commands), redis.go with tls.go (the connection), damagedkey.go (keys of
// another type). What is put back into a store that has forgotten it: journal.go (what is remembered), guard.go
// (which store it is), restore.go, healer.go.
package ratelimit
