package consume

import (
	"time"

	"notifier/internal/lanes"
)

// Hurry makes the pauses between attempts a tenth of production's, for all workers of the test binary. What bounds the answer of a
// server, or the age of what is known, stays: it may take as long on a busy machine.
func Hurry() {
	laneBackoff = lanes.Backoff{First: laneBackoff.First / 10, Longest: laneBackoff.Longest, LongestUnexplained: laneBackoff.LongestUnexplained / 10}
	for _, pause := range []*time.Duration{
		&bindRetry, &deadLetterRetry, &firstRetry, &leaseMargin, &leaseRecheck, &redisUntold, &retryPause, &shortestPark,
	} {
		*pause /= 10
	}
	longestRetry /= 20 // up to fifteen of them follow each other
}

// FirstBackoff is how long a channel is left alone after one failure, give or take 30 %.
func FirstBackoff() time.Duration { return laneBackoff.First }

// RetryPause is what lies between two attempts to reach Redis, give or take half of it.
func RetryPause() time.Duration { return retryPause }

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
