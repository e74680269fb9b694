package consume_test

import (
	"encoding/json"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/test/kit"
)

// publishWithReply publishes an event with a reply subject, which receives the server's acknowledgement.
func (s *fixture) publishWithReply(category, payload, reply string, headers ...string) {
	s.Helper()
	message := &nats.Msg{
		Subject: "notify." + category, Reply: reply, Data: []byte(payload), Header: nats.Header{},
	}
	for i := 0; i < len(headers); i += 2 {
		message.Header.Set(headers[i], headers[i+1])
	}
	kit.Check(s.T, s.conn.PublishMsg(message))
}

// A publish acknowledgement stored on an event subject is counted as a dropped reply. It is not charged,
// posted, dead-lettered or republished, and causes no further acknowledgement.
func TestAReplyThatIsStoredAsAnEventIsDropped(t *testing.T) {
	s := newFixture(t)
	copies, err := s.conn.SubscribeSync("spilled.>")
	kit.Check(t, err)
	s.started(func(c *setup) { c.dropped, c.category = "spilled", "1/30m" })
	s.publishWithReply("errors", "disk full", "notify.other")
	s.publishWithReply("errors", "disk full", "notify.errors") // refused by the limit and republished
	s.publishWithReply("errors", "x", "notify.other", "Nats-Expected-Last-Sequence", "12345")
	lines := s.settled(5)
	counts := tally(lines)
	if counts["sent"] != 1 || counts["dropped category"] != 1 || counts["dropped reply"] != 3 {
		t.Errorf("outcomes %v, expected one sent, one refused by the category's limit, and three replies", counts)
	}
	s.expectNothingLeft()
	if last := s.streamInfo(streamName).State.LastSeq; last != 5 {
		t.Errorf("%d messages were stored, expected 5", last)
	}
	s.eventually("the dead-letter stream exists and is empty", func() bool {
		letters, err := s.js.Stream(t.Context(), streamName+"_DEAD")
		return err == nil && letters.CachedInfo().State.LastSeq == 0
	})
	if copied, err := copies.NextMsg(kit.Patience); err != nil || string(copied.Data) != "disk full" {
		t.Errorf("republished %+v, %v; expected the refused event", copied, err)
	}
	s.publish("other", "the first of its category") // the replies took no slot
	s.settled(6)
	if n, _, err := copies.Pending(); n != 0 || err != nil {
		t.Errorf("%d more were republished, %v; expected none", n, err)
	}
	s.expectEachPostedOnce(2)
}

// Encodes the types of the server, so a field added by a newer server fails the test rather than
// dead-lettering replies.
func TestServerAcknowledgementsAreRecognised(t *testing.T) {
	pattern, err := event.ParsePattern("notify.>")
	kit.Check(t, err)
	for _, answer := range []natsserver.JSPubAckResponse{
		{Error: &natsserver.ApiError{Code: 400, ErrCode: 10071, Description: `wrong <"last">`}, PubAck: &natsserver.PubAck{Stream: streamName}},
		{PubAck: &natsserver.PubAck{Stream: streamName, Sequence: 7, Domain: "hub", Duplicate: true, Value: "12", BatchId: "b", BatchSize: 3}},
	} {
		body, err := json.Marshal(answer)
		kit.Check(t, err)
		_, rejection := event.Decode(event.Message{Subject: "notify.a", Data: body}, event.Rules{
			Pattern: pattern, MaxBytes: 1000,
		})
		if rejection == nil || rejection.Reason != outcome.Reply {
			t.Errorf("%s: %v, expected %q", body, rejection, outcome.Reply)
		}
	}
}
