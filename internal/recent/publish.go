package recent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/streams"
)

// errUnusable is why a stream that exists cannot be used.
var errUnusable = errors.New("this stream cannot be used")

// ensure looks for the stream and creates it if it is absent. It may fail for lack of a permission where everything exists and can
// be published to, so publishing is tried all the same.
func (r *Recorder) ensure(ctx context.Context) {
	if err := r.findOrCreate(ctx); err != nil && ctx.Err() == nil {
		r.failed(err)
	}
	r.look = ctx.Err() != nil // the end of a worker cut it short: flush looks again
}

func (r *Recorder) findOrCreate(ctx context.Context) error {
	var stream jetstream.Stream
	err := r.ask(ctx, func(ctx context.Context) (err error) {
		stream, err = streams.Maker{JetStream: r.js, Replicas: r.Replicas}.Ensure(ctx, r.Place.Config())
		return err
	})
	if err != nil {
		return fmt.Errorf("stream %s: %w", r.Place.Stream, err)
	}
	if mismatch := r.Place.Mismatch(stream.CachedInfo().Config); mismatch != "" {
		return fmt.Errorf("%w: %s", errUnusable, mismatch)
	}
	return nil
}

// ask makes a request, which also ends when the server denies it.
func (r *Recorder) ask(ctx context.Context, request func(context.Context) error) error {
	ctx, stop := context.WithTimeout(ctx, apiTimeout)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.setAsking(cancel)
	defer r.setAsking(nil)
	err := request(ctx)
	if err != nil && errors.Is(context.Cause(ctx), nats.ErrPermissionViolation) {
		return context.Cause(ctx)
	}
	return err
}

func (r *Recorder) setAsking(cancel context.CancelCauseFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asking = cancel
}

// write publishes the batch, or after a failure one record of it, and reports whether all of that is recorded. What can still be
// is kept; what cannot is left out.
func (r *Recorder) write(ctx context.Context) bool {
	n := len(r.batch)
	if r.pause > 0 {
		n = 1 // one is enough to see whether it works again
	}
	attempt, kept := r.batch[:n], []record{}
	var failure error
	for i, err := range r.publish(ctx, attempt) {
		if err == nil {
			continue
		}
		failure = err
		if attempt[i].tries++; again(err) && attempt[i].tries < mostTries && time.Since(attempt[i].Time) < MaxAge {
			kept = append(kept, attempt[i])
		} else {
			r.budget.giveBack(&attempt[i].Outcome)
		}
	}
	r.batch = append(kept, r.batch[n:]...)
	switch {
	case failure == nil:
		r.worked()
		return true
	case ctx.Err() != nil, errors.Is(failure, nats.ErrDisconnected), errors.Is(failure, nats.ErrConnectionClosed):
		return false // of which others report
	case errors.Is(failure, jetstream.ErrNoStreamResponse):
		r.recreate(ctx)
	default:
		r.failed(failure)
	}
	return false
}

// recreate is what to do when no stream takes the records.
func (r *Recorder) recreate(ctx context.Context) {
	if err := r.findOrCreate(ctx); err != nil && ctx.Err() == nil {
		r.failed(err)
		return
	}
	r.pause = 0 // at once
}

// again reports whether a record that was not stored may be stored the next time.
func again(err error) bool {
	refused := (*jetstream.APIError)(nil)
	return !errors.As(err, &refused) && !errors.Is(err, nats.ErrPermissionViolation) && !errors.Is(err, nats.ErrMaxPayload) &&
		!errors.Is(err, nats.ErrBadSubject) && !errors.Is(err, errUnencodable)
}

var (
	errUnencodable = errors.New("it cannot be written as JSON")
	errNoAnswer    = errors.New("the stream does not acknowledge records")
)

// publish publishes records and returns for each why it is not stored, or nil.
func (r *Recorder) publish(ctx context.Context, records []record) []error {
	errs, futures := make([]error, len(records)), make([]jetstream.PubAckFuture, len(records))
	r.expect(records)
	defer r.expect(nil)
	for i := range records {
		futures[i], errs[i] = r.publishOne(&records[i])
	}
	timeout := time.NewTimer(ackTimeout)
	defer timeout.Stop()
	for i, future := range futures {
		if errs[i] == nil {
			errs[i] = r.stored(ctx, r.Place.subject(records[i].Category), future, timeout.C)
		}
	}
	return errs
}

// publishOne publishes a record. It names the stream, so that no other one takes it.
func (r *Recorder) publishOne(rec *record) (jetstream.PubAckFuture, error) {
	data, err := rec.encode()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnencodable, err)
	}
	message := &nats.Msg{Subject: r.Place.subject(rec.Category), Data: data}
	return r.js.PublishMsgAsync(message, jetstream.WithMsgID(rec.id), jetstream.WithExpectStream(r.Place.Stream))
}

// expect notes what is published to, until it is called with nothing.
func (r *Recorder) expect(records []record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.pending)
	for i := range records {
		r.pending[r.Place.subject(records[i].Category)] = nil
	}
	select {
	case <-r.denied:
	default:
	}
}

// stored waits until a record is stored, or the server has denied its subject.
func (r *Recorder) stored(ctx context.Context, subject string, future jetstream.PubAckFuture, timeout <-chan time.Time) error {
	for {
		r.mu.Lock()
		denied := r.pending[subject]
		r.mu.Unlock()
		if denied != nil {
			return denied
		}
		select {
		case <-future.Ok():
			return nil
		case err := <-future.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout:
			return errNoAnswer
		case <-r.denied:
		}
	}
}

// advice is what to do about a failure.
func advice(err error) string {
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		return "give the user the permissions in docs/security.md"
	case errors.Is(err, errUnusable):
		return "rename that stream, or set NATS_STREAM to another name"
	}
	return "workers go on without it; see docs/operations.md"
}
