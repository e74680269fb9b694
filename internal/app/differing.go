package app

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"notifier/internal/published"
	"notifier/internal/stats"
	"notifier/internal/term"
)

// differing watches whether the running replicas have the same settings, and logs when they have not: a
// replica that was forgotten in a deployment decides by other limits, and two deployments that share a
// namespace by mistake share their limits.
type differing struct {
	log       *zap.Logger
	documents func(ctx context.Context, fingerprints ...string) (map[string]string, error)

	different atomic.Int64 // how many different settings the running replicas have, this one's included
	counted   string       // the settings, by their fingerprints, of which apart is known to be the number
	apart     int          // how many of them are different otherwise than on purpose
	since     time.Time    // the replicas have differed; the zero time: they do not
	logged    time.Time    // the zero time: not since then

	last, resumed time.Time // the last flush, and the first one after flushes were missed
}

const (
	// differLong is how long replicas differ before it is logged: longer than a replica that is being
	// replaced drains.
	differLong = 30 * time.Second
	// differRemind is how often it is logged.
	differRemind = time.Minute
	// isRunning is the age at which a heartbeat no longer counts here: ten were missed.
	isRunning = 10 * time.Second
	// documentsTimeout bounds the one call of Redis, which holds up a flush.
	documentsTimeout = time.Second
)

// flushed looks at what a flush has brought back, at the time now of this machine's clock.
func (d *differing) flushed(f stats.Flushed, now time.Time) {
	var running []published.Replica
	for _, peer := range f.Peers {
		if peer.Settings != "" && f.Now.Sub(peer.Seen) < isRunning {
			running = append(running, published.Replica{ID: peer.Replica, Fingerprint: peer.Settings})
		}
	}
	if now.Sub(d.last) >= isRunning/2 {
		d.resumed = now
	}
	d.last = now
	variants := published.Variants(running)
	different := d.count(variants)
	if different < 2 && !d.since.IsZero() && now.Sub(d.resumed) < isRunning {
		// Redis was unavailable: the heartbeats of others are as old as this one's was, and may be renewed later.
		return
	}
	d.different.Store(int64(different))
	switch {
	case different < 2:
		if !d.logged.IsZero() {
			after := zap.Float64("after_s", term.Seconds(now.Sub(d.since)))
			d.log.Info("all replicas run with the same settings again", after)
		}
		d.since, d.logged = time.Time{}, time.Time{}
	case d.since.IsZero():
		d.since = now
	case now.Sub(d.since) >= differLong && (d.logged.IsZero() || now.Sub(d.logged) >= differRemind):
		d.logged = now
		d.warn(variants, now.Sub(d.since))
	}
}

// count is how many different settings there are, without what deployments that share a namespace on purpose
// read. That takes their documents, which are read when others come or go. While they cannot be read all
// count.
func (d *differing) count(variants []*published.Variant) int {
	if len(variants) < 2 {
		return len(variants)
	}
	fingerprints := published.Fingerprints(variants)
	slices.Sort(fingerprints)
	key := strings.Join(append(fingerprints, strconv.Itoa(len(variants))), " ")
	if d.counted == key {
		return d.apart
	}
	if !d.fill(variants) {
		return len(variants)
	}
	d.counted, d.apart = key, published.Distinct(variants)
	return d.apart
}

// fill gives the variants their documents, and reports whether they could be read.
func (d *differing) fill(variants []*published.Variant) bool {
	ctx, cancel := context.WithTimeout(context.Background(), documentsTimeout)
	defer cancel()
	documents, err := d.documents(ctx, published.Fingerprints(variants)...)
	if err != nil {
		d.log.Debug("the settings of the replicas cannot be read", zap.Error(err))
	}
	published.Fill(variants, documents)
	return err == nil
}

// warn logs what differs. Documents that cannot be read make the line shorter.
func (d *differing) warn(variants []*published.Variant, since time.Duration) {
	d.fill(variants)
	var deployments, settings []string
	for _, difference := range published.WorthSaying(variants, published.Compare(variants)) {
		if difference.Deployment() {
			deployments = append(deployments, difference.Text())
		} else {
			settings = append(settings, difference.Text())
		}
	}
	fields := []zap.Field{zap.Int("different", len(variants)), zap.Float64("for_s", term.Seconds(since))}
	if len(deployments) > 0 {
		d.log.Warn("another deployment uses this namespace", append(fields, zap.Strings("differ", deployments))...)
	}
	if len(settings) > 0 || len(deployments) == 0 {
		d.log.Warn("replicas run with different settings", append(fields, zap.Strings("differ", settings))...)
	}
}

// Different is how many different settings the running replicas have; 0: it is not known yet.
func (d *differing) Different() int { return int(d.different.Load()) }
