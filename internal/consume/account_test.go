package consume_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/test/kit"
)

// An account may require max_bytes for each stream. The worker names the missing setting.
func TestAccountRequiresMaxBytes(t *testing.T) {
	s := newFixture(t)
	url := kit.NATSWithAccount(t, "max_bytes_required: true").ClientURL()
	without := s.start(func(c *setup) { c.natsURL = url })
	s.eventually("the worker names the setting", func() bool {
		reason := without.waitsFor("consumer")
		return strings.Contains(reason, "stream NOTIFY: ") && strings.Contains(reason, "; set NATS_STREAM_MAX_BYTES")
	})
	with := s.start(func(c *setup) { c.natsURL, c.streamBytes, c.deadLetterBytes = url, 3<<20, 1<<20 })
	with.expectReady()
	without.expectReady() // uses the stream that the other worker created
	js := kit.JetStream(t, url)
	stream, err := js.Stream(t.Context(), streamName)
	kit.Check(t, err)
	if config := stream.CachedInfo().Config; config.MaxBytes != 3<<20 || config.Discard != jetstream.DiscardNew {
		t.Errorf("max_bytes %d, discards %v; expected %d, and new", config.MaxBytes, config.Discard, 3<<20)
	}
	kit.Check(t, second(js.Publish(t.Context(), "notify.errors", []byte("hello"))))
	s.settled(1)
}

func TestAccountLimitsMaxAckPending(t *testing.T) {
	s := newFixture(t)
	for limit, least := range map[string]int{"100": 100, "3000": 1500} {
		url := kit.NATSWithAccount(t, "max_ack_pending: "+limit).ClientURL()
		s.started(func(c *setup) { c.natsURL, c.deadLetterBytes = url, 1<<20 })
		consumer, err := kit.JetStream(t, url).Consumer(t.Context(), streamName, consumerName)
		kit.Check(t, err)
		if got := consumer.CachedInfo().Config.MaxAckPending; got < least {
			t.Errorf("max_ack_pending %d, expected at least %d of the %s that the account allows", got, least, limit)
		}
	}
}

// The worker waits for the dead-letter stream and names the account limit that prevents it.
func TestAccountAllowsOneStream(t *testing.T) {
	s := newFixture(t)
	url := kit.NATSWithAccount(t, "max_streams: 1").ClientURL()
	r := s.started(func(c *setup) { c.natsURL = url })
	s.eventually("the worker names the limit", func() bool {
		return strings.Contains(r.waitsFor("dead_letter"), "raise the account's max_streams: notifier needs three streams")
	})
	kit.Check(t, second(kit.JetStream(t, url).Publish(t.Context(), "notify.errors", []byte("hello"))))
	s.settled(1)
}
