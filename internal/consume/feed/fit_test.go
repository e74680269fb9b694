package feed

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/test/kit"
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
			name: "one filter of two", taken: []string{"notify.>", "other.>"},
			filters:  []string{"notify.>", "other.a"},
			consumer: "consumer notifier takes notify.> and other.a, which is more than NATS_SUBJECT notify.>",
		},
		{
			name: "nothing", taken: []string{"other.>"},
			stream:   "stream NOTIFY takes other.>, and nothing of NATS_SUBJECT notify.>",
			consumer: "consumer notifier takes everything in stream NOTIFY, other.>, which is more than NATS_SUBJECT notify.>",
		},
		{name: "mirror", change: func(c *jetstream.StreamConfig) { c.Mirror = &jetstream.StreamSource{} }},
		{
			name:     "mirror with a filter",
			change:   func(c *jetstream.StreamConfig) { c.Mirror = &jetstream.StreamSource{} },
			filters:  []string{"other.>"},
			consumer: "consumer notifier takes other.>, which is more than NATS_SUBJECT notify.>",
		},
	} {
		config := jetstream.StreamConfig{Name: "NOTIFY", Subjects: test.taken}
		if test.change != nil {
			test.change(&config)
		}
		reading := Reading{Subject: "notify.>", Stream: config}
		if got := waitsFor(reading.StreamFaults()); got != test.stream {
			t.Errorf("%s: %q, expected %q", test.name, got, test.stream)
		}
		consumer := jetstream.ConsumerConfig{
			Durable: "notifier", FilterSubjects: test.filters, AckPolicy: jetstream.AckExplicitPolicy,
		}
		if len(test.filters) == 1 {
			consumer.FilterSubject, consumer.FilterSubjects = test.filters[0], nil
		}
		info := &jetstream.ConsumerInfo{Name: "notifier", Config: consumer}
		if got := waitsFor(reading.ConsumerFaults(info)); got != test.consumer {
			t.Errorf("%s: %q, expected %q", test.name, got, test.consumer)
		}
	}
}

// waitsFor returns the first problem that makes a worker wait, or "".
func waitsFor(faults []Fault) string {
	for _, fault := range faults {
		if fault.Severity == Wait {
			return fault.Problem
		}
	}
	return ""
}

// setting is a faulty configuration, as an operator might create it.
type setting struct {
	stream   func(*jetstream.StreamConfig)
	consumer func(*jetstream.ConsumerConfig)
	severity Severity
	problem  string // without the name; if empty, no fault
}

func ofStream(severity Severity, problem string, change func(*jetstream.StreamConfig)) setting {
	return setting{stream: change, severity: severity, problem: problem}
}

func ofConsumer(severity Severity, problem string, change func(*jetstream.ConsumerConfig)) setting {
	return setting{consumer: change, severity: severity, problem: problem}
}

func limits(c *jetstream.StreamConfig) { c.Retention, c.MaxBytes = jetstream.LimitsPolicy, 1<<20 }

