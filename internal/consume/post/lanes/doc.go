// Package lanes decides which event a worker posts next. Each Slack channel has a lane: a queue with a gate,
// a pace and a share of the posts that may be in flight. Above the lanes is one gate for what concerns the
// whole workspace. So a channel that Slack refuses, or that has more to post than its pace allows, delays its
// own events and no others.
//
// It schedules and nothing more: it knows neither Slack nor Redis, and learns from its caller how each post
// has ended.
//
// Reading order: lanes.go (Add, Next), turn.go (one attempt, and the reports of how it ended), gate.go,
// excess.go (what a lane holds too much), state.go (what others ask).
package lanes
