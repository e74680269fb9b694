package consume

import (
	"time"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/feed"
	"notifier/internal/consume/letters"
	"notifier/internal/consume/post"
)

// Hurry divides the pauses between attempts by ten for all workers of the test binary. Request timeouts and
// the maximum age of cached state stay, because a busy machine may need them.
func Hurry() {
	feed.Hurry()
	letters.Hurry()
	post.Hurry()
	availability.RetryPause /= 10
	redisQuiet /= 10
}

// RetryPause returns the pause between two attempts to reach Redis, before 50 % jitter.
func RetryPause() time.Duration { return availability.RetryPause }

// RemindEvery sets how often a lasting outage is logged again.
func (w *Worker) RemindEvery(d time.Duration) { w.tracker.RemindEvery(d) }

// Bytes returns the bytes in flight, and the peak of bytes in flight and requested together.
func (w *Worker) Bytes() (now, peak int64) { return w.feed.Bytes() }

// DeadEvents counts the dead events without a stored letter.
func (w *Worker) DeadEvents() int { return w.letters.Size() }
