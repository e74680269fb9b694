package consume

import (
	"testing"
	"time"
)

// An event alone in a quiet channel may fail for as long as Slack does.
func TestTheBackoffOfAnEventGrowsToItsBoundAndStaysThere(t *testing.T) {
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
