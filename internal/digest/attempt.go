package digest

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"go.uber.org/zap"

	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
	"notifier/internal/stats"
)

// attempt reports once what was taken, and returns how long to wait before the next check. The end of ctx does not cut it
// short.
func (d *Digest) attempt(ctx context.Context, t taken) time.Duration {
	if t.posting.err != nil {
		d.log.Warn("the digest cannot be built", zap.Error(t.posting.err))
		d.answered(ctx, "", 0)
		return d.failed(ctx, t, 0, keepMessage)
	}
	last, err := decodeMessage(t.message)
	if err != nil {
		d.log.Warn("the last digest is not edited", zap.String("key", d.store.keys.Message()), zap.Error(err))
	}
	free, sources := d.free(ctx, t.now), d.sources(ctx)
	call, cancel := detached(ctx, callTimeout)
	begun, err := d.store.begin(call, d.token)
	cancel()
	if err != nil || !begun {
		d.answered(ctx, "", 0) // nothing is posted with this permit
		d.log.Warn("the digest is not posted: its lease cannot be confirmed", zap.Error(err))
		return d.failed(ctx, t, 0, keepMessage)
	}
	if last.editable(d.config.Channel, t.now) {
		return d.edit(ctx, t, last, free, sources)
	}
	return d.postNew(ctx, t, free, sources)
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

func (d *Digest) postNew(ctx context.Context, t taken, free string, sources []stats.SourceSlot) time.Duration {
	fresh := message{Asked: d.config.Channel, Posted: t.now, Since: t.posting.since, Drops: t.posting.drops}
	call, cancel := detached(ctx, d.config.Timeout)
	receipt, err := d.config.Publisher.PostText(call, d.config.Channel, text(t.now.Sub(fresh.Since), fresh.Drops, free, blame{sources, fresh.Since}))
	cancel()
	if err == nil {
		d.answered(ctx, receipt.Channel, 0)
		fresh.Channel, fresh.TS = receipt.Channel, receipt.TS
		return d.reported(ctx, fresh)
	}
	failure := failureOf(err)
	switch failure.Class {
	case slackout.Ambiguous:
		d.answered(ctx, "", 0) // Slack has taken it by now, or never will
		d.logAmbiguous(t, failure.Code)
		return d.reported(ctx, message{})
	case slackout.RetryAfter:
		d.answered(ctx, "", max(failure.RetryAfter, d.backoff(t)))
	default:
		d.answered(ctx, "", 0)
	}
	d.log.Warn("the digest could not be posted", zap.Error(err))
	return d.failed(ctx, t, failure.RetryAfter, keepMessage)
}

// edit adds what was taken to the last message.
func (d *Digest) edit(ctx context.Context, t taken, last message, free string, sources []stats.SourceSlot) time.Duration {
	whole := last
	whole.Drops = merge(last.Drops, t.posting.drops)
	err := d.editOnce(ctx, whole, t.now, free, sources)
	if err != nil && failureOf(err).Class == slackout.Ambiguous {
		// Once more, with the same text in the same place, unless this replica is stopping.
		if ctx.Err() != nil || d.editOnce(ctx, whole, t.now, free, sources) != nil {
			d.logAmbiguous(t, failureOf(err).Code) // whatever the second one returns: the first may have arrived
			return d.reported(ctx, whole)          // the next edit reports it again
		}
		err = nil
	}
	d.answered(ctx, last.Channel, 0) // a 429 too: edits have a limit of their own, which is not about posts
	if err == nil {
		return d.reported(ctx, whole)
	}
	failure := failureOf(err)
	if failure.Class == slackout.Rejected || failure.Class == slackout.Credentials {
		// It was deleted, or may no longer be edited, or this token may not edit at all. A new message reports the drops,
		// and shows whether the token is refused for that too.
		d.log.Info("the last digest cannot be edited, a new one is posted", zap.Error(err))
		d.finish(ctx, result{failures: t.failures, message: forgetMessage})
		return 0
	}
	d.log.Warn("the digest could not be edited", zap.Error(err))
	return d.failed(ctx, t, failure.RetryAfter, keepMessage)
}

func (d *Digest) editOnce(ctx context.Context, m message, now time.Time, free string, sources []stats.SourceSlot) error {
	call, cancel := detached(ctx, d.config.Timeout)
	defer cancel()
	return d.config.Publisher.UpdateText(call, m.Channel, m.TS, text(now.Sub(m.Since), m.Drops, free, blame{sources, m.Since}))
}

// failureOf returns the *slackout.Error in an error of the Publisher. Any other error may mean anything, so it is ambiguous.
func failureOf(err error) *slackout.Error {
	var failure *slackout.Error
	if errors.As(err, &failure) {
		return failure
	}
	return &slackout.Error{Class: slackout.Ambiguous, Code: "unknown_error"}
}

func (d *Digest) logAmbiguous(t taken, why string) {
	d.log.Warn("the digest may not have arrived, and is not posted again", zap.String("reason", why),
		zap.Int64("drops", total(t.posting.drops)))
}

// answered records Slack's answer to the post, or that there will be none. It is called for every permit: the other posts wait
// for the one that probes after a pause. retryAfter is above 0 if Slack asks to wait: then other posts wait too.
func (d *Digest) answered(ctx context.Context, channelID string, retryAfter time.Duration) {
	call, cancel := detached(ctx, callTimeout)
	defer cancel()
	_, _, err := d.config.Permits.Answered(call, ratelimit.Answer{
		Channel: d.config.Channel, ID: channelID, Name: d.post, RetryAfter: retryAfter,
	})
	if err != nil {
		d.log.Warn("Slack's answer to the digest could not be stored", zap.Error(err))
	}
}

// reported ends an attempt whose drops are reported, or assumed to be. posted is the message that can be edited, if any.
func (d *Digest) reported(ctx context.Context, posted message) time.Duration {
	kept := forgetMessage
	if posted.TS != "" {
		kept = posted.encode()
	}
	d.finish(ctx, result{reported: true, wait: d.config.Interval, message: kept})
	return d.poll()
}

// failed ends an attempt that has reported nothing. The next one, by any replica, is after a backoff and not before atLeast
// has passed.
func (d *Digest) failed(ctx context.Context, t taken, atLeast time.Duration, kept string) time.Duration {
	wait := max(d.backoff(t), atLeast)
	d.finish(ctx, result{failures: t.failures + 1, wait: wait, message: kept})
	return min(wait, longestPoll)
}

// backoff is how long to wait after a failure if Slack does not ask for more.
func (d *Digest) backoff(t taken) time.Duration {
	return min(d.wait<<min(t.failures, 10), longestBackoff)
}

// finish records how an attempt ended. It retries until Redis has the result or the lease has expired, or once if ctx has
// ended.
func (d *Digest) finish(ctx context.Context, r result) {
	token := d.token
	d.token = rand.Text()
	for deadline := time.Now().Add(d.config.Lease); ; {
		call, cancel := detached(ctx, callTimeout)
		done, err := d.store.done(call, token, r)
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
