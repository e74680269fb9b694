package recent

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"notifier/internal/denial"
	"notifier/internal/outcome"
	"notifier/internal/streams"
	"notifier/internal/wait"
)

// Limits of one worker. A noisy kind fills about 8 MB of the stream in a day.
const (
	burst     = 100             // of one kind
	interval  = 5 * time.Second // between records of one kind after a burst: 12 a minute
	maxKinds  = 256             // with a limit of their own: publishers choose the names of categories
	maxQueued = 1024            // records not stored yet
	sweepWait = time.Second     // between searches for idle kinds
	tailWait  = 2 * interval    // between searches for kinds whose last events are left out
	maxBatch  = 64              // records published before their acknowledgements are awaited
	maxTries  = 3               // to store one record
	retryWait = 2 * time.Second // after a failure
	endWait   = 2 * time.Second // for queued records when a worker ends
)

// Config connects a Recorder to its stream.
type Config struct {
	Place      Place
	Connection *nats.Conn // its owner passes errors of the connection to Recorder.Denied
	Replicas   int        // of a new stream; see streams.Maker
	Log        *zap.Logger
}

// Kind identifies records that share a rate limit.
type Kind struct{ Category, Outcome, Reason string }

// tally is the state of one kind.
type tally struct {
	limit   *rate.Limiter
	leftOut uint64          // since the last record
	tail    *outcome.Record // the last one that Record left out, if no record followed
}

func newTally() *tally { return &tally{limit: rate.NewLimiter(rate.Every(interval), burst)} }

// Recorder publishes records to their stream, which it creates if it is absent. While the stream is
// unavailable or a limit is used up, records are left out and counted.
type Recorder struct {
	Config
	*denial.Watch
	js    jetstream.JetStream
	queue chan outcome.Record

	mu      sync.Mutex
	kinds   map[Kind]*tally
	others  *tally // shared by the kinds beyond maxKinds
	swept   time.Time
	leftOut uint64 // of all kinds, since the start; tails count until they are recorded

	// For Run alone.
	retryWait time.Duration
	endWait   time.Duration
	works     bool // the latest records were stored
	failing   bool // a failure is logged
}

// NewRecorder makes a recorder. It stores nothing until Run is called.
func NewRecorder(config Config) (*Recorder, error) {
	js, err := jetstream.New(config.Connection, jetstream.WithPublishAsyncTimeout(requestTimeout))
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	name := config.Place.Stream + `"`
	find, create := "$JS.API.STREAM.INFO."+name, "$JS.API.STREAM.CREATE."+name
	return &Recorder{
		Config:    config,
		Watch:     denial.NewWatch(config.Place.Subject+".", find, create),
		js:        js,
		queue:     make(chan outcome.Record, maxQueued),
		kinds:     map[Kind]*tally{},
		others:    newTally(),
		retryWait: retryWait,
		endWait:   endWait,
	}, nil
}

// Record queues up to n records of one kind, the oldest first, and counts the rest as left out. It never
// blocks. build makes record i; it is called during Record, and only for records that are queued and for the
// last one: in a storm these are few. Record is safe for concurrent use. A nil Recorder does nothing.
func (r *Recorder) Record(k Kind, n int, build func(i int) outcome.Record) {
	if r == nil {
		return
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tally(k, now)
	for i := range n {
		if len(r.queue) == cap(r.queue) || !t.limit.AllowN(now, 1) {
			r.leaveOut(t, uint64(n-i))
			last := bounded(build(n - 1))
			t.tail = &last
			return
		}
		r.enqueue(t, bounded(build(i)))
	}
}

// enqueue queues a record with the count of those left out before it. The queue has room, and r.mu is held.
func (r *Recorder) enqueue(t *tally, record outcome.Record) {
	record.LeftOut = t.leftOut
	t.leftOut, t.tail = 0, nil
	r.queue <- record
}

// recordTails records the last event of each kind that was left out. Otherwise a burst that ends would never
// report the events that were left out. It does nothing while the stream is unavailable.
func (r *Recorder) recordTails(now time.Time) {
	if !r.works {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.kinds {
		r.recordTail(t, now)
	}
	r.recordTail(r.others, now)
}

// recordTail records the tail of one kind, if there is one and the limit allows. r.mu is held.
func (r *Recorder) recordTail(t *tally, now time.Time) {
	if t.tail == nil || len(r.queue) == cap(r.queue) || !t.limit.AllowN(now, 1) {
		return
	}
	t.leftOut--
	r.leftOut--
	r.enqueue(t, *t.tail)
}

// tally returns the tally of a kind. r.mu is held.
func (r *Recorder) tally(k Kind, now time.Time) *tally {
	k.Category = short(k.Category, maxName)
	if t := r.kinds[k]; t != nil {
		return t
	}
	if len(r.kinds) >= maxKinds && now.Sub(r.swept) >= sweepWait {
		r.sweep(now)
	}
	if len(r.kinds) >= maxKinds {
		return r.others
	}
	t := newTally()
	r.kinds[k] = t
	return t
}

// sweep forgets idle kinds. A kind with its full burst is like a new one. r.mu is held.
func (r *Recorder) sweep(now time.Time) {
	r.swept = now
	for k, t := range r.kinds {
		if t.limit.TokensAt(now) >= burst {
			r.others.leftOut += t.leftOut
			r.others.tail = cmp.Or(t.tail, r.others.tail)
			delete(r.kinds, k)
		}
	}
}

// leaveOut counts records that are not stored. r.mu is held.
func (r *Recorder) leaveOut(t *tally, n uint64) {
	t.leftOut += n
	r.leftOut += n
}

// lose counts a record that could not be stored.
func (r *Recorder) lose(record outcome.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tally(Kind{record.Category, record.Outcome, record.Reason}, time.Now())
	r.leaveOut(t, 1)
	t.leftOut += record.LeftOut
}

// LeftOut returns how many records were left out since the start.
func (r *Recorder) LeftOut() uint64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leftOut
}

// Run stores records until ctx ends. Then it stores those in the queue, for two seconds at most.
func (r *Recorder) Run(ctx context.Context) {
	storing, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() {
		wait.For(storing, r.endWait)
		end()
	})()
	r.prepare(ctx)
	tails := time.NewTicker(tailWait)
	defer tails.Stop()
	for {
		select {
		case record := <-r.queue:
			r.store(storing, r.batch(record))
		case now := <-tails.C:
			r.recordTails(now)
		case <-ctx.Done():
			r.drain(storing)
			r.recordTails(time.Now().Add(interval)) // there is no time to wait for the limits
			r.drain(storing)
			return
		}
	}
}

