package consume_test

import (
	"testing"

	"notifier/test/kit"
	"notifier/test/natstest"
)

func TestAccountLimitsMaxAckPending(t *testing.T) {
	s := newFixture(t)
	for limit, least := range map[string]int{"100": 100, "3000": 1500} {
		url := natstest.WithAccount(t, "max_ack_pending: "+limit).ClientURL()
		s.started(func(c *setup) { c.natsURL, c.deadLetterBytes = url, 1<<20 })
		consumer, err := kit.JetStream(t, url).Consumer(t.Context(), streamName, consumerName)
		kit.Check(t, err)
		if got := consumer.CachedInfo().Config.MaxAckPending; got < least {
			t.Errorf("max_ack_pending %d, expected at least %d of the %s that the account allows", got, least, limit)
		}
	}
}
