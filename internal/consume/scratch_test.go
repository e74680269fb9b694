package consume

import (
	"testing"

	"notifier/internal/ratelimit"
)

// A large batch keeps its room for the next one, and not its events.
func TestTheRoomOfABatchKeepsNoEvents(t *testing.T) {
	var s scratch
	s.keep(
		[]Settled{{delivery: &delivery{}}, {delivery: &delivery{}}},
		[]admitted{{delivery: &delivery{}}},
		[]ratelimit.Request{{ID: "e", Category: "errors"}},
	)
	if len(s.settled) != 0 || len(s.candidates) != 0 || len(s.requests) != 0 {
		t.Errorf("%+v, expected room alone", s)
	}
	for i, settled := range s.settled[:2] {
		if settled.delivery != nil {
			t.Errorf("it keeps what was settled as %d", i)
		}
	}
	if s.candidates[:1][0].delivery != nil || s.requests[:1][0] != (ratelimit.Request{}) {
		t.Error("it keeps a candidate or a request")
	}
}
