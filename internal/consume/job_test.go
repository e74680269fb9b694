package consume_test

import (
	"fmt"
	"testing"
)

func TestWorkersShareTheLimits(t *testing.T) {
	s := newFixture(t)
	for range 3 {
		s.started(func(c *setup) { c.global, c.category = "20/30m", "4/30m" })
	}
	for i := range 7 {
		for category := range 8 {
			s.publish(fmt.Sprintf("c%d", category), fmt.Sprintf("event %d of c%d", i, category))
		}
	}
	lines := s.settled(56)
	s.expectEachPostedOnce(20)
	s.expectNothingLeft()
	sentOf := map[any]int{}
	for _, l := range lines {
		if l["outcome"] == "sent" {
			sentOf[l["category"]]++
		}
	}
	for category, n := range sentOf {
		if n > 4 {
			t.Errorf("%d events of %v were sent, expected at most 4", n, category)
		}
	}
	count := tally(lines)
	if count["sent"] != 20 || count["dropped global"]+count["dropped category"] != 36 {
		t.Errorf("outcomes %v, expected 20 sent and 36 dropped by a limit", count)
	}
}
