package feed

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

func TestMismatches(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name             string
		taken, filters   []string
		change           func(*jetstream.StreamConfig)
		stream, consumer string
	}{
		{name: "all", taken: []string{"notify.>"}},
		{name: "exactly", taken: []string{"notify.>", "other.>"}, filters: []string{"notify.>"}},
		{name: "some", taken: []string{"notify.a", "notify.b"}, filters: []string{"notify.a"}},
		{name: "wide filter, narrow stream", taken: []string{"notify.>"}, filters: []string{">"}},
		{
			name: "wide filter", taken: []string{"notify.>", "other.>"}, filters: []string{">"},
			consumer: "consumer notifier takes >, which is more than NATS_SUBJECT notify.>",
		},
		{
			name: "no filter", taken: []string{"notify.>", "other.>"},
			consumer: "consumer notifier takes everything in stream NOTIFY, notify.> and other.>, which is more than NATS_SUBJECT notify.>",
		},
		{
			name: "one filter of two", taken: []string{"notify.>", "other.>"}, filters: []string{"notify.>", "other.a"},
			consumer: "consumer notifier takes notify.> and other.a, which is more than NATS_SUBJECT notify.>",
		},
		{
			name: "nothing", taken: []string{"other.>"}, stream: "stream NOTIFY takes other.>, and nothing of NATS_SUBJECT notify.>",
			consumer: "consumer notifier takes everything in stream NOTIFY, other.>, which is more than NATS_SUBJECT notify.>",
		},
		{name: "mirror", change: func(c *jetstream.StreamConfig) { c.Mirror = &jetstream.StreamSource{} }},
		{
			name: "mirror with a filter", change: func(c *jetstream.StreamConfig) { c.Mirror = &jetstream.StreamSource{} }, filters: []string{"other.>"},
			consumer: "consumer notifier takes other.>, which is more than NATS_SUBJECT notify.>",
		},
	} {
		config := jetstream.StreamConfig{Name: "NOTIFY", Subjects: test.taken}
		if test.change != nil {
			test.change(&config)
		}
		if got := StreamMismatch("notify.>", config); got != test.stream {
			t.Errorf("%s: %q, expected %q", test.name, got, test.stream)
		}
		consumer := jetstream.ConsumerConfig{Durable: "notifier", FilterSubjects: test.filters}
		if len(test.filters) == 1 {
			consumer.FilterSubject, consumer.FilterSubjects = test.filters[0], nil
		}
		if got := ConsumerMismatch("notify.>", config, consumer); got != test.consumer {
			t.Errorf("%s: %q, expected %q", test.name, got, test.consumer)
		}
	}
}
