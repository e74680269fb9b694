package recent

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"notifier/internal/consume/streams"
	"notifier/internal/consume/wait"
)

const (
	lookAgain  = 250 * time.Millisecond // for room, or for a connection
	endTimeout = 2 * time.Second        // for what is left when a worker ends
	mostTries  = 5                      // of one record
	firstPause = time.Second            // after a failure; it grows with each further one
	lastPause  = 20 * time.Second       // or half as much again
)

// Config is what a Recorder needs.
type Config struct {
	Place      Place
	Connection *nats.Conn // its errors go to Recorder.Denied
	Replicas   int        // of the stream, if it is created; see streams.Maker
	Log        *zap.Logger
}

// Recorder writes outcomes to their stream, which it creates if it is absent. It never makes its caller wait:
// while the stream cannot be written to, outcomes are left out and counted, and the reason is logged once.
type Recorder struct {
	Config
	*denials
	js      jetstream.JetStream
	limiter *limiter
	added   chan struct{} // has room for one

	// Run alone uses what follows.
	pause   *backoff.ExponentialBackOff
	failing bool // and that is logged
}

// NewRecorder makes a recorder. It stores nothing before Run.
func NewRecorder(config Config) (*Recorder, error) {
	js, err := jetstream.New(config.Connection)
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = firstPause, lastPause
	stream := config.Place.Stream + `"`
	find, create := "$JS.API.STREAM.INFO."+stream, "$JS.API.STREAM.CREATE."+stream
	return &Recorder{
		Config:  config,
		denials: newDenials(config.Place.Subject+".", find, create),
		js:      js,
		limiter: newLimiter(),
		added:   make(chan struct{}, 1),
		pause:   pause,
	}, nil
}

// Record takes n outcomes of a kind, the oldest first, or leaves out some of them. build makes the i-th, and
// is called before Record returns, only for what is recorded or may be: in a storm hardly any is. It returns
// at once and is safe for concurrent use. A nil Recorder does nothing.
func (r *Recorder) Record(k Kind, n int, build func(i int) Outcome) {
	if r == nil {
		return
	}
	bounded := func(i int) Outcome { return build(i).bounded() }
	r.limiter.add(k, n, bounded, time.Now())
	select {
	case r.added <- struct{}{}:
	default:
	}
}

// LeftOut is how many outcomes were not recorded so far.
func (r *Recorder) LeftOut() uint64 {
	if r == nil {
		return 0
	}
	return r.limiter.leftOut()
}

// Run stores outcomes until ctx ends, and then what is queued, for endTimeout at most.
func (r *Recorder) Run(ctx context.Context) {
	storing, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() {
		wait.For(storing, endTimeout)
		end()
	})()
	r.prepare(ctx)
	for storing.Err() == nil {
		o, found, waits := r.limiter.next(time.Now())
		switch {
		case found:
			r.record(storing, o)
		case ctx.Err() != nil:
			return
		case waits:
			wait.For(ctx, lookAgain)
		default:
			select {
			case <-r.added:
			case <-ctx.Done():
			}
		}
	}
}

// prepare creates the stream before there is anything to record, so that a missing permission is known early.
// Where the stream exists, permission to publish is enough: outcomes are recorded all the same.
func (r *Recorder) prepare(ctx context.Context) {
	if !r.connected(ctx) {
		return
	}
	if err := r.request(ctx, r.findOrCreate); err != nil && ctx.Err() == nil {
		r.failed(err)
	}
}

// connected waits for the connection, and reports whether there is one before ctx ends.
func (r *Recorder) connected(ctx context.Context) bool {
	for !r.Connection.IsConnected() {
		if !wait.For(ctx, lookAgain) {
			return false
		}
	}
	return true
}

// record stores one outcome. Each failure is followed by a pause, so that a stream that takes nothing, or a
// permission that is missing, costs a request now and then.
func (r *Recorder) record(ctx context.Context, o Outcome) {
	id := rand.Text()
	for range mostTries {
		if !r.connected(ctx) {
			break
		}
		reconnects := r.Connection.Stats().Reconnects
		err := r.request(ctx, func(ctx context.Context) error { return r.store(ctx, o, id) })
		if err == nil {
			r.worked()
			return
		}
		interrupted := !r.Connection.IsConnected() || r.Connection.Stats().Reconnects != reconnects
		if ctx.Err() == nil && !interrupted { // a lost connection is logged elsewhere
			r.failed(err)
		}
		wait.For(ctx, r.pause.NextBackOff())
	}
	r.limiter.lose(o)
}

// request makes a request that ends in time, and when the server denies it.
func (r *Recorder) request(ctx context.Context, do func(context.Context) error) error {
	ctx, end := r.begin(ctx)
	defer end()
	err := do(ctx)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// store publishes a record, and creates the stream if there is none.
func (r *Recorder) store(ctx context.Context, o Outcome, id string) error {
	err := r.publish(ctx, o, id)
	if !errors.Is(err, jetstream.ErrNoStreamResponse) {
		return err
	}
	if err := r.findOrCreate(ctx); err != nil {
		return err
	}
	return r.publish(ctx, o, id)
}

// publish names the stream, so that no other one takes the record, and the record, so that a second try
// stores it once.
func (r *Recorder) publish(ctx context.Context, o Outcome, id string) error {
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = r.js.Publish(ctx, r.Place.subject(o.Category), data,
		jetstream.WithMsgID(id), jetstream.WithExpectStream(r.Place.Stream))
	return err
}

func (r *Recorder) findOrCreate(ctx context.Context) error {
	maker := streams.Maker{JetStream: r.js, Replicas: r.Replicas}
	stream, err := maker.Ensure(ctx, r.Place.Config())
	if err != nil {
		return fmt.Errorf("stream %s: %w", r.Place.Stream, err)
	}
	if mismatch := r.Place.Mismatch(stream.CachedInfo().Config); mismatch != "" {
		return errors.New(mismatch)
	}
	return nil
}

// failed reports, once, why outcomes are not recorded.
func (r *Recorder) failed(err error) {
	if r.failing {
		return
	}
	r.failing = true
	advice := "workers go on without it; see docs/runbook.md"
	if errors.Is(err, nats.ErrPermissionViolation) {
		advice = "give the user the permissions in docs/security.md"
	}
	r.Log.Warn("outcomes are not recorded",
		zap.String("stream", r.Place.Stream), zap.Error(err), zap.String("advice", advice))
}

// worked reports, once, that outcomes are recorded again.
func (r *Recorder) worked() {
	r.pause.Reset()
	if !r.failing {
		return
	}
	r.failing = false
	r.Log.Info("outcomes are recorded again",
		zap.String("stream", r.Place.Stream), zap.Uint64("left_out", r.limiter.leftOut()))
}
