package consume_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/test/kit"
)

// TestDeleteMarkersAreDroppedAsReplies lets sent events expire. The server then stores a delete marker for
// the last event of each subject.
func TestDeleteMarkersAreDroppedAsReplies(t *testing.T) {
	s := newFixture(t)
	s.createStream(func(c *jetstream.StreamConfig) {
		c.Retention = jetstream.LimitsPolicy
		c.AllowMsgTTL, c.SubjectDeleteMarkerTTL = true, time.Second // the shortest allowed lifetime
	})
	s.started()
	s.publish("errors", "database is down", "Nats-TTL", "1s")
	s.publish("errors", "database is up", "Nats-TTL", "1s")
	s.publish("deploys", "version 7", "Nats-TTL", "1s")
	s.expectOutcomes(map[string]int{"sent": 3, "dropped reply": 2}, s.settled(5))
	if marker := s.log.named("notification dropped")[0]; marker["detail"] != `it is the server's delete marker ("MaxAge")` {
		t.Errorf("detail %q, expected the kind of message and its reason", marker["detail"])
	}
	s.expectNoLetters()
	s.expectEachPostedOnce(3)
	s.expectCharged(3)
}

// TestLongHeadersDoNotHideADeleteMarker adds a header too long to be kept.
func TestLongHeadersDoNotHideADeleteMarker(t *testing.T) {
	s := newFixture(t)
	s.started()
	long := make([]byte, 5000)
	for i := range long {
		long[i] = 'x'
	}
	s.publish("errors", "", "Nats-Marker-Reason", "MaxAge", "Aaa", string(long))
	s.expectOutcomes(map[string]int{"dropped reply": 1}, s.settled(1))
	s.expectNoLetters()
}

// TestStoredServerRepliesAreDropped makes the server send replies to event subjects: API replies, and the
// end of a pull request.
func TestStoredServerRepliesAreDropped(t *testing.T) {
	s := newFixture(t)
	s.started()
	orders, err := s.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "ORDERS", Subjects: []string{"orders"},
	})
	kit.Check(t, err)
	_, err = orders.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "billing"})
	kit.Check(t, err)
	request := func(subject, body string) {
		kit.Check(t, s.conn.PublishMsg(&nats.Msg{Subject: subject, Reply: "notify.other", Data: []byte(body)}))
	}
	request("$JS.API.STREAM.INFO.ORDERS", "")
	request("$JS.API.STREAM.INFO.MISSING", "")
	request("$JS.API.CONSUMER.MSG.NEXT.ORDERS.billing", `{"batch":1,"expires":100000000}`)
	s.settled(3)
	s.publish("other", "an event")
	s.expectOutcomes(map[string]int{"sent": 1, "dropped reply": 3}, s.settled(4))
	s.expectNoLetters()
	s.expectNothingLeft()
}

// TestScheduledEventsAreSent covers messages written by the server with a payload from a publisher.
func TestScheduledEventsAreSent(t *testing.T) {
	s := newFixture(t)
	s.createStream(func(c *jetstream.StreamConfig) {
		c.Retention, c.AllowMsgSchedules, c.AllowMsgTTL = jetstream.LimitsPolicy, true, true
		c.Subjects = append(c.Subjects, "schedules.>")
	})
	s.started()
	message := nats.NewMsg("schedules.backup")
	message.Data = []byte("backup is due")
	message.Header.Set("Nats-Schedule", "@at "+time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano))
	message.Header.Set("Nats-Schedule-Target", "notify.backup")
	_, err := s.js.PublishMsg(t.Context(), message)
	kit.Check(t, err)
	s.expectOutcomes(map[string]int{"sent": 1}, s.settled(1))
}

func (s *fixture) expectNoLetters() {
	s.Helper()
	if letters := s.letters(); len(letters) > 0 {
		s.Errorf("%d dead letters, expected none: the first has headers %v", len(letters), letters[0].Header)
	}
}
