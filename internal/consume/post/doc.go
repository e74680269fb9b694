// Package post brings admitted events to Slack.
//
// Each event waits in the lane of its channel (package lanes) for its turn. A turn is an attempt: it takes the
// event through the steps of run in attempt.go, makes at most one post, and ends with a Verdict. An event that
// has to wait goes back into its lane, and another channel's event has the next turn.
//
// A failed post may concern the event, its channel, the workspace and the other workers (answer.go). The
// records in Redis and in the dead-letter stream that come before an event is settled are in ends.go.
//
// The package knows Slack's classes of failure and the limiter's permits. It knows neither payloads nor how
// an event is settled.
package post
