package consume_test

import (
	"fmt"
	"testing"
	"time"

	"notifier/internal/devstack"
)

// The worker reports progress for every event in flight, so the server redelivers nothing, however short
// AckWait is.
func TestEventsInFlightAreKeptAlive(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]devstack.Response{
		"cooling down": {RetryAfter: "3"}, "slow": {Delay: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.createConsumer(impatient)
			var redelivered []string
			s.started()
			s.started()
			s.slack.Respond(devstack.Next(trouble))
			began := time.Now()
			s.publishMany("errors", 5)
			s.eventually("all are settled", func() bool {
				if n := s.consumerInfo().NumRedelivered; n > 0 {
					redelivered = append(redelivered, fmt.Sprintf("%d after %s", n, time.Since(began)))
				}
				return len(s.log.settled()) == 5
			})
			if took := time.Since(began); took < 3*time.Second {
				t.Errorf("they are settled after %s, expected 3s at least", took)
			}
			if len(redelivered) > 0 {
				t.Errorf("redelivered: %v, expected none", redelivered)
			}
			s.expectEachPostedOnce(5)
			s.expectNothingLeft()
		})
	}
}
