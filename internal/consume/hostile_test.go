package consume_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"notifier/test/kit"
)

// A hostile subject or header costs one log line and blocks no other event.
func TestHostileHeadersAndSubjectsAreSettled(t *testing.T) {
	s := newFixture(t)
	r := s.started()
	many := nats.Header{}
	for i := range 2000 {
		many.Add(fmt.Sprint("X-", i%50), "value")
	}
	messages := []*nats.Msg{
		{Subject: "notify.errors", Header: many},
		{Subject: "notify.errors", Header: nats.Header{"Nats-Msg-Id": {strings.Repeat("i", 60_000)}}},
		{Subject: "notify.errors", Header: nats.Header{"Nats-Msg-Id": {"one", "two", "three"}}},
		{Subject: "notify.errors", Header: nats.Header{"Nats-Msg-Id": {"\xff\xfe\x00 \u202e"}}},
		{Subject: "notify.errors", Header: nats.Header{
			"Notifier-Event-Id": {"\x1b[31m"}, "Notifier-Source": {strings.Repeat("s", 60_000)},
		}},
		{Subject: "notify.errors", Header: nats.Header{
			"Ce-Specversion": {"9"}, "Ce-Id": {""}, "Content-Type": {"application/json; charset=\xff"},
		}},
		{Subject: "notify.errors", Header: nats.Header{"Status": {"503"}, "Description": {"No Responders"}}},
		{Subject: "notify.\xff\xfe"},
		{Subject: "notify." + strings.Repeat("c", 2000)},
		{Subject: "notify." + strings.Repeat("a.", 100) + "b"},
		{Subject: "notify.$JS.API.STREAM.DELETE.NOTIFY"},
		{Subject: "notify.{x}:global"}, {Subject: "notify.a:b~c"}, {Subject: "notify.\u202e"},
	}
	for _, m := range messages {
		m.Data = []byte("hello")
		kit.Check(t, s.conn.PublishMsg(m))
	}
	s.settled(len(messages))
	s.publish("deploys", "after them")
	s.settled(len(messages) + 1)
	if waits := r.Snapshot().Waits; len(waits) > 0 {
		t.Errorf("the worker waits for %v, expected nothing", waits)
	}
	for line := range strings.Lines(s.log.text()) {
		if len(line) > 1<<16 {
			t.Errorf("a log line has %d bytes: %.200s", len(line), line)
		}
	}
}
