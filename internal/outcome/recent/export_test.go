package recent

import "time"

// Hurry has failures tried again at once.
func (r *Recorder) Hurry() {
	r.pause.InitialInterval = 20 * time.Millisecond
	r.pause.MaxInterval = 40 * time.Millisecond
}
