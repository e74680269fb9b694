package report

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"notifier/internal/outcome"
	"notifier/internal/snapshot"
	"notifier/lua"
)

const (
	callTimeout  = time.Second     // of one pipeline
	finalTimeout = 2 * time.Second // of the last one
	remindEvery  = time.Minute     // between two log lines about one outage
)

// Config configures a Reporter.
type Config struct {
	Redis     redis.UniversalClient
	Namespace string // as for ratelimit.New
	Replica   string // unique among the workers; the ID in its snapshots

	// Snapshot returns the heartbeat. The Reporter calls it once a second from one goroutine. If it is nil, the
	// worker has no heartbeat.
	Snapshot func() snapshot.Snapshot

	// Digest is the interval of the digest, for which drops are counted. Zero means no digest.
	Digest time.Duration

	Log *zap.Logger
}

// Reporter reports one worker. It is safe for concurrent use.
type Reporter struct {
	config Config
	keys   keys
	now    *redis.Script
	every  time.Duration // between two pipelines

	mu     sync.Mutex
	counts map[Count]int64 // since the last pipeline; N is zero in the keys
	drops  map[Drop]int64  // likewise

	// Names that the counts of the present tally use, and the tally's number, zero before the first pipeline.
	categories  names
	sources     map[string]*names // by category
	sourceCount int               // of all categories
	tally       int64

	// Likewise for the digest.
	dropped names // categories
	digest  int64

	// Only Run uses the rest.
	clock  clock
	outage outage
}

// New returns a Reporter. An error names the invalid field.
func New(config Config) (*Reporter, error) {
	keys, err := newKeys(config.Namespace)
	if err != nil {
		return nil, err
	}
	if config.Replica == "" || len(config.Replica) > maxIDBytes {
		return nil, fmt.Errorf("worker %q, expected a name of at most %d bytes", config.Replica, maxIDBytes)
	}
	if config.Digest != 0 && config.Digest < time.Millisecond {
		return nil, errors.New("the interval of the digest is below a millisecond")
	}
	r := &Reporter{config: config, keys: keys, now: redis.NewScript(lua.Now), every: time.Second}
	r.counts, r.drops = map[Count]int64{}, map[Drop]int64{}
	r.sources = map[string]*names{}
	return r, nil
}

// Observe counts n events that ended alike. Category and source are as the publisher wrote them. It counts in
// memory only.
func (r *Reporter) Observe(became, reason, category, source string, n int) {
	category, source = outcome.CategoryName(category), outcome.CategoryName(source)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.config.Digest > 0 && became == outcome.Dropped && inDigest(reason) {
		r.drops[Drop{Reason: reason, Category: r.dropped.keep(category, MaxCategories)}] += int64(n)
	}
	category = r.categories.keep(category, MaxCategories)
	if source != "" {
		of := r.sources[category]
		if of == nil {
			of = &names{}
			r.sources[category] = of
		}
		before := len(*of)
		source = of.keep(source, min(MaxSources, before+maxAllSources-r.sourceCount))
		r.sourceCount += len(*of) - before
	}
	r.counts[Count{Category: category, Outcome: became, Reason: reason, Source: source}] += int64(n)
}

// inDigest reports whether the digest counts drops of this reason: nobody misses duplicates and expired
// events in Slack.
func inDigest(reason string) bool {
	return reason == outcome.Muted || slices.Contains(outcome.LimitReasons(), reason)
}

// names holds the first names that occurred, up to a bound.
type names map[string]string

// keep returns the name, or outcome.OtherCategories if there are max others already or the name cannot be
// stored. It copies a new name, which may be a part of a large message.
func (n *names) keep(name string, max int) string {
	if kept, known := (*n)[name]; known {
		return kept
	}
	if len(*n) >= max || len(name) > maxNameBytes || strings.Contains(name, separator) {
		return outcome.OtherCategories
	}
	if *n == nil {
		*n = names{}
	}
	name = strings.Clone(name)
	(*n)[name] = name
	return name
}

