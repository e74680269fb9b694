package consume

import "time"

// RemindEvery sets how often a wait that goes on is logged again.
func (w *Worker) RemindEvery(d time.Duration) {
	w.waits.mu.Lock()
	defer w.waits.mu.Unlock()
	w.waits.every = d
}
