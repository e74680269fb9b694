package recent

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"notifier/internal/wait"
)

const (
	queued       = 512 // outcomes that wait to be published; what comes above that is left out
	atOnce       = 64  // records whose acknowledgements are waited for together
	lookAgain    = 250 * time.Millisecond
	ackTimeout   = 5 * time.Second
	apiTimeout   = 5 * time.Second
	flushTimeout = 2 * time.Second // how long a recorder goes on after its end
	mostTries    = 5               // of a record that is not acknowledged
	firstPause   = time.Second     // after a failure; it doubles
	lastPause    = 30 * time.Second
	reportPause  = 10 * time.Second // between two lines that say that nothing is recorded
)

// Config is what a Recorder needs.
type Config struct {
	Place      Place
	Connection *nats.Conn // Recorder.Denied must get what the server denies on it
	Replicas   int        // of the stream, if it is created; 0: three in a cluster of three servers or more, else one
	Log        *zap.Logger
}

// Recorder writes outcomes into their stream, and creates that if it is absent. It never keeps its caller waiting: while the
// stream cannot be written, outcomes are left out, counted, and logged once.
type Recorder struct {
	Config
	js     jetstream.JetStream
	budget *budget
	queue  chan Outcome
	name   string // of this recorder, unique; with a number it names each record
	count  uint64

	// What follows is used by Run alone.
	batch    []record // to be published, the oldest first
	look     bool     // the stream is to be looked for before anything is published
	pause    time.Duration
	reported time.Time
	lost     bool // it was reported that nothing is recorded

	mu       sync.Mutex
	asking   context.CancelCauseFunc // of the request about the stream that is under way
	pending  map[string]error        // subjects that are published to, and why the server denies it
	denied   chan struct{}           // has room for one
	firstGap time.Duration
	lastGap  time.Duration
	quiet    time.Duration
}

// record is an outcome on its way.
type record struct {
	Outcome
	id    string
	tries int
}

// NewRecorder makes a recorder, which does nothing before Run.
func NewRecorder(config Config) (*Recorder, error) {
	js, err := jetstream.New(config.Connection, jetstream.WithDefaultTimeout(apiTimeout), jetstream.WithPublishAsyncTimeout(ackTimeout))
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	return &Recorder{
		Config: config, js: js, budget: newBudget(), queue: make(chan Outcome, queued), name: rand.Text()[:12], look: true,
		pending: map[string]error{}, denied: make(chan struct{}, 1), firstGap: firstPause, lastGap: lastPause, quiet: reportPause,
	}, nil
}

// Record takes an outcome, or leaves it out. It returns at once, and is safe for concurrent use. A nil Recorder records nothing.
func (r *Recorder) Record(o Outcome) {
	if r == nil || !r.budget.take(&o, time.Now()) {
		return
	}
	select {
	case r.queue <- o:
	default:
		r.budget.giveBack(&o)
	}
}

// LeftOut is how many outcomes were not recorded so far.
func (r *Recorder) LeftOut() uint64 {
	if r == nil {
		return 0
	}
	return r.budget.total()
}

// Denied takes the subject that the server has denied to the connection, with its error, and reports whether the recorder has
// published there. It logs that itself.
func (r *Recorder) Denied(subject string, err error) bool {
	if r == nil || !r.Place.writes(subject) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, published := r.pending[subject]; published {
		r.pending[subject] = err
		select {
		case r.denied <- struct{}{}:
		default:
		}
	} else if r.asking != nil {
		r.asking(err)
	}
	return true
}

// Run records until ctx ends, and then what is queued, within flushTimeout.
func (r *Recorder) Run(ctx context.Context) {
	ticker := time.NewTicker(lookAgain)
	defer ticker.Stop()
	for ticking := true; ctx.Err() == nil; {
		if r.look && r.Connection.IsConnected() {
			r.ensure(ctx)
		}
		switch needed := r.look || r.budget.waits(); { // an idle worker sleeps
		case needed && !ticking:
			ticker.Reset(lookAgain)
			ticking = true
		case !needed && ticking:
			ticker.Stop()
			ticking = false
		}
		select {
		case <-ctx.Done():
		case o := <-r.queue:
			r.add(o)
		case <-r.budget.filled:
		case now := <-ticker.C:
			for _, o := range r.budget.due(now, atOnce) {
				r.add(o)
			}
		}
		r.work(ctx)
	}
	r.flush()
}

// work publishes what there is, and returns when nothing is left or ctx ends.
func (r *Recorder) work(ctx context.Context) {
	for r.gather(); len(r.batch) > 0 && ctx.Err() == nil; r.gather() {
		if !r.Connection.IsConnected() {
			wait.For(ctx, lookAgain) // the queue keeps what is new, as far as there is room
		} else if !r.write(ctx) {
			wait.For(ctx, r.nextPause())
		}
	}
}

// flush publishes what is left when the worker ends, as far as that is soon done.
func (r *Recorder) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	for _, o := range r.budget.due(time.Now(), atOnce) {
		r.add(o)
	}
	r.gather()
	if r.look && len(r.batch) > 0 && r.Connection.IsConnected() {
		r.ensure(ctx)
	}
	for r.gather(); len(r.batch) > 0 && r.Connection.IsConnected() && r.write(ctx); r.gather() {
	}
	for i := range r.batch {
		r.budget.giveBack(&r.batch[i].Outcome)
	}
}

func (r *Recorder) add(o Outcome) {
	r.count++
	r.batch = append(r.batch, record{Outcome: o, id: r.name + "." + strconv.FormatUint(r.count, 10)})
}

// gather fills the batch with what is queued.
func (r *Recorder) gather() {
	for len(r.batch) < atOnce {
		select {
		case o := <-r.queue:
			r.add(o)
		default:
			return
		}
	}
}

// nextPause is how long to wait after a failure.
func (r *Recorder) nextPause() time.Duration {
	r.pause = min(max(r.firstGap, 2*r.pause), r.lastGap)
	return wait.Jitter(r.pause)
}

// failed reports, once, why outcomes are not recorded.
func (r *Recorder) failed(err error) {
	if r.lost || time.Since(r.reported) < r.quiet {
		return
	}
	r.lost, r.reported = true, time.Now()
	r.Log.Warn("outcomes are not recorded", zap.String("stream", r.Place.Stream), zap.Error(err), zap.String("advice", advice(err)))
}

// worked reports, once, that outcomes are recorded again.
func (r *Recorder) worked() {
	r.pause = 0
	if r.lost {
		r.lost = false
		r.Log.Info("outcomes are recorded again", zap.String("stream", r.Place.Stream), zap.Uint64("left_out", r.budget.total()))
	}
}
