package consume_test

import (
	"testing"
	"time"

	"notifier/internal/devstack"
)

// The worker reports progress for every event in flight, so the server redelivers nothing, however short
// AckWait is.
func TestEventsInFlightAreKeptAlive(t *testing.T) {
	s := newFixture(t)
	s.createConsumer(ackWait(2 * time.Second))
	s.started()
	s.started()
	s.slack.Respond(devstack.Next(devstack.Response{RetryAfter: "4"}))
	began, redelivered := time.Now(), 0
	s.publishMany("errors", 5)
	s.eventually("all are settled", func() bool {
		redelivered = max(redelivered, s.consumerInfo().NumRedelivered)
		return len(s.log.settled()) == 5
	})
	if took := time.Since(began); took < 4*time.Second || redelivered > 0 {
		t.Errorf("settled after %s, %d redelivered; expected 4s at least, and none", took, redelivered)
	}
	s.expectEachPostedOnce(5)
	s.expectNothingLeft()
}
