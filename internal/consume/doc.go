// Package consume is the worker: it takes events from NATS, has the limiter decide on them, posts what was admitted, and
// settles each one. It knows NATS, holding and settling; it does not know Redis keys, limits or Slack's error codes.
//
//	NATS ── source ── event.Decode ── Limiter.Admit (one call per batch) ── Poster.Post ── settle
//	                       │                  │ refused                           │
//	                       └─ dead letter     └─ dropped                          └─ sent | dead | held
//
// Reading order, following one event from pull to acknowledgement:
//
//	worker.go   Run starts everything; loop takes a batch; process decodes it, has it decided, and passes on what was admitted
//	post.go     deliver gives an admitted event its turn; attempt makes at most one post
//	answer.go   what Slack's answer means for the event, its channel, the workspace and the other replicas
//	record.go   what is recorded of an event before it is settled
//	settle.go   settle writes the log line, counts, and acknowledges, in this order
//
// The other files:
//
//	settings.go       what a worker is made of, and the interfaces of its neighbors
//	jetstream.go      where deliveries come from, with stream.go, pull.go and requests.go
//	keep.go           what is kept of a message that has arrived
//	parking.go        gives events back to the server for a while
//	leader.go         what becomes of a pull while the consumer has no leader
//	subjects.go       whether a stream and a consumer fit what a worker reads
//	inflight.go       what has arrived and is not settled: bounded in number and bytes, and kept alive with the server
//	backlog.go        what waits for slow channels, and what goes back to the server
//	poison.go         events on which Slack keeps failing
//	lookup.go         whether a post whose outcome is unknown is in the channel already
//	refused.go        channels that refuse every message
//	deadletter.go     dead letters and their headers
//	letterbox.go      dead events whose letters are not stored yet, apart from all others
//	letterquota.go    how many letters a category may write
//	republish.go      copies of dropped events for whoever wants them
//	availability.go   what the worker depends on and cannot reach; it decides on pulling and readiness
//	waitlog.go        the log lines about that
//	health.go         what others ask of a running worker
//	crash_points.go   where a test build can crash
//
// Everything before settle returns a value; settle alone logs, counts and acknowledges. Whatever is unavailable (Redis,
// Slack, NATS), events are held: kept in flight, in a bounded number, and neither dropped nor decided twice.
package consume
