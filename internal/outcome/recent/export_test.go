package recent

import "time"

// Limits for tests.
const (
	Burst    = burst
	MaxKinds = maxKinds
)

// Hurry shortens the pause after a failure.
func (r *Recorder) Hurry() { r.retryWait = 20 * time.Millisecond }
