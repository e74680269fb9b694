// Package digest posts a message about the events that were not sent, at most once in an interval:
//
//	Not sent in the last 30m: 412 events over a limit, 5 muted
//	• `errors`: 380 (370 category limit, 10 global limit)
//	• `deploys`: 32 (global limit)
//	Muted: `debug` 5
//
// Intervals are periods of Redis's clock. The Reporters of package report count the drops of a period in one
// hash. A few seconds after its end each worker tries to claim the period with SET NX, and the worker that
// succeeds reads the hash and posts one message. A period without drops has no message.
//
// The digest is best effort. It takes its turn in the channel's pace and waits for pauses, for at most an
// interval, but it retries nothing: a failure is one line in the log, which has a line for each dropped event
// anyway. It takes no slot of the limits.
package digest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
	"notifier/internal/status/report"
	"notifier/internal/term"
	"notifier/internal/wait"
)

// MaxInterval bounds Config.Interval.
const MaxInterval = 24 * time.Hour

const (
	maxPoll     = 30 * time.Second // between two readings of Redis's clock
	maxSettle   = 3 * time.Second  // in which the last counts of a period arrive
	callTimeout = 2 * time.Second  // of one call of Redis
	leaseMargin = 2 * time.Second  // beyond the timeout of a post
	minWait     = 100 * time.Millisecond
)

// Publisher posts a text in Slack's markup, in one attempt. Errors are *slackout.Error. slackout.Poster
// implements it.
type Publisher interface {
	PostText(ctx context.Context, channel, text string) (slackout.Receipt, error)
}

// Permits permits posts. ratelimit.Limiter implements it.
type Permits interface {
	Begin(ctx context.Context, post ratelimit.Post) (ratelimit.Permit, error)
	Answered(ctx context.Context, answer ratelimit.Answer) (ratelimit.PauseScope, time.Duration, error)
}

// Config configures a Digest.
type Config struct {
	Redis     redis.UniversalClient
	Namespace string        // as for ratelimit.New
	Replica   string        // unique among the workers
	Interval  time.Duration // a millisecond to MaxInterval; equal to report.Config.Digest
	Channel   string        // empty with a webhook
	Publisher Publisher
	Permits   Permits
	Timeout   time.Duration // of the post, above 0
	Log       *zap.Logger
}

// Digest posts the digests of one worker.
type Digest struct {
	config Config
	reader *report.Reader
	settle time.Duration
	tried  int64 // the last period that this worker tried to claim
}

// New returns a Digest. An error names the invalid field.
func New(config Config) (*Digest, error) {
	reader, err := report.NewReader(config.Redis, config.Namespace)
	if err != nil {
		return nil, err
	}
	if config.Interval < time.Millisecond || config.Interval > MaxInterval {
		return nil, fmt.Errorf("digest interval %s, expected 1ms to %s", config.Interval,
			term.ShortDuration(MaxInterval))
	}
	return &Digest{config: config, reader: reader, settle: min(maxSettle, config.Interval/2)}, nil
}

// Run posts until ctx is done. It finishes a post that has begun, which takes at most the timeout and a few
// seconds.
func (d *Digest) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if !wait.For(ctx, d.turn(ctx)) {
			return
		}
	}
}

// turn handles the last period if it has not yet, and returns the time until the next turn.
func (d *Digest) turn(ctx context.Context) time.Duration {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	now, err := d.reader.Now(call)
	cancel()
	poll := min(maxPoll, max(d.config.Interval/4, time.Millisecond))
	if err != nil {
		return poll // the worker logs that Redis is unavailable
	}
	current := report.Period(now.Add(-d.settle), d.config.Interval)
	ended := report.PeriodStart(current, d.config.Interval)
	// A worker that starts long after the end leaves the period alone: it is no longer the last interval.
	if current-1 != d.tried && now.Sub(ended) < max(d.config.Interval/2, 2*d.settle) {
		d.tried = current - 1
		if err := d.post(ctx, current-1, time.Now().Add(d.config.Interval)); err != nil && ctx.Err() == nil {
			d.config.Log.Warn("the digest is not posted", zap.Error(err))
		}
		return 0
	}
	return min(poll, max(ended.Add(d.config.Interval+d.settle).Sub(now), time.Millisecond))
}

var errNoTurn = errors.New("the channel was paused or had no room in its pace for an interval")

// post posts the digest of a period if this worker is the first to claim it.
func (d *Digest) post(ctx context.Context, period int64, deadline time.Time) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	first, err := d.reader.ClaimDrops(call, d.config.Interval, period, d.config.Replica)
	if err != nil || !first {
		return err
	}
	drops, err := d.reader.Drops(call, d.config.Interval, period)
	if err != nil || len(drops) == 0 {
		return err
	}
	name := "digest-" + rand.Text()
	if err := d.wait(ctx, name, deadline); err != nil {
		return err
	}
	detached := context.WithoutCancel(ctx) // the permit is taken
	call, cancel = context.WithTimeout(detached, d.config.Timeout)
	defer cancel()
	_, err = d.config.Publisher.PostText(call, d.config.Channel, text(d.config.Interval, drops))
	if unrecorded := d.record(detached, name, err); unrecorded != nil {
		d.config.Log.Warn("cannot record Slack's answer for the other workers", zap.Error(unrecorded))
	}
	return err
}

// wait waits for a permit to post. It takes the channel's next slot, before the events that wait for one.
func (d *Digest) wait(ctx context.Context, name string, deadline time.Time) error {
	for {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		permit, err := d.config.Permits.Begin(call, ratelimit.Post{
			Channel: d.config.Channel, Name: name, Longest: d.config.Timeout + leaseMargin, First: true,
		})
		cancel()
		if err != nil || permit.Status == ratelimit.Granted {
			return err
		}
		length := max(permit.Wait, minWait)
		if time.Now().Add(length).After(deadline) {
			return errNoTurn
		}
		if !wait.For(ctx, length) {
			return ctx.Err()
		}
	}
}

// record records the result of the post, because other posts wait for it. After a 429 all workers pause.
func (d *Digest) record(ctx context.Context, name string, result error) error {
	answer := ratelimit.Answer{Channel: d.config.Channel, Name: name, Posted: result == nil}
	var failure *slackout.Error
	if errors.As(result, &failure) && failure.Class == slackout.RetryAfter {
		answer.RetryAfter = max(failure.RetryAfter, time.Second)
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, _, err := d.config.Permits.Answered(call, answer)
	return err
}
