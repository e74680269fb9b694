package consume

import "time"

// RemindEvery sets how often an outage that lasts is logged again.
func (w *Worker) RemindEvery(d time.Duration) {
	w.availability.log.mu.Lock()
	defer w.availability.log.mu.Unlock()
	w.availability.log.every = d
}
