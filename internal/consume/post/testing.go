package post

import (
	"time"

	"notifier/internal/consume/post/lanes"
)

// Hurry makes the pauses between attempts a tenth of what they are, for all workers of a test binary. What
// bounds an answer of Redis or Slack stays: it may take as long on a busy machine.
func Hurry() {
	laneBackoff = lanes.Backoff{
		First:              laneBackoff.First / 10,
		Longest:            laneBackoff.Longest,
		LongestUnexplained: laneBackoff.LongestUnexplained / 10,
	}
	for _, pause := range []*time.Duration{&firstRetry, &leaseMargin, &leaseRecheck, &shortestLater} {
		*pause /= 10
	}
	longestRetry /= 20 // up to fifteen of them follow each other
}

// FirstBackoff is how long a channel is left alone after one failure, give or take 30 %.
func FirstBackoff() time.Duration { return laneBackoff.First }
