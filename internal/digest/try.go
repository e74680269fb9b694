package digest

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"go.uber.org/zap"

	"notifier/internal/slackout"
)

// try tells what was taken, once, and says when to look again. The end of ctx does not cut it off.
func (d *Digest) try(ctx context.Context, t taken) time.Duration {
	if t.posting.err != nil {
		d.log.Warn("the digest cannot be made", zap.Error(t.posting.err))
		return d.failed(ctx, t, 0, keepMessage)
	}
	last, err := decodeMessage(t.message)
	if err != nil {
		d.log.Warn("the last digest is not edited", zap.String("key", d.store.keys.Message()), zap.Error(err))
	}
	free := d.free(ctx, t.now)
	call, cancel := detached(ctx, callTimeout)
	begun, err := d.store.begin(call, d.token)
	cancel()
	if err != nil || !begun {
		d.log.Warn("the digest is not posted: its lease cannot be held", zap.Error(err))
		return d.failed(ctx, t, 0, keepMessage)
	}
	if last.editable(d.config.Channel, t.now) {
		return d.edit(ctx, t, last, free)
	}
	return d.post(ctx, t, free)
}

// free is the sentence about the next free slot, or empty where nobody knows.
func (d *Digest) free(ctx context.Context, now time.Time) string {
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

// detached is a context for one step of a try, which the end of ctx does not cut off.
func detached(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

func (d *Digest) post(ctx context.Context, t taken, free string) time.Duration {
	fresh := message{Asked: d.config.Channel, Posted: t.now, Since: t.posting.since, Drops: t.posting.drops}
	attempt, cancel := detached(ctx, d.config.Timeout)
	receipt, err := d.config.Publisher.PostText(attempt, d.config.Channel, text(t.now.Sub(fresh.Since), fresh.Drops, free))
	cancel()
	if err == nil {
		fresh.Channel, fresh.TS = receipt.Channel, receipt.TS
		return d.told(ctx, fresh)
	}
	failure := failureOf(err)
	switch failure.Class {
	case slackout.Ambiguous:
		d.inDoubt(t, failure.Code)
		return d.told(ctx, message{})
	case slackout.RetryAfter:
		d.extendPause(ctx, failure.RetryAfter)
	}
	d.log.Warn("the digest could not be posted", zap.Error(err))
	return d.failed(ctx, t, failure.RetryAfter, keepMessage)
}

// edit puts the last message and what was taken into one.
func (d *Digest) edit(ctx context.Context, t taken, last message, free string) time.Duration {
	whole := last
	whole.Drops = merge(last.Drops, t.posting.drops)
	err := d.editOnce(ctx, whole, t.now, free)
	if err != nil && failureOf(err).Class == slackout.Ambiguous {
		// Once more, with the same text in the same place, unless this replica has to end.
		if ctx.Err() != nil || d.editOnce(ctx, whole, t.now, free) != nil {
			d.inDoubt(t, failureOf(err).Code) // whatever the second one says: the first may have arrived
			return d.told(ctx, whole)         // the next edit tells it again
		}
		err = nil
	}
	if err == nil {
		return d.told(ctx, whole)
	}
	failure := failureOf(err)
	if failure.Class == slackout.Rejected || failure.Class == slackout.Credentials {
		// It was deleted, or may not be edited any more, or this token may not edit at all. A new message will tell, and
		// whether the token is refused for that too.
		d.log.Info("the last digest cannot be edited, a new one is posted", zap.Error(err))
		d.finish(ctx, ending{failures: t.failures, message: forgetMessage})
		return 0
	}
	d.log.Warn("the digest could not be edited", zap.Error(err))
	return d.failed(ctx, t, failure.RetryAfter, keepMessage)
}

func (d *Digest) editOnce(ctx context.Context, m message, now time.Time, free string) error {
	attempt, cancel := detached(ctx, d.config.Timeout)
	defer cancel()
	return d.config.Publisher.UpdateText(attempt, m.Channel, m.TS, text(now.Sub(m.Since), m.Drops, free))
}

// failureOf is what an error of the Publisher means. One of another kind may mean anything, so it is in doubt.
func failureOf(err error) *slackout.Error {
	var failure *slackout.Error
	if errors.As(err, &failure) {
		return failure
	}
	return &slackout.Error{Class: slackout.Ambiguous, Code: "unknown_error"}
}

func (d *Digest) inDoubt(t taken, why string) {
	d.log.Warn("the digest may not have arrived, and is not posted again", zap.String("reason", why),
		zap.Int64("drops", total(t.posting.drops)))
}

func (d *Digest) extendPause(ctx context.Context, by time.Duration) {
	call, cancel := detached(ctx, callTimeout)
	defer cancel()
	if by <= 0 {
		return // Slack has named no time
	}
	if err := d.config.Pause.Extend(call, by); err != nil {
		d.log.Warn("the pause that Slack asks for could not be noted", zap.Error(err))
	}
}

// told ends a try whose drops are told, or taken for told.
func (d *Digest) told(ctx context.Context, said message) time.Duration {
	kept := forgetMessage
	if said.TS != "" {
		kept = said.encode()
	}
	d.finish(ctx, ending{told: true, wait: d.config.Interval, message: kept})
	return d.poll()
}

// failed ends a try that has told nothing. The next one is at least a while later, for all replicas.
func (d *Digest) failed(ctx context.Context, t taken, atLeast time.Duration, kept string) time.Duration {
	backoff := min(d.wait<<min(t.failures, 10), longestBackoff)
	wait := max(backoff, atLeast)
	d.finish(ctx, ending{failures: t.failures + 1, wait: wait, message: kept})
	return min(wait, longestPoll)
}

// finish notes how a try ended, until Redis has taken the note or the lease has run out. When ctx has ended it tries
// once.
func (d *Digest) finish(ctx context.Context, end ending) {
	token := d.token
	d.token = rand.Text()
	for deadline := time.Now().Add(d.config.Lease); ; {
		call, cancel := detached(ctx, callTimeout)
		done, err := d.store.done(call, token, end)
		cancel()
		switch {
		case err == nil && done:
			return
		case err == nil:
			d.log.Warn("the digest took longer than its lease")
			return
		case ctx.Err() != nil || time.Now().After(deadline):
			d.log.Warn("how the digest went could not be noted", zap.Error(err))
			return
		}
		select {
		case <-time.After(min(d.wait, d.config.Lease/4)):
		case <-ctx.Done():
		}
	}
}
