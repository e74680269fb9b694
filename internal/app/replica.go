package app

import (
	"context"
	"crypto/rand"
	"os"
	"sync/atomic"
	"time"

	"notifier/internal/buildinfo"
	"notifier/internal/snapshot"
)

// replica is the state of this process that consume.Worker does not know.
type replica struct {
	id       string
	started  time.Time
	settings snapshot.Settings
	lastSent atomic.Pointer[time.Time] // nil until an event was sent
	notReady atomic.Pointer[[]string]  // reasons of the last readiness look; nil before the first
}

// newReplica names a worker after its host, which in a container is the container's ID, with a random suffix.
func newReplica(settings snapshot.Settings) *replica {
	host, err := os.Hostname()
	if err != nil {
		host = "notifier"
	}
	return &replica{id: host + "-" + rand.Text()[:4], started: time.Now().UTC(), settings: settings}
}

// sent notes that an event was sent.
func (r *replica) sent(at time.Time) {
	at = at.UTC()
	r.lastSent.Store(&at)
}

// ready returns the reasons why the worker is not ready, within a second, and keeps them for snapshots.
func (a *app) ready(ctx context.Context) []string {
	reasons := a.worker.Ready(ctx)
	a.replica.notReady.Store(&reasons)
	return reasons
}

// snapshot describes this worker without a request to any server. Ready and NotReady are from the last call
// of ready, which the heartbeat makes about once a second.
func (a *app) snapshot() snapshot.Snapshot {
	s := a.worker.Snapshot()
	s.ID, s.Version = a.replica.id, buildinfo.Version()
	s.Started, s.Time = a.replica.started, time.Now().UTC()
	s.Streams, s.Settings = a.streams.list(), a.replica.settings
	_, s.Steering = a.steering.InForce()
	if reasons := a.replica.notReady.Load(); reasons != nil {
		s.Ready, s.NotReady = len(*reasons) == 0, *reasons
	}
	if at := a.replica.lastSent.Load(); at != nil {
		s.LastSent = *at
	}
	return s
}

// heartbeat looks whether the worker is ready and returns a snapshot.
func (a *app) heartbeat() snapshot.Snapshot {
	a.ready(context.Background()) // returns within a second
	return a.snapshot()
}
