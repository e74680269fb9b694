package stats

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"

	"notifier/internal/outcome"
)

const (
	lastFlush  = 2 * time.Second  // how long the flush at the end may take
	pruneEvery = 30 * time.Second // how often each replica removes the heartbeats of replicas that have ended
)

// batch is what one call of the script counts. It is repeated unchanged until there is a reply, and its
// number lets the script detect a repetition.
type batch struct {
	number int64
	minute int64
	counts []any // for each row: prefix of the field, category, count
	sent   []any // for each row: category, microsecond
	drops  []any // as counts
	// of the ten minutes of that minute; for each row: what became of events, category, source, count
	sources []any
}

// Run flushes the counts until ctx ends, then once more, which takes two seconds at most, and removes the
// heartbeat. It logs when Redis is unavailable, and continues.
func (r *Recorder) Run(ctx context.Context) {
	ticker := time.NewTicker(r.config.Every)
	defer ticker.Stop()
	for {
		if err := r.flushAll(ctx, false); ctx.Err() == nil {
			r.note(err, time.Now())
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

// flushAll writes all counts to Redis, one minute in each call, and the heartbeat.
func (r *Recorder) flushAll(ctx context.Context, last bool) error {
	if n := r.takeDiscarded(); n > 0 {
		r.log.Warn("counts were discarded, Redis was unavailable for too long", zap.Int64("events", n))
	}
	for {
		repeated := r.unconfirmed != nil
		if !repeated {
			r.unconfirmed = r.take()
		}
		if err := r.send(ctx, r.unconfirmed, last); err != nil {
			return err
		}
		done := !repeated && len(r.unconfirmed.counts) == 0 // nothing was left to take
		r.unconfirmed = nil
		if done {
			return nil
		}
	}
}

func (r *Recorder) takeDiscarded() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.discarded
	r.discarded = 0
	return n
}

// take makes a batch of the oldest minute that has counts, and resets them to 0. A batch without counts means
// that there is no such minute. Minutes that are over are removed.
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
		b.add(OtherCategory, &m.other, r.config.Limit)
		if m != r.latest {
			delete(r.minutes, number)
		}
		if len(b.counts) > 0 {
			break
		}
	}
	r.takeSources(b)
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
		if limit != nil && c.outcome == outcome.Dropped && slices.Contains(limitReasons, c.reason) {
			b.drops = append(b.drops, dropPrefix(c.reason, limit(c.reason, outcome.CategoryOf(category))), category, n)
		}
		c.n = 0
	}
	if t.sentAt > 0 && category != OtherCategory {
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
	arguments := make([]any, 0, 10+len(b.counts)+len(b.sent)+len(b.drops)+len(b.sources))
	arguments = append(arguments, strconv.FormatInt(b.number, 10), replica, beat, prune,
		MaxCategories, MaxSources)
	arguments = append(append(arguments, len(b.counts)/3), b.counts...)
	arguments = append(append(arguments, len(b.sent)/2), b.sent...)
	arguments = append(append(arguments, len(b.drops)/3), b.drops...)
	arguments = append(append(arguments, len(b.sources)/4), b.sources...)
	keys := []string{
		r.keys.flushed(r.run),
		r.keys.replicas(),
		r.keys.lastSent(),
		r.keys.Pending(),
		r.keys.counts(b.minute),
		r.keys.Steering(),
		r.keys.sources(b.minute / slotMinutes),
	}

	reply, err := r.flush.Run(ctx, r.config.Redis, keys, arguments...).Slice()
	if err != nil {
		return fmt.Errorf("redis: cannot add the counts: %w", err)
	}
	flushed, err := decodeFlushed(reply)
	if err != nil {
		return fmt.Errorf("redis: unexpected reply from flush.lua: %w", err)
	}
	if prune == "1" {
		r.nextPrune = asked.Add(pruneEvery)
	}
	// The server read its clock at some time in between. After a slow reply the error would be too large.
	if took := time.Since(asked); took < time.Second {
		r.ahead.Store(flushed.Now.UnixMicro() - asked.Add(took/2).UnixMicro())
	}
	if r.config.Flushed != nil && !last {
		r.config.Flushed(flushed)
	}
	return nil
}
