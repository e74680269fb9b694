package consume

import (
	"context"
	"time"

	"go.uber.org/zap"

	"notifier/internal/event"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
)

// Limiter decides on events and keeps the record of what was decided; see package ratelimit.
type Limiter interface {
	Check(ctx context.Context) error
	Ready(ctx context.Context) error
	Admit(ctx context.Context, batch []ratelimit.Request) ([]ratelimit.Decision, error)
	Begin(ctx context.Context, request ratelimit.Request, known, name string, longest time.Duration) (ratelimit.Permit, error)
	Sent(ctx context.Context, request ratelimit.Request) error
	Refund(ctx context.Context, request ratelimit.Request) (bool, error)
	ClockLag() time.Duration
}

// Pause is the time during which no replica posts; see package ratelimit.
type Pause interface {
	Extend(ctx context.Context, d time.Duration) error
	Lift(ctx context.Context) error
}

// Poster makes one attempt to post, and looks up whether an earlier one has arrived; see package slackout.
type Poster interface {
	Channel(ev event.Event) string
	Post(ctx context.Context, ev event.Event) (slackout.Receipt, error)
	Find(ctx context.Context, ev event.Event) (slackout.Receipt, bool, error)
}

// Settings of a Worker. Exactly one of JetStream and Core is set.
type Settings struct {
	JetStream *JetStream
	Core      *Core

	Rules           event.Rules   // what Decode accepts
	MaxAge          time.Duration // older events are dropped as expired; 0: never
	BatchSize       int           // most events in one script call, 1 to 1000
	Concurrency     int           // posts in flight, 1 or more
	ShutdownTimeout time.Duration // how long Run may take after its context has ended
	DroppedSubject  string        // dropped events are republished to <it>.<category>; empty: they are not
	PostTimeout     time.Duration // how long one post may take: none begins when less than that is left of ShutdownTimeout

	Limiter Limiter
	Pause   Pause
	Poster  Poster
	Log     *zap.Logger
	Observe func(Settled) // called for each settled event after its log line, by several goroutines; may be nil
}
