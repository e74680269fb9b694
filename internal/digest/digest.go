package digest

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
	"notifier/internal/stats"
)

// Bounds of what can be configured, and of waits.
const (
	MaxInterval = 24 * time.Hour // of Config.Interval

	longestPoll    = 30 * time.Second // between two looks whether there is something to tell
	firstBackoff   = time.Second      // after a failure; doubled with each, but never longer than longestBackoff
	longestBackoff = 5 * time.Minute
	defaultTimeout = 15 * time.Second
	callTimeout    = 2 * time.Second // for one question to Redis
)

// Publisher makes one attempt to post a text in Slack's markup, or to put it in the place of an earlier one. Errors are
// *slackout.Error; slackout.Poster is one.
type Publisher interface {
	PostText(ctx context.Context, channel, text string) (slackout.Receipt, error)
	UpdateText(ctx context.Context, channel, ts, text string) error
}

// Pause is the time during which no replica posts; ratelimit.Pause is one.
type Pause interface {
	Remaining(ctx context.Context) (time.Duration, error)
	Extend(ctx context.Context, d time.Duration) error
}

// Config of a Digest.
type Config struct {
	Redis     redis.UniversalClient
	Namespace string        // as for stats.NewReader
	Interval  time.Duration // above 0, at most MaxInterval: at most one post in it, over all replicas
	Channel   string        // where to; a webhook posts to its own
	Publisher Publisher
	Pause     Pause

	// NextFree is how long it takes until the global limit has room; 0: it has. Where it fails, the digest does not say.
	NextFree func(ctx context.Context) (time.Duration, error)

	Timeout time.Duration // for one attempt of the Publisher; 0: 15 s
	Lease   time.Duration // how long a try may take before its replica counts as dead; 0: twice Timeout and 10 s
	Log     *zap.Logger   // nil: none
}

// Digest posts, in turns with those of other replicas. Its Run is for one goroutine.
type Digest struct {
	config Config
	store  *store
	log    *zap.Logger
	token  string        // of the try that is under way
	wait   time.Duration // firstBackoff
}

// New makes a Digest; nothing is asked of Redis before Run.
func New(config Config) (*Digest, error) {
	keys, err := stats.NewKeys(config.Namespace)
	if err != nil {
		return nil, err
	}
	if config.Interval < time.Millisecond || config.Interval > MaxInterval {
		return nil, fmt.Errorf("digest interval %s, expected 1ms to %s", config.Interval, ratelimit.ShortDuration(MaxInterval))
	}
	if config.Timeout <= 0 {
		config.Timeout = defaultTimeout
	}
	if config.Lease <= 0 {
		config.Lease = 2*config.Timeout + 10*time.Second
	}
	if config.Log == nil {
		config.Log = zap.NewNop()
	}
	return &Digest{config: config, store: newStore(config.Redis, keys), log: config.Log, token: rand.Text(), wait: firstBackoff}, nil
}

// Run posts until ctx ends. A post that is under way then is brought to its end first, so that it is neither repeated
// nor in doubt: that takes as long as the Timeout and some seconds at most.
func (d *Digest) Run(ctx context.Context) {
	for {
		wait := d.turn(ctx)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// poll is how long to wait where nothing else is known.
func (d *Digest) poll() time.Duration {
	return min(longestPoll, max(d.config.Interval/4, time.Millisecond))
}

// turn makes a try if it is time for one, and says how long to wait before the next look.
func (d *Digest) turn(ctx context.Context) time.Duration {
	pause, err := d.config.Pause.Remaining(ctx)
	if err != nil {
		return d.noRedis(ctx, err)
	}
	if pause > 0 {
		return min(pause, longestPoll)
	}
	taken, err := d.store.take(ctx, d.token, d.config.Lease, d.config.Interval)
	if err != nil {
		return d.noRedis(ctx, err)
	}
	switch taken.verdict {
	case verdictMine:
		return d.try(ctx, taken)
	case verdictLeft:
		d.inDoubt(taken, "a replica ended while it was posting the digest")
		left := taken.posting.at.Add(d.config.Interval).Sub(taken.now)
		d.finish(ctx, ending{told: true, wait: max(left, 0), message: keepMessage})
		return d.poll()
	}
	if taken.wait < 0 { // nothing to tell
		return d.poll()
	}
	return min(max(taken.wait, time.Millisecond), longestPoll)
}

// noRedis logs why Redis could not be asked. It is asked again with the same token: it may have run the script.
func (d *Digest) noRedis(ctx context.Context, err error) time.Duration {
	if ctx.Err() == nil {
		d.log.Warn("the digest waits for Redis", zap.Error(err))
	}
	return d.poll()
}
