package consume

import (
	"time"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/feed"
	"notifier/internal/consume/letters"
	"notifier/internal/consume/post"
)

// Hurry makes the pauses between attempts a tenth of production's, for all workers of the test binary. What
// bounds the answer of a server, or the age of what is known, stays: it may take as long on a busy machine.
func Hurry() {
	feed.Hurry()
	letters.Hurry()
	post.Hurry()
	availability.RetryPause /= 10
	redisUntold /= 10
}

// FirstBackoff is how long a channel is left alone after one failure, give or take 30 %.
func FirstBackoff() time.Duration { return post.FirstBackoff() }

// RetryPause is what lies between two attempts to reach Redis, give or take half of it.
func RetryPause() time.Duration { return availability.RetryPause }

// RemindEvery sets how often an outage that lasts is logged again.
func (w *Worker) RemindEvery(d time.Duration) { w.tracker.RemindEvery(d) }

// Bytes are those in flight, and the most that they have been together with those that were requested.
func (w *Worker) Bytes() (now, peak int64) { return w.feed.Bytes() }
