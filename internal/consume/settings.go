package consume

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"notifier/internal/consume/feed"
	"notifier/internal/consume/post"
	"notifier/internal/consume/result"
	"notifier/internal/event"
	"notifier/internal/ratelimit"
	"notifier/internal/steering"
)

// Limiter decides on events and keeps the record of what was decided; see package ratelimit.
type Limiter interface {
	post.Limiter
	Check(ctx context.Context) error
	Ready(ctx context.Context) error
	ClockLag() time.Duration
}

// Mutes are the categories that operators have muted; see package steering.
type Mutes interface {
	Load(ctx context.Context) error
	Muted(category string) (mute *steering.Order, muted bool)
}

// JetStream names the streams and the durable consumer of a worker.
type JetStream struct {
	Connection *nats.Conn
	Why        func() error // why there is no connection, without secrets; nil: what nats.go knows of it
	Stream     string       // created with Subject if it is absent, never altered
	Consumer   string       // durable, shared by all replicas; created if it is absent, never altered
	Subject    string       // what to read
	DeadLetter string       // dead letters go to <DeadLetter>.<category>, in the stream <Stream>_DEAD

	DeadLetterBytes int64 // of that stream if it is created: then the oldest letters are deleted; 0: no bound
	Replicas        int   // of streams created here; 0: three in a cluster of three servers or more, else one
}

func (j JetStream) connection() feed.Connection {
	return feed.Connection{Conn: j.Connection, Why: j.Why}
}

// Settings of a Worker.
type Settings struct {
	JetStream JetStream

	Rules       event.Rules   // what Decode accepts
	MaxAge      time.Duration // older events are dropped as expired; 0: never
	BatchSize   int           // most events in one script call, 1 to 1000
	MaxBytes    int64         // most bytes of messages in flight, 1 MiB or more; 0: feed.DefaultBudget
	Concurrency int           // posts in flight, 1 or more
	// LongestLater is for how long an event of a slow channel is handed back to the server at most; 5 s is
	// the least.
	LongestLater    time.Duration
	ShutdownTimeout time.Duration // how long Run may take after its context has ended
	DroppedSubject  string        // dropped events are republished to <it>.<category>; empty: they are not
	// PostTimeout is how long one post may take: none begins when less than that is left of ShutdownTimeout.
	PostTimeout time.Duration

	Channels []string // the channels that the settings name; events may name one of them
	// Pace is that of each channel's posts; zero: none. The limiter applies it; here it serves to estimate
	// waits.
	Pace ratelimit.Tier

	// Group names the group whose limit the category shares; empty: none. nil: no group has a limit.
	Group func(category string) string

	Limiter Limiter
	Mutes   Mutes // nil: nothing is ever muted
	Slack   post.Slack
	Log     *zap.Logger
	Events  *zap.Logger // writes the lines of settled events; nil: Log, whose level then counts for them, too
	// Observe is called with settled events after their log lines, by several goroutines; it may not keep them.
	// It may be nil.
	Observe func(batch []*result.Result)
}
