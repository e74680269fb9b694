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
	"notifier/internal/status/stats"
	"notifier/internal/steering"
	"notifier/internal/term"
)

// Bounds of the settings, and of waits.
const (
	MaxInterval = 24 * time.Hour // of Config.Interval

	longestPoll = 30 * time.Second // between two checks for drops to report
	// after the first failure; doubled with each further one, up to longestBackoff
	firstBackoff   = time.Second
	longestBackoff = 5 * time.Minute
	callTimeout    = 2 * time.Second // for one call of Redis
)

// Publisher makes one attempt to post a text in Slack's markup, or to replace the text of an earlier message.
// Errors are *slackout.Error. slackout.Poster implements it.
type Publisher interface {
	PostText(ctx context.Context, channel, text string) (slackout.Receipt, error)
	UpdateText(ctx context.Context, channel, ts, text string) error
}

// Permits permits posts and learns how they ended. ratelimit.Limiter implements it.
type Permits interface {
	Begin(ctx context.Context, post ratelimit.Post) (ratelimit.Permit, error)
	Answered(ctx context.Context, answer ratelimit.Answer) (ratelimit.PauseScope, time.Duration, error)
}

// Config of a Digest.
type Config struct {
	Redis     redis.UniversalClient
	Namespace string        // as for stats.NewReader
	Interval  time.Duration // above 0, at most MaxInterval: at most one post in it, over all replicas
	Channel   string        // the channel to post to; a webhook posts to its own
	Publisher Publisher
	Permits   Permits

	// NextFree returns how long it takes until the global limit has room; 0: it has room. If it fails, the
	// digest omits the time.
	NextFree func(ctx context.Context) (time.Duration, error)

	// Sources returns who has caused events in the last hour, see stats.Reader.Sources. nil, or if it fails: the
	// digest names nobody.
	Sources func(ctx context.Context) ([]stats.SourceSlot, error)

	// InForce returns what operators have asked for: the digest names the mutes. nil: nothing.
	InForce func() []steering.Order

	Timeout time.Duration // for one attempt of the Publisher
	// how long an attempt may take before its replica counts as dead; 0: twice Timeout plus 10 s
	Lease time.Duration
	Log   *zap.Logger
}

// Digest posts digests, in turn with those of other replicas. Run may be called by one goroutine only.
type Digest struct {
	config Config
	store  *store
	log    *zap.Logger
	wait   time.Duration // firstBackoff
}

// New returns a Digest, or an error that names the invalid setting. Redis is not called before Run.
func New(config Config) (*Digest, error) {
	keys, err := stats.NewKeys(config.Namespace)
	if err != nil {
		return nil, err
	}
	if config.Interval < time.Millisecond || config.Interval > MaxInterval {
		return nil, fmt.Errorf(
			"digest interval %s, expected 1ms to %s",
			config.Interval,
			term.ShortDuration(MaxInterval),
		)
	}
	if config.Lease <= 0 {
		config.Lease = 2*config.Timeout + 10*time.Second
	}
	store := newStore(config.Redis, keys, max(config.Interval, config.Lease))
	return &Digest{config: config, store: store, log: config.Log, wait: firstBackoff}, nil
}

// Run posts until ctx ends. A post in progress is completed first, so that it is neither repeated nor
// ambiguous: that takes at most the Timeout and a few seconds.
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

// poll is how long to wait if nothing else determines it.
func (d *Digest) poll() time.Duration {
	return min(longestPoll, max(d.config.Interval/4, time.Millisecond))
}

// turn makes an attempt if one is due and this replica gets the lease, and returns how long to wait before
// the next turn. It has the lease for no longer than that takes: a replica that waits, for the interval or
// for its turn in the channel's pace, holds up no other.
func (d *Digest) turn(ctx context.Context) time.Duration {
	token := rand.Text()
	acquired, err := d.store.acquire(ctx, token, d.config.Lease)
	if acquired || err != nil {
		defer d.release(ctx, token)
	}
	wait := d.poll()
	if acquired {
		wait, err = d.withLease(ctx, token)
	}
	if err != nil {
		if ctx.Err() == nil {
			d.log.Warn("the digest waits for Redis", zap.Error(err))
		}
		return d.poll()
	}
	return min(wait, longestPoll)
}

// release gives up the lease, also when ctx has ended. If that fails, the lease expires.
func (d *Digest) release(ctx context.Context, token string) {
	call, cancel := detached(ctx, callTimeout)
	defer cancel()
	_ = d.store.release(call, token)
}

// withLease does what is due, and returns how long to wait before the next turn.
func (d *Digest) withLease(ctx context.Context, token string) (time.Duration, error) {
	read, err := d.store.read(ctx)
	if err != nil {
		return 0, err
	}
	a := attempt{snapshot: read, token: token}
	if a.died {
		d.logAmbiguous(a.doubtful, "a replica died while it was posting the digest")
		left := a.copied.Add(d.config.Interval).Sub(a.now)
		d.finish(ctx, a, result{reported: true, wait: max(left, 0), message: a.message})
		return d.poll(), nil
	}
	if len(a.fields) == 0 {
		return d.poll(), nil
	}
	if wait := d.store.wait(read, d.config.Interval); wait > 0 {
		return max(wait, time.Millisecond), nil
	}
	post := ratelimit.Post{Channel: d.config.Channel, Name: a.post, Longest: d.config.Lease, First: true}
	permit, err := d.config.Permits.Begin(ctx, post)
	if err != nil || permit.Wait > 0 {
		return permit.Wait, err
	}
	return d.report(ctx, a), nil
}
