// Package feed takes events out of NATS JetStream, and takes back how each of them ends.
//
// A Feed reads one durable pull consumer, which all replicas share. What has arrived is in flight: a bounded
// number of deliveries, within a budget of bytes, reported to the server as in progress until each of them
// has ended. Nothing is fetched that there is no room for, so memory stays bounded whatever is unavailable.
//
// A Delivery ends exactly once: with Ack, Term or Later, or when the Feed hands back everything at the end of
// a worker.
//
//	feed.go       binds to stream and consumer, and binds again when they are lost
//	stream.go     looks them up, creates them, and says why they do not fit (subjects.go)
//	pull.go       what pull requests share: room, pauses, the connection, doubts about the consumer
//	fetch.go      makes one request after another at one of eight places, each a goroutine with its own inbox
//	keep.go       what is kept of a message
//	inflight.go   what has arrived and has not ended, and what is reserved for requests
//	delivery.go   one of these, and its ends
//	allowance.go  how many events may be handed back for later
//
// It does not know what is in a message beyond its headers, nor why a delivery ends as it does.
package feed