// separator separates the names in a field. Names that contain it count as outcome.OtherCategories.
const separator = "\t"

// clock is Redis's clock as of the last reply.
type clock struct{ server, local time.Time }

func (c clock) known() bool    { return !c.local.IsZero() }
func (c clock) now() time.Time { return c.server.Add(time.Since(c.local)) }

// Run reports until ctx is done, then once more within two seconds, which removes the heartbeat. It never
// fails; it logs an outage that lasts for more than a minute.
func (r *Reporter) Run(ctx context.Context) {
	detached := context.WithoutCancel(ctx) // a cancelled pipeline would lose its counts
	ticker := time.NewTicker(r.every)
	defer ticker.Stop()
	for ctx.Err() == nil {
		r.note(r.Report(detached), time.Now())
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	if err := r.finish(detached); err != nil && r.outage.lost > 0 {
		r.config.Log.Warn("the last counts are lost", zap.Error(err),
			zap.Int64("events_not_counted", r.outage.lost))
	}
}

// Report stores the counts and the heartbeat once. Run calls it. Tests may call it instead of Run, never
// beside it. After an error the counts may be lost.
func (r *Reporter) Report(ctx context.Context) error {
	heartbeat, encodeErr := r.heartbeat() // it may take a second
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	batch, err := r.begin(ctx)
	if err == nil {
		r.addHeartbeat(ctx, batch.pipe, heartbeat)
		err = r.send(ctx, batch)
	}
	if err != nil {
		r.outage.lost += batch.events
	}
	return errors.Join(err, encodeErr)
}

// finish stores the last counts and removes the heartbeat.
func (r *Reporter) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, finalTimeout)
	defer cancel()
	batch, err := r.begin(ctx)
	if err == nil {
		batch.pipe.Del(ctx, r.keys.replica(r.config.Replica))
		batch.pipe.ZRem(ctx, r.keys.replicas(), r.config.Replica)
		err = r.send(ctx, batch)
	}
	if err != nil {
		r.outage.lost += batch.events
	}
	return err
}

// batch is one pipeline with the counts since the last one.
type batch struct {
	pipe   redis.Pipeliner
	clock  *redis.Cmd
	events int64
}

// newBatch returns a batch that reads the clock.
func (r *Reporter) newBatch(ctx context.Context) batch {
	pipe := r.config.Redis.Pipeline()
	// The script is short. EVALSHA would fail if the server does not have it.
	return batch{pipe: pipe, clock: r.now.Eval(ctx, pipe, []string{r.keys.replicas()})}
}

// begin takes the counts. If it fails, they are lost.
func (r *Reporter) begin(ctx context.Context) (batch, error) {
	var clockErr error
	if !r.clock.known() { // the keys depend on it
		clockErr = r.send(ctx, r.newBatch(ctx))
	}
	counts, drops, tallyNumber, digestNumber := r.take(r.clock.now())
	b := r.newBatch(ctx)
	for _, n := range counts {
		b.events += n
	}
	if clockErr != nil {
		return b, clockErr
	}
	tally := r.keys.tally(tallyNumber)
	for c, n := range counts {
		b.add(ctx, tally, c.Outcome+"/"+c.Reason+separator+c.Category+separator+c.Source, n)
	}
	if len(counts) > 0 {
		b.pipe.PExpire(ctx, tally, tallyLife)
	}
	dropped := r.keys.drops(r.config.Digest, digestNumber)
	for d, n := range drops {
		b.add(ctx, dropped, d.Reason+separator+d.Category, n)
	}
	if len(drops) > 0 {
		b.pipe.PExpire(ctx, dropped, 3*r.config.Digest)
	}
	return b, nil
}

// once is a command that go-redis does not repeat after a lost reply, nor the pipeline around it.
type once struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

func (b batch) add(ctx context.Context, key, field string, n int64) {
	_ = b.pipe.Process(ctx, once{redis.NewCmd(ctx, "hincrby", key, field, strconv.FormatInt(n, 10))})
}