// settings maps the field names of package jetstream to settings that matter to a worker.
var settings = map[string][]setting{
	"Subjects": {
		ofStream(Wait, "takes other.>, and nothing of NATS_SUBJECT", func(c *jetstream.StreamConfig) {
			c.Subjects = []string{"other.>"}
		}),
		ofStream(Risk, "which is not all of NATS_SUBJECT", func(c *jetstream.StreamConfig) {
			c.Subjects = []string{"notify.a"}
		}),
	},
	"AllowMsgCounter": {ofStream(Refuse, "is a stream of counters", func(c *jetstream.StreamConfig) {
		limits(c)
		c.AllowMsgCounter, c.Discard = true, jetstream.DiscardOld
	})},
	"Discard": {ofStream(Risk, "is bounded and discards old", func(c *jetstream.StreamConfig) {
		c.MaxMsgs, c.Discard = 10, jetstream.DiscardOld
	})},
	"MaxMsgs":  {ofStream(Remark, "", func(c *jetstream.StreamConfig) { c.MaxMsgs = 10 })},
	"MaxBytes": {ofStream(Remark, "", func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 })},
	"MaxMsgsPerSubject": {
		ofStream(Risk, "has max_msgs_per_subject 3: a newer event deletes an unread one", func(c *jetstream.StreamConfig) {
			c.MaxMsgsPerSubject = 3
		}),
	},
	"DiscardNewPerSubject": {ofStream(Remark, "", func(c *jetstream.StreamConfig) {
		c.MaxMsgsPerSubject, c.DiscardNewPerSubject = 3, true
	})},
	"MaxAge": {
		ofStream(Risk, "deletes events after 59m", func(c *jetstream.StreamConfig) { c.MaxAge = 59 * time.Minute }),
		ofStream(Remark, "", func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }),
	},
	"AllowMsgTTL": {ofStream(Risk, "allows TTLs", func(c *jetstream.StreamConfig) {
		c.AllowMsgTTL = true
	})},
	"SubjectDeleteMarkerTTL": {ofStream(Risk, "allows TTLs", func(c *jetstream.StreamConfig) {
		limits(c)
		c.SubjectDeleteMarkerTTL = time.Minute
	})},
	"AllowRollup": {ofStream(Risk, "allows roll-ups", func(c *jetstream.StreamConfig) {
		c.AllowRollup = true
	})},
	"AllowMsgSchedules": {ofStream(Risk, "allows schedules", func(c *jetstream.StreamConfig) {
		c.AllowMsgSchedules, c.Discard = true, jetstream.DiscardOld
	})},
	"Retention": {
		ofStream(Risk, "keeps only events that a consumer waits for", func(c *jetstream.StreamConfig) {
			c.Retention = jetstream.InterestPolicy
		}),
		ofStream(Risk, "keeps every event for ever", func(c *jetstream.StreamConfig) {
			c.Retention = jetstream.LimitsPolicy
		}),
		ofStream(Remark, "keeps settled events", limits),
	},
	"Storage": {ofStream(Risk, "is in memory", func(c *jetstream.StreamConfig) {
		c.Storage = jetstream.MemoryStorage
	})},
	"PersistMode": {ofStream(Risk, "acknowledges events before they are written", func(c *jetstream.StreamConfig) {
		c.PersistMode = jetstream.AsyncPersistMode
	})},
	"NoAck": {ofStream(Risk, "acknowledges nothing", func(c *jetstream.StreamConfig) { c.NoAck = true })},
	"Mirror": {ofStream(Remark, "mirrors, sources or transforms", func(c *jetstream.StreamConfig) {
		c.Subjects, c.Mirror = nil, &jetstream.StreamSource{Name: "ORIGIN"}
	})},
	"Sources": {ofStream(Remark, "mirrors, sources or transforms", func(c *jetstream.StreamConfig) {
		c.Subjects, c.Sources = nil, []*jetstream.StreamSource{{Name: "ORIGIN"}}
	})},
	"SubjectTransform": {ofStream(Remark, "mirrors, sources or transforms", func(c *jetstream.StreamConfig) {
		c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: "notify.>", Destination: "alert.>"}
	})},

	"AckPolicy": {
		ofConsumer(Refuse, "has the acknowledgement policy", func(c *jetstream.ConsumerConfig) {
			c.AckPolicy = jetstream.AckAllPolicy
		}),
		ofConsumer(Refuse, "has the acknowledgement policy", func(c *jetstream.ConsumerConfig) {
			c.AckPolicy = jetstream.AckNonePolicy
		}),
	},
	"DeliverSubject": {ofConsumer(Refuse, "is a push consumer", func(c *jetstream.ConsumerConfig) {
		c.DeliverSubject = "there"
	})},
	"PriorityGroups": {ofConsumer(Refuse, "has the priority groups night", func(c *jetstream.ConsumerConfig) {
		c.PriorityPolicy, c.PriorityGroups = jetstream.PriorityPolicyOverflow, []string{"night"}
	})},
	"HeadersOnly": {ofConsumer(Refuse, "has headers_only", func(c *jetstream.ConsumerConfig) {
		c.HeadersOnly = true
	})},
	"FilterSubject": {ofConsumer(Risk, "takes notify.a, which is not all of NATS_SUBJECT", func(c *jetstream.ConsumerConfig) {
		c.FilterSubject = "notify.a"
	})},
	"FilterSubjects": {ofConsumer(Risk, "takes notify.a and notify.b, which is not all", func(c *jetstream.ConsumerConfig) {
		c.FilterSubjects = []string{"notify.a", "notify.b"}
	})},
	"MaxDeliver": {ofConsumer(Risk, "has max_deliver 3", func(c *jetstream.ConsumerConfig) {
		c.MaxDeliver = 3
	})},
	"BackOff": {ofConsumer(Risk, "has a backoff", func(c *jetstream.ConsumerConfig) {
		c.BackOff, c.MaxDeliver = []time.Duration{time.Second, time.Minute}, 5
	})},
	"AckWait": {
		ofConsumer(Risk, "has ack wait 1s", func(c *jetstream.ConsumerConfig) { c.AckWait = time.Second }),
		ofConsumer(Remark, "has ack wait 1h", func(c *jetstream.ConsumerConfig) { c.AckWait = time.Hour }),
	},
	"MaxAckPending": {
		ofConsumer(Risk, "has max_ack_pending 1 for all workers", func(c *jetstream.ConsumerConfig) {
			c.MaxAckPending = 1
		}),
		ofConsumer(Remark, "allows 10 unacknowledged events", func(c *jetstream.ConsumerConfig) {
			c.MaxAckPending = 10
		}),
		ofConsumer(Remark, "", func(c *jetstream.ConsumerConfig) { c.MaxAckPending = -1 }),
	},
	"PauseUntil": {ofConsumer(Risk, "is paused for another ", func(c *jetstream.ConsumerConfig) {
		until := time.Now().Add(time.Hour)
		c.PauseUntil = &until
	})},
	"ReplayPolicy": {ofConsumer(Risk, "has replay policy original", func(c *jetstream.ConsumerConfig) {
		c.ReplayPolicy = jetstream.ReplayOriginalPolicy
	})},
	"DeliverPolicy": {setting{
		limits, func(c *jetstream.ConsumerConfig) { c.DeliverPolicy = jetstream.DeliverNewPolicy },
		Risk, "has deliver policy new",
	}},
	"InactiveThreshold": {
		setting{limits, func(c *jetstream.ConsumerConfig) { c.InactiveThreshold = time.Minute }, Risk, "is deleted after 1m without workers"},
		ofConsumer(Remark, "", func(c *jetstream.ConsumerConfig) { c.InactiveThreshold = time.Minute }),
	},
	"MemoryStorage": {setting{limits, func(c *jetstream.ConsumerConfig) { c.MemoryStorage = true }, Risk, "is in memory"}},
	"MaxWaiting": {ofConsumer(Remark, "allows 1 request over all workers", func(c *jetstream.ConsumerConfig) {
		c.MaxWaiting = 1
	})},
	"MaxRequestExpires": {ofConsumer(Remark, "has max_expires 500ms", func(c *jetstream.ConsumerConfig) {
		c.MaxRequestExpires = 500 * time.Millisecond
	})},
}

