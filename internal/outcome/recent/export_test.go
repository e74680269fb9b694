package recent

import "time"

// Limits for tests.
const (
	Burst    = burst
	MaxKinds = maxKinds
)

// Hurry shortens the pause after a failure.
func (r *Recorder) Hurry() { r.retryWait = 20 * time.Millisecond }

// EndIn sets the time for queued records when the context of Run ends. It may be called until then.
func (r *Recorder) EndIn(d time.Duration) { r.endWait = d }
