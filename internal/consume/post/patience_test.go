package post

import (
	"testing"
	"time"

	"notifier/internal/consume/post/lanes"
)

// An event alone in a quiet channel may fail for as long as Slack does.
func TestBackoffOfAnEventIsBounded(t *testing.T) {
	last := time.Duration(0)
	for failures := 1; failures <= 200; failures++ {
		wait := retryAfter(failures)
		if wait < last || wait > longestRetry {
			t.Fatalf("%s after %d failures, expected between %s and %s", wait, failures, last, longestRetry)
		}
		last = wait
	}
	if retryAfter(1) != firstRetry || last != longestRetry {
		t.Errorf("%s at first and %s at last, expected %s and %s", retryAfter(1), last, firstRetry, longestRetry)
	}
}

// fails lets an event fail so often in a row, with others of its lane being posted and failing between each
// two of its failures, and reports whether it is to blame after the last one.
func fails(times int, posted, failed uint64) (poisoned bool) {
	var p patience
	lane := lanes.Tally{Posted: 1000, Failed: 3000} // what was before counts for nothing
	for i := range times {
		if lane.Failed++; i > 0 {
			lane.Posted += posted
			lane.Failed += failed
		}
		poisoned = p.failed(lane)
	}
	return poisoned
}

func TestWhoIsToBlameForFailures(t *testing.T) {
	for name, test := range map[string]struct {
		times          int
		posted, failed uint64 // of others, between two failures
		want           bool
	}{
		"others are posted":                            {15, 1, 0, true},
		"others are posted, and it has failed less":    {14, 1, 0, false},
		"it is alone":                                  {1000, 0, 0, false},
		"others fail too":                              {1000, 0, 3, false},
		"one in five tries of others succeeds":         {15, 1, 4, true},
		"fewer succeed":                                {15, 1, 5, false},
		"fewer succeed, for however long that goes on": {1000, 1, 5, false},
		"a brown-out fails three of five":              {14, 2, 3, false},
	} {
		if got := fails(test.times, test.posted, test.failed); got != test.want {
			t.Errorf("%s: to blame %t, expected %t", name, got, test.want)
		}
	}
}