// elsewhere maps the remaining field names to the reason why they need no setting above.
var elsewhere = map[string]string{
	"Name": "a name", "Durable": "a name", "Description": "a text", "Metadata": "texts", "Template": "a name",
	"MaxConsumers": "the server refuses the consumer: see package streams", "ConsumerLimits": "likewise",
	"MaxMsgSize": "the server refuses the event", "Duplicates": "a publisher's repetition is stored once",
	"Placement": "where it is", "Compression": "how it is stored", "FirstSeq": "sequences are only compared",
	"RePublish":   "copies are not read",
	"AllowDirect": "workers read through a consumer", "MirrorDirect": "likewise",
	"DenyDelete": "acknowledged events leave all the same", "DenyPurge": "an operator's concern",
	"AllowAtomicPublish": "events are stored as ever", "AllowBatchPublish": "likewise",
	"Sealed":      "TestFaultsOnlyAServerReports: a stream is sealed after its creation",
	"Replicas":    "TestFaultsOnlyAServerReports, and check",
	"OptStartSeq": "see DeliverPolicy", "OptStartTime": "likewise",
	"PriorityPolicy": "see PriorityGroups", "PinnedTTL": "likewise",
	"RateLimit": "see DeliverSubject", "DeliverGroup": "likewise",
	"FlowControl": "likewise", "IdleHeartbeat": "likewise",
	"SampleFrequency": "advisories", "MaxRequestBatch": "requests keep to it", "MaxRequestMaxBytes": "likewise",
}

