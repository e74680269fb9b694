package consume_test

import (
	"fmt"
	"slices"
	"testing"

	"notifier/test/redistest"
)

// overtaken returns, in ascending order, the number of later events posted before each event "event N".
func (s *fixture) overtaken() []int {
	s.Helper()
	messages := s.slack.Messages()
	order := make([]int, len(messages))
	for i, m := range messages {
		if _, err := fmt.Sscanf(m.Text, "event %d", &order[i]); err != nil {
			s.Fatal(m.Text, err)
		}
	}
	overtaken := make([]int, 0, len(order))
	for i, event := range order {
		n := 0
		for _, earlier := range order[:i] {
			if earlier > event {
				n++
			}
		}
		overtaken = append(overtaken, n)
	}
	slices.Sort(overtaken)
	return overtaken
}

// Replicas share the pace of a channel. The oldest event goes first, whichever replica holds it.
func TestOldestWaitingEventIsPostedFirst(t *testing.T) {
	s := newFixtureWith(t, func(t *testing.T) *redistest.Server { return redistest.StartProcess(t) })
	for range 3 {
		s.started(func(c *setup) { c.pace = "1/100ms" })
	}
	const events = 80
	s.publishMany("errors", events)
	s.settled(events)
	s.expectEachPostedOnce(events)
	overtaken := s.overtaken()
	t.Logf("half of the events were overtaken by up to %d others, one by %d",
		overtaken[events/2], overtaken[events-1])
	// A worker that misses its turn on a busy machine loses one place.
	if most := overtaken[events-1]; most > events/8 {
		t.Errorf("an event was overtaken by %d others, expected hardly any", most)
	}
}
