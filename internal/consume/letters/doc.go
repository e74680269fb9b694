// Package letters is everything about dead letters, which keep the events that can never be sent in a stream
// of their own.
//
// A letter is the event's payload and its publisher's headers, plus notifier's own headers, which say what
// was wrong.
//
//	write.go   a worker makes a letter of an event
//	store.go   and has the dead-letter stream store it
//	box.go     with patience, while the worker goes on with everything else
//	letter.go  what a letter says, when it is read
//	reader.go  opens the stream: list and show its letters, with scan.go for many
//	replay.go  publishes an event unchanged where it came from
//	delete.go  deletes letters, and nothing that is none
//
// It knows JetStream and the headers of a letter. It does not know Redis or Slack.
package letters
