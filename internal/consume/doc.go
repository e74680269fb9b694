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
//	post.go     deliver repeats attempt until the event has an outcome
//	settle.go   settle writes the log line, counts, and acknowledges, in this order
//
// Beside that way:
//
//	settings.go       what a worker is made of, and the interfaces of its neighbors
//	source.go         where deliveries come from; jetstream.go, stream.go and pull.go are one source, core.go is the other
//	leader.go         what becomes of a pull while the consumer has no leader
//	subjects.go       whether a stream and a consumer fit what a worker reads
//	inflight.go       what has arrived and is not settled: bounded, and kept alive with the server
//	gate.go           holds posts back while Slack fails
//	lookup.go         whether a post whose outcome is unknown is in the channel already
//	refused.go        channels that refuse every message
//	deadletter.go     dead letters and their headers
//	republish.go      copies of dropped events for whoever wants them
//	availability.go   what the worker depends on and cannot reach; it decides on pulling and readiness
//	waitlog.go        the log lines about that
//	health.go         what others ask of a running worker
//	crash_points.go   where a test build can crash
//
// Everything before settle returns a value; settle alone logs, counts and acknowledges. Whatever is unavailable (Redis,
// Slack, NATS), events are held: kept in flight, in a bounded number, and neither dropped nor decided twice.
package consume
