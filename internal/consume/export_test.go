package consume

import "time"

// RemindEvery sets how often an outage that lasts is logged again.
func (w *Worker) RemindEvery(d time.Duration) {
	w.availability.log.mu.Lock()
	defer w.availability.log.mu.Unlock()
	w.availability.log.every = d
}

// Bytes are those in flight, and the most that they have been together with those that were requested.
func (w *Worker) Bytes() (now, peak int64) {
	w.inflight.mu.Lock()
	defer w.inflight.mu.Unlock()
	return w.inflight.bytes, w.inflight.peak
}

// ReturnLettersFor sets how long events are returned for whose letters have no room.
func (w *Worker) ReturnLettersFor(d time.Duration) {
	w.letterbox.mu.Lock()
	defer w.letterbox.mu.Unlock()
	w.letterbox.returnFor = d
}
