package stats

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"notifier/internal/outcome"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	lastFlush  = 2 * time.Second  // how long the flush at the end may take
	pruneEvery = 30 * time.Second // how often one replica looks for heartbeats of others that have ended
	remind     = time.Minute      // how often an outage is logged
)

// batch is what one call of the script counts. It is repeated as it is until it is answered, and its number lets the
// script tell a repetition.
type batch struct {
	number int64
	minute int64
	counts []any // for each row: prefix of the field, category, count
	sent   []any // for each row: category, microsecond
	drops  []any // as counts
}

// Run flushes the counts until ctx ends, then once more, which takes two seconds at most, and takes the heartbeat away.
// It logs when Redis is away, and goes on.
func (r *Recorder) Run(ctx context.Context) {
	ticker := time.NewTicker(r.config.Every)
	defer ticker.Stop()
	var outage outage
	for {
		if err := r.flushAll(ctx, false); ctx.Err() == nil {
			outage.note(r.log, err, time.Now())
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastFlush)
			defer cancel()
			if err := r.flushAll(last, true); err != nil {
				r.log.Warn("the last counts are lost", zap.Error(err))
			}
			return
		}
	}
}

// outage logs when it begins, once a minute, and when it is over. In its first minute it does so for those who debug: the
// worker has said already that Redis is away, and counts wait without harm.
type outage struct {
	since, told time.Time
	warned      bool
}

func (o *outage) note(log *zap.Logger, err error, now time.Time) {
	switch {
	case err == nil && !o.since.IsZero():
		log.Log(o.level(zap.InfoLevel), "counts reach Redis again", zap.Float64("after_s", now.Sub(o.since).Seconds()))
		*o = outage{}
	case err != nil && now.Sub(o.told) >= remind:
		if o.since.IsZero() {
			o.since = now
		}
		o.told = now
		o.warned = now.Sub(o.since) >= remind
		log.Log(o.level(zap.WarnLevel), "counts do not reach Redis", zap.Error(err), zap.Float64("for_s", now.Sub(o.since).Seconds()))
	}
}

func (o *outage) level(level zapcore.Level) zapcore.Level {
	if !o.warned {
		return zap.DebugLevel
	}
	return level
}

// flushAll brings everything that was counted to Redis, a minute in each call, and the heartbeat.
func (r *Recorder) flushAll(ctx context.Context, last bool) error {
	if n := r.takeForgotten(); n > 0 {
		r.log.Warn("counts were given up, Redis was away for too long", zap.Int64("events", n))
	}
	for {
		repeated := r.unsure != nil
		if !repeated {
			r.unsure = r.take()
		}
		if err := r.send(ctx, r.unsure, last); err != nil {
			return err
		}
		done := !repeated && len(r.unsure.counts) == 0 // nothing was left to take
		r.unsure = nil
		if done {
			return nil
		}
	}
}

func (r *Recorder) takeForgotten() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.forgotten
	r.forgotten = 0
	return n
}

// take makes a batch of the oldest minute that has counts, and sets these to nothing. A batch without counts says that
// there is no such minute. Minutes that are over are dropped.
func (r *Recorder) take() *batch {
	r.number++
	b := &batch{number: r.number}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, number := range slices.Sorted(maps.Keys(r.minutes)) {
		m := r.minutes[number]
		b.minute = number
		for category, t := range m.categories {
			b.add(category, t, r.config.Limit)
		}
		b.add(Other, &m.other, r.config.Limit)
		if m != r.latest {
			delete(r.minutes, number)
		}
		if len(b.counts) > 0 {
			break
		}
	}
	return b
}

// add moves a tally into the batch.
func (b *batch) add(category string, t *tally, limit func(reason, category string) string) {
	for i := range t.counts {
		c := &t.counts[i]
		if c.n == 0 {
			continue
		}
		n := strconv.FormatInt(c.n, 10)
		b.counts = append(b.counts, c.outcome+"/"+c.reason+"/", category, n)
		if limit != nil && c.outcome == outcome.Dropped && (c.reason == outcome.Global || c.reason == outcome.Category) {
			b.drops = append(b.drops, dropPrefix(c.reason, limit(c.reason, category)), category, n)
		}
		c.n = 0
	}
	if t.sentAt > 0 && category != Other {
		b.sent = append(b.sent, category, strconv.FormatInt(t.sentAt, 10))
	}
	t.sentAt = 0
}

// send makes one call. An error means that the batch may or may not have been counted.
func (r *Recorder) send(ctx context.Context, b *batch, last bool) error {
	replica, beat := "", ""
	if r.config.Heartbeat != nil {
		replica = r.config.Replica
		if !last {
			content, err := json.Marshal(r.config.Heartbeat())
			if err != nil {
				return fmt.Errorf("heartbeat: %w", err)
			}
			beat = string(content)
		}
	}
	prune := "0"
	asked := time.Now()
	if !asked.Before(r.nextPrune) {
		prune = "1"
	}
	arguments := make([]any, 0, 8+len(b.counts)+len(b.sent)+len(b.drops))
	arguments = append(arguments, strconv.FormatInt(b.number, 10), replica, beat, prune, MostCategories)
	arguments = append(append(arguments, len(b.counts)/3), b.counts...)
	arguments = append(append(arguments, len(b.sent)/2), b.sent...)
	arguments = append(append(arguments, len(b.drops)/3), b.drops...)
	keys := []string{r.keys.flushed(r.run), r.keys.replicas(), r.keys.lastSent(), r.keys.Pending(), r.keys.counts(b.minute)}

	clock, err := r.flush.Run(ctx, r.config.Redis, keys, arguments...).Int64()
	if err != nil {
		return fmt.Errorf("redis cannot count: %w", err)
	}
	if prune == "1" {
		r.nextPrune = asked.Add(pruneEvery)
	}
	// The server looked at its clock at some time between. A slow answer says too little.
	if took := time.Since(asked); took < time.Second {
		r.ahead.Store(clock - asked.Add(took/2).UnixMicro())
	}
	return nil
}
