package app

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"notifier/internal/buildinfo"
	"notifier/internal/status"
	"notifier/internal/status/stats"
	"notifier/internal/term"
)

// own is what this replica remembers for its own status.
type own struct {
	started  time.Time
	shown    stats.Settings
	lastSent atomic.Int64 // Unix microseconds; 0: nothing was sent yet
	asked    atomic.Pointer[readiness]
	// the last one that was read, which the page shows while there is none
	read atomic.Pointer[status.Status]
}

// readiness is what the worker said when it was last asked whether it is ready.
type readiness struct {
	ready   bool
	refused string // the scripts' error; empty: they answered, or were not asked
}

// sent notes that an event was sent.
func (o *own) sent(at time.Time) { o.lastSent.Store(at.UnixMicro()) }

// noteReadiness takes the reasons why the worker is not ready.
func (o *own) noteReadiness(reasons []string) {
	now := &readiness{ready: len(reasons) == 0}
	for _, reason := range reasons {
		if of, found := strings.CutPrefix(reason, "redis: "); found {
			now.refused = of
		}
	}
	o.asked.Store(now)
}

// heartbeat is what the status shows of this replica.
func (a *app) heartbeat() stats.Heartbeat {
	a.own.noteReadiness(a.worker.Ready(context.Background())) // which answers within a second
	return a.beat()
}

// beat is the heartbeat with the readiness that was last asked for: it asks nobody.
func (a *app) beat() stats.Heartbeat {
	beat := work(a.worker)
	beat.Started, beat.Version, beat.Refused = a.own.started, buildinfo.Version(), a.worker.RefusedChannels()
	beat.Settings, beat.Streams = a.own.shown, a.streams.list()
	_, beat.Steering = a.steering.InForce()
	if last := a.own.asked.Load(); last != nil {
		beat.Ready = last.ready
	}
	return beat
}

// this is what this replica knows by itself. It asks nobody, so it does not wait for anything.
func (a *app) this() *status.This {
	now, beat := time.Now().UTC(), a.beat()
	this := &status.This{
		Replica: a.replica, Version: beat.Version, Time: now, Ready: beat.Ready,
		UptimeS:  term.Seconds(now.Sub(a.own.started)),
		InFlight: beat.Held, Held: beat.HeldEvents(), HeldFor: map[string]int{}, Waits: beat.Waits,
		Unposted: status.UnpostedOf([]stats.Replica{{Heartbeat: beat}}, now),
		Refused:  beat.Refused, Streams: beat.Streams,
		Paused: []status.PausedChannel{}, Beat: beat,
	}
	this.Host, _ = os.Hostname() // empty: it has none
	for why, events := range a.worker.Held() {
		if events > 0 {
			this.HeldFor[why] = events
		}
	}
	for _, u := range a.worker.Unposted() {
		this.Posting += u.Posting
		if u.Closed > 0 {
			this.Paused = append(this.Paused, status.PausedChannel{Channel: u.Channel, LeftS: term.Seconds(u.Closed)})
		}
	}
	if micros := a.own.lastSent.Load(); micros > 0 {
		at := time.UnixMicro(micros).UTC()
		this.LastSent = &at
	}
	refused := ""
	if last := a.own.asked.Load(); last != nil {
		refused = last.refused
	}
	this.Redis = status.RedisOf(beat.Waits, refused, a.recorder.Trouble())
	return this
}

// status is what the admin server shows: with an error what this replica knows by itself.
func (a *app) status(ctx context.Context) (any, error) {
	now, err := a.store.Status.Read(ctx)
	if err != nil {
		return status.NotKnown(err, a.this()), err
	}
	a.own.read.Store(&now)
	return now, nil
}

// page is what the page shows of what status has returned.
func (a *app) page(answer any) (page any, sections map[string]any) {
	p := status.NewPage(answer, a.own.read.Load())
	return p, p.ByID()
}
