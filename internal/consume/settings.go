package consume

import (
	"context"
	"time"

	"go.uber.org/zap"

	"notifier/internal/event"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
	"notifier/internal/steering"
)

// Limiter decides on events and keeps the record of what was decided; see package ratelimit.
type Limiter interface {
	Check(ctx context.Context) error
	Ready(ctx context.Context) error
	Admit(ctx context.Context, batch []ratelimit.Request) ([]ratelimit.Decision, error)
	Begin(ctx context.Context, post ratelimit.Post) (ratelimit.Permit, error)
	Answered(ctx context.Context, answer ratelimit.Answer) (ratelimit.PauseScope, time.Duration, error)
	Sent(ctx context.Context, request ratelimit.Request) error
	Refund(ctx context.Context, request ratelimit.Request, known string) (bool, error)
	Forfeit(ctx context.Context, request ratelimit.Request, known string) (bool, error)
	InFlight(ctx context.Context, request ratelimit.Request) (record ratelimit.InFlight, found bool, err error)
	WasSent(ctx context.Context, request ratelimit.Request) (bool, error)
	ClockLag() time.Duration
}

// Poster makes one attempt to post, and looks up whether an earlier one has arrived; see package slackout.
type Poster interface {
	Channel(ev event.Event) string
	Post(ctx context.Context, ev event.Event) (slackout.Receipt, error)
	Find(ctx context.Context, ev event.Event) (slackout.Receipt, bool, error)
}

// Mutes are the categories that operators have muted for a while; see package steering.
type Mutes interface {
	Load(ctx context.Context) error
	Muted(category string) (mute *steering.Order, muted bool)
}

// DefaultMaxBytes is the budget of a worker that is given none, in bytes.
const DefaultMaxBytes = 12 << 20

// Settings of a Worker.
type Settings struct {
	JetStream JetStream

	Rules           event.Rules   // what Decode accepts
	MaxAge          time.Duration // older events are dropped as expired; 0: never
	BatchSize       int           // most events in one script call, 1 to 1000
	MaxBytes        int64         // most bytes of messages in flight, 1 MiB or more; 0: DefaultMaxBytes
	Concurrency     int           // posts in flight, 1 or more
	LongestPark     time.Duration // for how long an event of a slow channel is given back to the server at most; 5 s is the least
	ShutdownTimeout time.Duration // how long Run may take after its context has ended
	DroppedSubject  string        // dropped events are republished to <it>.<category>; empty: they are not
	PostTimeout     time.Duration // how long one post may take: none begins when less than that is left of ShutdownTimeout

	Channels []string       // the channels that the settings name; events may name one of them
	Pace     ratelimit.Tier // of each channel's posts; zero: none. The limiter applies it; here it serves to estimate waits

	Group func(category string) string // the group whose limit the category shares; empty: none. nil: no group has a limit

	Limiter Limiter
	Mutes   Mutes // nil: nothing is ever muted
	Poster  Poster
	Log     *zap.Logger
	Events  *zap.Logger // writes the lines of settled events; nil: Log, whose level then counts for them, too
	// Observe is called with settled events after their log lines, by several goroutines; it may not keep the slice. It may be nil.
	Observe func(batch []Settled)
}