// take returns the counts since the last pipeline, and the numbers of the tally and the digest to add them
// to. These are the ones in which counting began, so that a tally has no more names than its bound.
func (r *Reporter) take(now time.Time) (counts map[Count]int64, drops map[Drop]int64, tally, digest int64) {
	nextTally, nextDigest := Period(now, TallyLength), int64(0)
	if r.config.Digest > 0 {
		nextDigest = Period(now, r.config.Digest)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	counts, drops = r.counts, r.drops
	r.counts, r.drops = map[Count]int64{}, map[Drop]int64{}
	tally, digest = cmp.Or(r.tally, nextTally), cmp.Or(r.digest, nextDigest)
	if tally != nextTally {
		r.categories, r.sources, r.sourceCount = nil, map[string]*names{}, 0
	}
	if digest != nextDigest {
		r.dropped = nil
	}
	if r.clock.known() {
		r.tally, r.digest = nextTally, nextDigest
	}
	return counts, drops, tally, digest
}

// heartbeat returns the snapshot as JSON, or nil if Config.Snapshot is nil. Readers refuse a snapshot that is
// too long, so it leaves out long lists then: better a worker without details than a missing one.
func (r *Reporter) heartbeat() ([]byte, error) {
	if r.config.Snapshot == nil {
		return nil, nil
	}
	s := r.config.Snapshot()
	content, err := json.Marshal(s)
	if err == nil && len(content) > maxSnapshotBytes {
		s.Channels, s.Failing, s.Settings.Text = nil, nil, nil
		content, err = json.Marshal(s)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot encode the heartbeat: %w", err)
	}
	return content, nil
}

// addHeartbeat adds the heartbeat to a pipeline.
func (r *Reporter) addHeartbeat(ctx context.Context, pipe redis.Pipeliner, content []byte) {
	if content == nil {
		return
	}
	now := r.clock.now().UnixMilli()
	oldest := strconv.FormatInt(now-replicaLife.Milliseconds(), 10)
	pipe.Set(ctx, r.keys.replica(r.config.Replica), content, heartbeatLife)
	pipe.ZAdd(ctx, r.keys.replicas(), redis.Z{Score: float64(now), Member: r.config.Replica})
	pipe.ZRemRangeByScore(ctx, r.keys.replicas(), "-inf", oldest)
	pipe.PExpire(ctx, r.keys.replicas(), replicaLife)
}

// send executes a pipeline.
func (r *Reporter) send(ctx context.Context, b batch) error {
	asked := time.Now()
	_, err := b.pipe.Exec(ctx)
	took := time.Since(asked)
	// The server read its clock at some time in between.
	if micros, clockErr := b.clock.Int64(); clockErr == nil {
		r.clock = clock{server: time.UnixMicro(micros), local: asked.Add(took / 2)}
	}
	if err != nil {
		return fmt.Errorf("redis: cannot run the pipeline: %w", err)
	}
	return nil
}

// outage is a time during which pipelines fail. The zero outage has not begun.
type outage struct {
	since  time.Time
	logged time.Time // the last line about it; zero before the first
	lost   int64     // events not counted
}

// note logs an outage after a minute, because the worker itself has logged that Redis is unavailable, then
// once a minute, and its end if it was logged.
func (r *Reporter) note(err error, now time.Time) {
	o := &r.outage
	fields := []zap.Field{
		zap.Float64("for_s", math.Round(now.Sub(o.since).Seconds())),
		zap.Int64("events_not_counted", o.lost),
	}
	switch {
	case err == nil && !o.logged.IsZero():
		r.config.Log.Info("counts and heartbeats reach Redis again", fields...)
		*o = outage{}
	case err == nil:
		*o = outage{}
	case o.since.IsZero():
		o.since = now
	case now.Sub(o.since) >= remindEvery && now.Sub(o.logged) >= remindEvery:
		o.logged = now
		r.config.Log.Warn("counts and heartbeats do not reach Redis", append(fields, zap.Error(err))...)
	}
}