// TestEverySettingIsJudged fails if package jetstream adds a field without an entry in either table.
func TestEverySettingIsJudged(t *testing.T) {
	t.Parallel()
	fields := map[string]bool{}
	configs := []reflect.Type{
		reflect.TypeFor[jetstream.StreamConfig](), reflect.TypeFor[jetstream.ConsumerConfig](),
	}
	for _, config := range configs {
		for i := range config.NumField() {
			fields[config.Field(i).Name] = true
		}
	}
	for field := range fields {
		if len(settings[field]) == 0 && elsewhere[field] == "" {
			t.Errorf("%s: neither judged nor harmless", field)
		}
	}
	for _, field := range slices.Concat(slices.Collect(maps.Keys(settings)), slices.Collect(maps.Keys(elsewhere))) {
		if !fields[field] {
			t.Errorf("%s is no field of a stream or consumer", field)
		}
	}
}

// TestFaults creates each setting on a real server and judges the reported configuration.
func TestFaults(t *testing.T) {
	t.Parallel()
	for field, tests := range settings {
		for i, test := range tests {
			t.Run(fmt.Sprintf("%s %d", field, i), func(t *testing.T) {
				t.Parallel()
				faults := reported(t, test)
				if test.problem == "" {
					for _, fault := range faults {
						if fault.Severity > Remark {
							t.Errorf("unexpected: %v", fault)
						}
					}
					return
				}
				is := func(f Fault) bool {
					return f.Severity == test.severity && strings.Contains(f.Problem, test.problem)
				}
				if !slices.ContainsFunc(faults, is) {
					t.Errorf("faults %v, expected %d with %q", faults, test.severity, test.problem)
				}
			})
		}
	}
}

// reported returns the faults of a stream and consumer that differ from the defaults by one setting.
func reported(t *testing.T, test setting) []Fault {
	t.Helper()
	js := kit.JetStream(t, kit.NATSServer(t, &server.Options{JetStream: true}).ClientURL())
	kit.Check(t, second(js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "ORIGIN", Subjects: []string{"origin.>"},
	})))
	stream := jetstream.StreamConfig{
		Name: "NOTIFY", Subjects: []string{"notify.>"},
		Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew,
	}
	consumer := jetstream.ConsumerConfig{
		Durable: "notifier", AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: 1000,
	}
	if test.stream != nil {
		test.stream(&stream)
	}
	if test.consumer != nil {
		test.consumer(&consumer)
		if consumer.AckPolicy != jetstream.AckExplicitPolicy {
			limits(&stream)
		}
	}
	created, err := js.CreateStream(t.Context(), stream)
	kit.Check(t, err)
	if consumer.DeliverSubject != "" {
		kit.Check(t, second(js.CreatePushConsumer(t.Context(), "NOTIFY", consumer)))
	} else {
		kit.Check(t, second(created.CreateConsumer(t.Context(), consumer)))
	}
	info, err := LookUp(t.Context(), js, "NOTIFY", "notifier")
	kit.Check(t, err)
	reading := Reading{Subject: "notify.>", Held: 256, Stream: created.CachedInfo().Config}
	return append(reading.StreamFaults(), reading.ConsumerFaults(info)...)
}

// TestFaultsOnlyAServerReports covers settings that need a cluster or change after creation. It needs no
// server.
func TestFaultsOnlyAServerReports(t *testing.T) {
	t.Parallel()
	reading := Reading{
		Subject: "notify.>",
		Stream:  jetstream.StreamConfig{Name: "NOTIFY", Subjects: []string{"notify.>"}, Replicas: 3, Sealed: true},
	}
	if faults := fmt.Sprint(reading.StreamFaults()); !strings.Contains(faults, "stream NOTIFY is sealed") {
		t.Errorf("%s, expected that it is sealed", faults)
	}
	consumer := &jetstream.ConsumerInfo{
		Name:   "notifier",
		Config: jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, Replicas: 1},
	}
	fewer := "consumer notifier has 1 replica, its stream 3"
	if faults := fmt.Sprint(reading.ConsumerFaults(consumer)); !strings.Contains(faults, fewer) {
		t.Errorf("%s, expected that it has fewer replicas", faults)
	}
}

func second[T any](_ T, err error) error { return err }
