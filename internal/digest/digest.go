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
	"notifier/internal/steering"
	"notifier/internal/term"
)

// Bounds of the settings, and of waits.
const (
	MaxInterval = 24 * time.Hour // of Config.Interval

	longestPoll    = 30 * time.Second // between two checks for drops to report
	firstBackoff   = time.Second      // after the first failure; doubled with each further one, up to longestBackoff
	longestBackoff = 5 * time.Minute
	defaultTimeout = 15 * time.Second
	callTimeout    = 2 * time.Second // for one call of Redis
)

// Publisher makes one attempt to post a text in Slack's markup, or to replace the text of an earlier message. Errors are
// *slackout.Error. slackout.Poster implements it.
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

	// NextFree returns how long it takes until the global limit has room; 0: it has room. If it fails, the digest omits
	// the time.
	NextFree func(ctx context.Context) (time.Duration, error)

	// Sources returns who has caused events in the last hour, see stats.Reader.Sources. nil, or if it fails: the digest names nobody.
	Sources func(ctx context.Context) ([]stats.SourceSlot, error)

	// InForce returns what operators have asked for: the digest names the mutes. nil: nothing.
	InForce func() []steering.Order

	Timeout time.Duration // for one attempt of the Publisher; 0: 15 s
	Lease   time.Duration // how long an attempt may take before its replica counts as dead; 0: twice Timeout plus 10 s
	Log     *zap.Logger   // nil: none
}

// Digest posts digests, in turn with those of other replicas. Run may be called by one goroutine only.
type Digest struct {
	config Config
	store  *store
	log    *zap.Logger
	token  string        // of the current attempt
	post   string        // the name of its post; the same for all replicas, so that they take one turn in the pace
	shared string        // a post for which this replica has a permit, and which another one was making; empty: none
	wait   time.Duration // firstBackoff
}

// New returns a Digest, or an error that names the invalid setting. Redis is not called before Run.
func New(config Config) (*Digest, error) {
	keys, err := stats.NewKeys(config.Namespace)
	if err != nil {
		return nil, err
	}
	if config.Interval < time.Millisecond || config.Interval > MaxInterval {
		return nil, fmt.Errorf("digest interval %s, expected 1ms to %s", config.Interval, term.ShortDuration(MaxInterval))
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

// Run posts until ctx ends. A post in progress is completed first, so that it is neither repeated nor ambiguous: that
// takes at most the Timeout and a few seconds.
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

// turn makes an attempt if one is due, and returns how long to wait before the next check. The post's turn in the channel's
// pace comes before the lease, so that nothing is waited for while this replica has it.
func (d *Digest) turn(ctx context.Context) time.Duration {
	due, attempt, err := d.store.look(ctx, d.token, d.config.Lease, d.config.Interval)
	if err != nil {
		return d.redisFailed(ctx, err)
	}
	d.giveBackShared(ctx, attempt)
	d.post = attempt
	permitted := due.verdict == verdictAcquired
	if permitted {
		permit, err := d.config.Permits.Begin(ctx, ratelimit.Post{Channel: d.config.Channel, Name: attempt, Longest: d.config.Lease, First: true})
		if err != nil {
			return d.redisFailed(ctx, err)
		}
		if permit.Wait > 0 {
			return min(permit.Wait, longestPoll)
		}
	}
	taken, err := d.store.take(ctx, d.token, d.config.Lease, d.config.Interval)
	switch {
	case permitted && unused(taken, err, attempt):
		d.answered(ctx, "", 0)
	case permitted && taken.verdict == verdictNotNow:
		d.shared = attempt
	case taken.verdict == verdictAcquired:
		d.shared = ""
	}
	switch {
	case err != nil:
		return d.redisFailed(ctx, err)
	case taken.verdict == verdictAcquired && !permitted: // it has become due since the look
		d.finish(ctx, result{failures: taken.failures, message: keepMessage})
		return 0
	}
	wait := d.taken(ctx, taken)
	if d.shared != "" {
		wait = min(wait, d.wait)
	}
	return wait
}

// unused reports whether the permit of this attempt is not used, by any replica: they share it. One that has taken the attempt
// since the look reports how its post ends, unless it has done so already.
func unused(t taken, err error, attempt string) bool {
	return err != nil || t.verdict == verdictAbandoned || (t.verdict == verdictNotNow && (t.wait < 0 || postOf(t) != attempt))
}

// giveBackShared gives a permit back when the replica that made the post has recorded its result: it may have reported the end of
// the post before this replica got the permit. attempt is the present one.
func (d *Digest) giveBackShared(ctx context.Context, attempt string) {
	if d.shared != "" && d.shared != attempt {
		d.post = d.shared
		d.answered(ctx, "", 0)
		d.shared = ""
	}
}

// taken goes on after take.
func (d *Digest) taken(ctx context.Context, t taken) time.Duration {
	switch t.verdict {
	case verdictAcquired:
		return d.attempt(ctx, t)
	case verdictAbandoned:
		d.logAmbiguous(t, "a replica died while it was posting the digest")
		left := t.posting.at.Add(d.config.Interval).Sub(t.now)
		d.finish(ctx, result{reported: true, wait: max(left, 0), message: keepMessage})
		return d.poll()
	}
	if t.wait < 0 { // nothing to report
		return d.poll()
	}
	return min(max(t.wait, time.Millisecond), longestPoll)
}

// redisFailed logs why the call of Redis failed. It is repeated with the same token: Redis may have run the script.
func (d *Digest) redisFailed(ctx context.Context, err error) time.Duration {
	if ctx.Err() == nil {
		d.log.Warn("the digest waits for Redis", zap.Error(err))
	}
	return d.poll()
}
