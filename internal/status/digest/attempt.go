package digest

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.uber.org/zap"

	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
	"notifier/internal/status/stats"
)

// attempt is one attempt to report what was dropped, by a replica that has the lease and a permit to post.
type attempt struct {
	snapshot
	token string // of the lease
}

// report makes the attempt, and returns how long to wait before the next turn. The end of ctx does not cut it
// short.
func (d *Digest) report(ctx context.Context, a attempt) time.Duration {
	if a.invalid != nil {
		d.log.Warn("the digest cannot be built", zap.Error(a.invalid))
		d.answered(ctx, a, ratelimit.Answer{})
		return d.failed(ctx, a, 0)
	}
	last, err := decodeMessage(a.message)
	if err != nil {
		d.log.Warn("the last digest is not edited", zap.String("key", d.store.keys.Message()), zap.Error(err))
	}
	free, sources := d.free(ctx, a.now), d.sources(ctx)
	call, cancel := detached(ctx, callTimeout)
	begun, err := d.store.begin(call, a.token, d.config.Lease, a.snapshot)
	cancel()
	if err != nil || !begun {
		d.answered(ctx, a, ratelimit.Answer{}) // nothing is posted with this permit
		d.log.Warn("the digest is not posted: its lease cannot be confirmed", zap.Error(err))
		return d.failed(ctx, a, 0)
	}
	if last.editable(d.config.Channel, a.now) {
		return d.edit(ctx, a, last, free, sources)
	}
	return d.postNew(ctx, a, free, sources)
}

// free returns the sentences about the next free slot, as far as the time is known, and about what is muted.
func (d *Digest) free(ctx context.Context, now time.Time) string {
	muted := ""
	if d.config.InForce != nil {
		muted = mutedText(now, d.config.InForce())
	}
	return strings.TrimSpace(d.nextFree(ctx, now) + " " + muted)
}

func (d *Digest) nextFree(ctx context.Context, now time.Time) string {
	if d.config.NextFree == nil {
		return ""
	}
	call, cancel := detached(ctx, callTimeout)
	defer cancel()
	wait, err := d.config.NextFree(call)
	if err != nil {
		return ""
	}
	return freeText(now, wait)
}

// sources is who has caused events in the last hour, as far as that is known.
func (d *Digest) sources(ctx context.Context) []stats.SourceSlot {
	if d.config.Sources == nil {
		return nil
	}
	call, cancel := detached(ctx, callTimeout)
	defer cancel()
	sources, err := d.config.Sources(call)
	if err != nil {
		return nil
	}
	return sources
}

