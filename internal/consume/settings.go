package consume

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"notifier/internal/consume/decide"
	"notifier/internal/consume/feed"
	"notifier/internal/consume/post"
	"notifier/internal/consume/result"
	"notifier/internal/event"
)

// Limiter decides on events, grants permits for posts, and records both; see package ratelimit.
type Limiter interface {
	decide.Limiter
	post.Limiter
	Check(ctx context.Context) error
	Ready(ctx context.Context) error
}

// JetStream names the streams and the durable consumer of a worker.
type JetStream struct {
	Connection *nats.Conn
	Why        func() error // the reason for a lost connection, without secrets; nil means nats.go's last error
	Stream     string       // created with Subject if it is absent, never altered
	Consumer   string       // durable, shared by all workers; created if it is absent, never altered
	Subject    string       // of the events
	Namespace  string       // of the keys in Redis; a consumer of another namespace is not read
	DeadLetter string       // dead letters go to <DeadLetter>.<category>, in the stream <Stream>_DEAD

	StreamBytes     int64 // max bytes of Stream if it is created; zero means no bound
	DeadLetterBytes int64 // max bytes of <Stream>_DEAD if it is created; zero means no bound
	Replicas        int   // of streams created here; zero means 3 in a cluster of three or more servers, else 1
}

func (j JetStream) connection() feed.Connection {
	return feed.Connection{Conn: j.Connection, Why: j.Why}
}

// Settings of a Worker.
type Settings struct {
	JetStream JetStream

	Rules           event.Rules   // bound the events that Decode accepts
	MaxAge          time.Duration // older events are dropped as expired; zero keeps all
	BatchSize       int           // max events in one script call, 1 to 1000
	MaxBytes        int64         // max bytes of messages in flight, at least 1 MiB; zero means feed.DefaultBudget
	Concurrency     int           // posts in flight, 1 or more
	PostTimeout     time.Duration // bounds one post: none begins when less is left of ShutdownTimeout
	ShutdownTimeout time.Duration // bounds Run after its context is done
	DroppedSubject  string        // dropped events are republished to <it>.<category>, unless it is empty
	Channels        []string      // channels that the settings name; events may name one of them

	// Group returns the name of the category's group if that has a limit, or "". It may be nil.
	Group func(category string) string

	Limiter Limiter
	Mutes   decide.Mutes // nil mutes nothing
	Slack   post.Slack
	Log     *zap.Logger
	Events  *zap.Logger // writes the lines of settled events; nil means Log, and its level
	// Observe is called with settled events after their log lines, by several goroutines. It may not keep them.
	// It may be nil.
	Observe func(batch []*result.Result)
}