// drain stores the records in the queue.
func (r *Recorder) drain(ctx context.Context) {
	for len(r.queue) > 0 {
		r.store(ctx, r.batch(<-r.queue))
	}
}

// prepare creates the stream before the first record, so that a missing permission is logged early.
func (r *Recorder) prepare(ctx context.Context) {
	ctx, end := begin(ctx, r.Watch)
	defer end()
	if err := r.ensure(ctx); err != nil && !errors.Is(context.Cause(ctx), context.Canceled) {
		r.failed(cmp.Or(context.Cause(ctx), err))
	}
}

// batch returns a record and those that are queued behind it, up to maxBatch. After a failure it returns one
// alone.
func (r *Recorder) batch(first outcome.Record) []outcome.Record {
	records := []outcome.Record{first}
	for r.works && len(records) < maxBatch {
		select {
		case record := <-r.queue:
			records = append(records, record)
		default:
			return records
		}
	}
	return records
}

// outgoing is a record on its way to the stream.
type outgoing struct {
	record outcome.Record
	msg    *nats.Msg
	id     string // lets the server drop a second copy
}

// store stores records or counts them as left out. It pauses after each failure, so that a full stream or a
// missing permission costs a request now and then.
func (r *Recorder) store(ctx context.Context, records []outcome.Record) {
	var left []outgoing
	for _, record := range records {
		data, err := json.Marshal(record)
		if err != nil {
			r.lose(record)
			continue
		}
		msg := nats.NewMsg(r.Place.subject(hash(record.EventID), record.Category))
		msg.Data = data
		left = append(left, outgoing{record, msg, rand.Text()})
	}
	for failures := 0; len(left) > 0 && failures < maxTries && ctx.Err() == nil; {
		n := len(left)
		if !r.works {
			n = 1
		}
		failed, err := r.publish(ctx, left[:n])
		left = slices.Concat(failed, left[n:])
		r.works = err == nil
		if r.works {
			r.recovered()
			continue
		}
		failures++
		if ctx.Err() == nil {
			r.failed(err)
		}
		wait.For(ctx, r.retryWait)
	}
	for _, m := range left {
		r.lose(m.record)
	}
}

// publish stores messages, and creates the stream first if necessary. It returns those that may not be
// stored, and why.
func (r *Recorder) publish(ctx context.Context, messages []outgoing) (left []outgoing, err error) {
	ctx, end := begin(ctx, r.Watch)
	defer end()
	// In the queue of nats.go the records would displace acknowledgements of events.
	if !wait.Until(ctx, wait.ConnectionCheck, r.Connection.IsConnected) {
		return messages, context.Cause(ctx)
	}
	left, err = r.publishOnce(ctx, messages)
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		if err = r.ensure(ctx); err == nil {
			left, err = r.publishOnce(ctx, left)
		}
	}
	if err != nil {
		return left, cmp.Or(context.Cause(ctx), err)
	}
	return nil, nil
}

// publishOnce publishes messages, and then waits for their acknowledgements. Expecting the stream keeps a
// record out of another stream with the same subjects.
func (r *Recorder) publishOnce(ctx context.Context, messages []outgoing) (left []outgoing, err error) {
	futures := make([]jetstream.PubAckFuture, len(messages))
	for i, m := range messages {
		futures[i], err = r.js.PublishMsgAsync(m.msg,
			jetstream.WithMsgID(m.id), jetstream.WithExpectStream(r.Place.Stream))
		if err != nil {
			return messages, err
		}
	}
	for i, future := range futures {
		var failure error
		select {
		case <-future.Ok():
			continue
		case failure = <-future.Err():
		case <-ctx.Done():
			failure = context.Cause(ctx)
		}
		left, err = append(left, messages[i]), failure
	}
	return left, err
}

// ensure finds or creates the stream. An account with less room gets a smaller one.
func (r *Recorder) ensure(ctx context.Context) error {
	maker, config := &streams.Maker{JetStream: r.js, Replicas: r.Replicas}, r.Place.Config()
	stream, err := maker.Ensure(ctx, config)
	for streams.IsTooLarge(err) && config.MaxBytes > MinBytes {
		config.MaxBytes /= 2
		stream, err = maker.Ensure(ctx, config)
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", r.Place.Stream, err)
	}
	if mismatch := r.Place.mismatch(stream.CachedInfo().Config); mismatch != "" {
		return errors.New(mismatch)
	}
	return nil
}

// failed logs the first failure.
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

// recovered logs the first success after failures.
func (r *Recorder) recovered() {
	if !r.failing {
		return
	}
	r.failing = false
	r.Log.Info("outcomes are recorded again",
		zap.String("stream", r.Place.Stream), zap.Uint64("left_out", r.LeftOut()))
}
