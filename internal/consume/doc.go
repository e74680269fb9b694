// Package consume is the worker: it takes events from NATS, has the limiter decide on them, has those that
// are admitted posted, and settles each one. Data flows one way through its rooms:
//
//	feed ── decode ── decide (one script call for a batch) ── post ── settle
//	           │         │ refused                              │
//	           │         └─ settle: dropped                     └─ settle: sent, or letters: dead
//	           └─ letters: dead
//
//	feed          takes events from JetStream, within a budget, and takes back how each of them ends
//	post          brings what is admitted to Slack
//	letters       keeps dead events until the dead-letter stream has them
//	result        how an event has ended, as a value
//	availability  what cannot be reached at the moment
//	crash         where a test build can die
//
// What is in this folder itself:
//
//	settings.go   what a worker is made of
//	worker.go     starts and ends everything; the loop takes a batch
//	batch.go      decodes it, has it decided, and says where each event goes
//	mute.go       ends what operators have muted
//	settle.go     writes the log line, counts, and acknowledges, in this order (eventline.go, republish.go)
//	health.go     what others ask of a running worker
//
// Everything before settle returns a value; settle alone logs, counts and acknowledges. Whatever is
// unavailable (Redis, Slack, NATS), events are held: kept in flight, in a bounded number. They are not
// charged twice, and dropped only by a mute or EVENT_MAX_AGE; one that has left every window is decided again.
package consume
