// Package ratelimit decides how many notifications may be sent, for all replicas together.
//
// A Limiter asks one Redis script (lua/admit.lua) about a batch of events at a time and gives back a Decision for
// each. Being refused is a value, not an error; an error means that Redis could not decide, and then nothing
// may be sent and nothing dropped. Every call may be repeated: an event that was admitted is never charged again
// for the same delivery.
//
// Reading order: limit.go (what a user writes), rules.go (which limit is whose), keys.go (what is stored where),
// limiter.go (the calls), reply.go (what comes back), pause.go (Slack's "not now", shared by all replicas),
// redis.go (the connection).
package ratelimit
