package consume_test

import (
	"fmt"
	"testing"
)

func theLimits(c *setup) { c.global, c.category = "100/30m", "10/30m" }

func TestReplicasShareTheLimits(t *testing.T) {
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

	seqs, sentOf := map[any]int{}, map[any]int{}
	for _, l := range lines {
		seqs[l["stream_seq"]]++
		switch l["outcome"] {
		case "sent":
			sentOf[l["category"]]++
		case "dropped":
			want := map[any]string{"global": "20/30m", "category": "4/30m"}[l["reason"]]
			if want == "" || l["limit"] != want {
				t.Errorf("dropped for %v with limit %v, expected global with 20/30m or category with 4/30m",
					l["reason"], l["limit"])
			}
		}
	}
	if len(seqs) != 56 {
		t.Errorf("the lines name %d events, expected each of 56 once", len(seqs))
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
