// Package post brings admitted events to Slack.
//
// Each event has a lane, that of its channel (package lanes). A turn is one event's turn to be posted; an
// attempt makes at most one post in it and ends with a verdict: the event has its next turn after a while, or
// it has ended. An event that has to wait before its post goes back into its lane, and another one is posted
// meanwhile.
//
//	sender.go    what a Sender is made of; it gives out turns and does what a verdict says
//	attempt.go   steps of an attempt: may the event still be posted, is it in Slack already, a permit, the post
//	lookup.go    whether a post whose outcome is unknown is in the channel already
//	answer.go    what Slack's answer means for the event, its channel, the workspace and the other replicas
//	patience.go  when an event on which Slack keeps failing is to blame
//	failing.go   events that Slack has not taken, for people
//	channels.go  channels that refuse every message
//	ends.go      what is recorded before an event has ended
//	excess.go    what goes back to the server because its channel is slow
//	unposted.go  what waits, and for what, for people
//
// It knows Slack's classes of failure and the limiter's permits. Of NATS it knows that a delivery can be
// handed back, and how a replayed letter is marked; it does not know payloads, or how an event is settled.
package post
