package post

import (
	"testing"

	"notifier/internal/consume/post/lanes"
)

func TestRetryPausesAreBounded(t *testing.T) {
	var p posting
	longest := firstRetry
	for range 200 {
		pause := p.nextRetry()
		if pause <= 0 || pause > maxRetry*3/2 {
			t.Fatalf("a pause of %s, expected up to about %s", pause, maxRetry)
		}
		longest = max(longest, pause)
	}
	if longest < maxRetry {
		t.Errorf("%s at most, expected about %s", longest, maxRetry)
	}
}

// fails fails an event the given number of times and reports whether it counts as poisoned after the last
// failure. Between two failures, other events of the lane are posted and fail as given, at their first tries.
func fails(times int, posted, failed uint64) (poisoned bool) {
	var p patience
	lane := lanes.Tally{Posted: 1000, Failed: 3000} // earlier results do not count
	for i := range times {
		if i > 0 {
			lane.Posted += posted
			lane.Failed += failed
		}
		poisoned = p.failed(lane)
		if i == 0 {
			lane.Failed++
		}
	}
	return poisoned
}

// An outage says nothing about the event, however often it failed, and however many others did.
func TestFailuresDuringAnOutageDoNotCount(t *testing.T) {
	var p patience
	var lane lanes.Tally
	for range 100 {
		p.failed(lane)
		lane.Failed++
	}
	for i := range failuresToBlame - 1 {
		lane.Posted++
		if blamed := p.failed(lane); blamed != (i == failuresToBlame-2) {
			t.Fatalf("to blame %t after the failure %d since the outage", blamed, i+1)
		}
	}
}

func TestPoisonedEvents(t *testing.T) {
	for name, test := range map[string]struct {
		times          int
		posted, failed uint64 // of other events, between two failures
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
