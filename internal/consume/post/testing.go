package post

import (
	"time"

	"notifier/internal/consume/post/lanes"
)

// Hurry shortens the pauses between attempts to a tenth, for all workers of a test binary. The bounds of a
// reply of Redis or Slack stay, because a busy machine may need them.
func Hurry() {
	laneBackoff = lanes.Backoff{
		First: laneBackoff.First / 10, Max: laneBackoff.Max, MaxUnexplained: laneBackoff.MaxUnexplained / 10,
		Retries: laneBackoff.Retries / 10,
	}
	for _, pause := range []*time.Duration{&firstRetry, &leaseMargin, &leaseRecheck} {
		*pause /= 10
	}
	firstForeignPause /= 60
	maxRetry /= 20 // up to fifteen of them follow each other
	maxReturn /= 30
}