// detached returns a context for one step of an attempt, which the end of ctx does not cut short.
func detached(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

func (d *Digest) postNew(
	ctx context.Context, a attempt, free string, sources []stats.SourceSlot,
) time.Duration {
	fresh := message{Asked: d.config.Channel, Posted: a.now, Since: a.since, Drops: a.drops}
	call, cancel := detached(ctx, d.config.Timeout)
	receipt, err := d.config.Publisher.PostText(call, d.config.Channel, fresh.text(a.now, free, sources))
	cancel()
	if err == nil {
		d.answered(ctx, a, ratelimit.Answer{Posted: true})
		fresh.Channel, fresh.TS = receipt.Channel, receipt.TS
		return d.reported(ctx, a, fresh)
	}
	failure := failureOf(err)
	switch failure.Class {
	case slackout.Ambiguous:
		d.answered(ctx, a, ratelimit.Answer{}) // Slack has taken it by now, or never will
		d.logAmbiguous(total(a.drops), failure.Code)
		return d.reported(ctx, a, message{})
	case slackout.RetryAfter:
		d.answered(ctx, a, ratelimit.Answer{RetryAfter: max(failure.RetryAfter, d.backoff(a))})
	default:
		d.answered(ctx, a, ratelimit.Answer{})
	}
	d.log.Warn("the digest could not be posted", zap.Error(err))
	return d.failed(ctx, a, failure.RetryAfter)
}

// edit adds what was dropped since to the last message.
func (d *Digest) edit(
	ctx context.Context, a attempt, last message, free string, sources []stats.SourceSlot,
) time.Duration {
	whole := last
	whole.Drops = merge(last.Drops, a.drops)
	update := func() error {
		call, cancel := detached(ctx, d.config.Timeout)
		defer cancel()
		return d.config.Publisher.UpdateText(call, whole.Channel, whole.TS, whole.text(a.now, free, sources))
	}
	err := update()
	if err != nil && failureOf(err).Class == slackout.Ambiguous {
		// Once more, with the same text in the same place, unless this replica is stopping.
		if ctx.Err() != nil || update() != nil {
			// Whatever the second one returns: the first may have arrived.
			d.logAmbiguous(total(a.drops), failureOf(err).Code)
			d.answered(ctx, a, ratelimit.Answer{})
			return d.reported(ctx, a, whole) // the next edit reports it again
		}
		err = nil
	}
	// A 429 too: edits have a limit of their own, which is not about posts.
	d.answered(ctx, a, ratelimit.Answer{})
	if err == nil {
		return d.reported(ctx, a, whole)
	}
	failure := failureOf(err)
	if failure.Class == slackout.Rejected || failure.Class == slackout.Credentials {
		// It was deleted, or may no longer be edited, or this token may not edit at all. A new message reports the
		// drops, and shows whether the token is refused for that too.
		d.log.Info("the last digest cannot be edited, a new one is posted", zap.Error(err))
		d.finish(ctx, a, result{failures: a.failures})
		return 0
	}
	d.log.Warn("the digest could not be edited", zap.Error(err))
	return d.failed(ctx, a, failure.RetryAfter)
}

// failureOf returns the *slackout.Error in an error of the Publisher. Any other error may mean anything, so
// it is ambiguous.
func failureOf(err error) *slackout.Error {
	var failure *slackout.Error
	if errors.As(err, &failure) {
		return failure
	}
	return &slackout.Error{Class: slackout.Ambiguous, Code: "unknown_error"}
}

func (d *Digest) logAmbiguous(drops int64, why string) {
	d.log.Warn("the digest may not have arrived, and is not posted again",
		zap.String("reason", why), zap.Int64("drops", drops))
}

// answered records Slack's answer to the post, or that there will be none. It is called for every permit: the
// other posts wait for the one that probes after a pause. If Slack asks to wait, other posts wait too.
func (d *Digest) answered(ctx context.Context, a attempt, answer ratelimit.Answer) {
	call, cancel := detached(ctx, callTimeout)
	defer cancel()
	answer.Channel, answer.Name = d.config.Channel, a.post
	_, _, err := d.config.Permits.Answered(call, answer)
	if err != nil {
		d.log.Warn("Slack's answer to the digest could not be stored", zap.Error(err))
	}
}

// reported ends an attempt whose drops are reported, or assumed to be. posted is the message that can be
// edited, if any.
func (d *Digest) reported(ctx context.Context, a attempt, posted message) time.Duration {
	d.finish(ctx, a, result{reported: true, wait: d.config.Interval, message: posted.encode()})
	return d.poll()
}

// failed ends an attempt that has reported nothing. The next one, by any replica, is after a backoff and not
// before atLeast has passed.
func (d *Digest) failed(ctx context.Context, a attempt, atLeast time.Duration) time.Duration {
	wait := max(d.backoff(a), atLeast)
	d.finish(ctx, a, result{failures: a.failures + 1, wait: wait, message: a.message})
	return wait
}

// backoff is how long to wait after a failure if Slack does not ask for more.
func (d *Digest) backoff(a attempt) time.Duration {
	return min(d.wait<<min(a.failures, 10), longestBackoff)
}

// finish records how an attempt ended. It retries until Redis has the result or the lease has expired, or
// once if ctx has ended.
func (d *Digest) finish(ctx context.Context, a attempt, r result) {
	for deadline := time.Now().Add(d.config.Lease); ; {
		call, cancel := detached(ctx, callTimeout)
		done, err := d.store.finish(call, a.token, r)
		cancel()
		switch {
		case err == nil && done:
			return
		case err == nil:
			d.log.Warn("the digest took longer than its lease")
			return
		case ctx.Err() != nil || time.Now().After(deadline):
			d.log.Warn("the digest's result could not be recorded", zap.Error(err))
			return
		}
		select {
		case <-time.After(min(d.wait, d.config.Lease/4)):
		case <-ctx.Done():
		}
	}
}
