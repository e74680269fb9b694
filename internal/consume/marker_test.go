package consume_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/test/kit"
)

// The server writes delete markers for events that expire, and sends replies to event subjects if a publisher
// names them: API replies, and the end of a pull request. A scheduled event has a publisher's payload.
func TestMessagesOfTheServer(t *testing.T) {
	s := newFixture(t)
	s.createStream(func(c *jetstream.StreamConfig) {
		c.Retention, c.AllowMsgSchedules = jetstream.LimitsPolicy, true
		c.AllowMsgTTL, c.SubjectDeleteMarkerTTL = true, time.Second // the shortest allowed lifetime
		c.Subjects = append(c.Subjects, "schedules.>")
	})
	s.started()
	s.publish("errors", "database is down", "Nats-TTL", "1s")
	s.expectOutcomes(map[string]int{"sent": 1, "dropped reply": 1}, s.settled(2))
	marker := s.log.named("notification dropped")[0]
	if marker["detail"] != `it is the server's delete marker ("MaxAge")` {
		t.Errorf("detail %q, expected the kind of message and its reason", marker["detail"])
	}

	orders, err := s.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "ORDERS", Subjects: []string{"orders"},
	})
	kit.Check(t, err)
	kit.Check(t, second(orders.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "billing"})))
	for subject, body := range map[string]string{
		"$JS.API.STREAM.INFO.ORDERS": "", "$JS.API.STREAM.INFO.MISSING": "",
		"$JS.API.CONSUMER.MSG.NEXT.ORDERS.billing": `{"batch":1,"expires":100000000}`,
	} {
		kit.Check(t, s.conn.PublishMsg(&nats.Msg{Subject: subject, Reply: "notify.other", Data: []byte(body)}))
	}
	message := nats.NewMsg("schedules.backup")
	message.Data = []byte("backup is due")
	message.Header.Set("Nats-Schedule", "@at "+time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano))
	message.Header.Set("Nats-Schedule-Target", "notify.backup")
	kit.Check(t, second(s.js.PublishMsg(t.Context(), message)))
	s.expectOutcomes(map[string]int{"sent": 2, "dropped reply": 4}, s.settled(6))
	s.expectCharged(2)
	if letters := s.letters(); len(letters) > 0 {
		t.Errorf("%d dead letters, expected none: the first has headers %v", len(letters), letters[0].Header)
	}
}
