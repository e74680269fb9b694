package feed

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestMismatches(t *testing.T) {
	t.Parallel()
	const moreThan = ", which is more than NATS_SUBJECT notify.>"
	for _, test := range []struct {
		name             string
		taken, filters   []string
		isMirror         bool
		stream, consumer string
	}{
		{name: "all", taken: []string{"notify.>"}},
		{name: "exactly", taken: []string{"notify.>", "other.>"}, filters: []string{"notify.>"}},
		{name: "wide filter, narrow stream", taken: []string{"notify.>"}, filters: []string{">"}},
		{
			name: "no filter", taken: []string{"notify.>", "other.>"},
			consumer: "consumer notifier takes everything in stream NOTIFY, notify.> and other.>" + moreThan,
		},
		{
			name: "one filter of two", taken: []string{"notify.>", "other.>"},
			filters:  []string{"notify.>", "other.a"},
			consumer: "consumer notifier takes notify.> and other.a" + moreThan,
		},
		{
			name: "nothing", taken: []string{"other.>"},
			stream:   "stream NOTIFY takes other.>, and nothing of NATS_SUBJECT notify.>",
			consumer: "consumer notifier takes everything in stream NOTIFY, other.>" + moreThan,
		},
		{name: "mirror", isMirror: true},
		{
			name: "mirror with a filter", isMirror: true, filters: []string{"other.>"},
			consumer: "consumer notifier takes other.>" + moreThan,
		},
	} {
		reading := Reading{
			Subject: "notify.>", Stream: jetstream.StreamConfig{Name: "NOTIFY", Subjects: test.taken},
		}
		if test.isMirror {
			reading.Stream.Mirror = &jetstream.StreamSource{}
		}
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

// Each change of a stream and a consumer as they should be is a fault, or none.
func TestFaults(t *testing.T) {
	t.Parallel()
	type (
		stream   = jetstream.StreamConfig
		consumer = jetstream.ConsumerConfig
	)
	for _, test := range []struct {
		severity Severity
		problem  string // if empty, nothing above a remark
		change   func(*stream, *consumer)
	}{
		{Remark, "", func(*stream, *consumer) {}},
		{Wait, "takes other.>, and nothing of", func(s *stream, _ *consumer) {
			s.Subjects = []string{"other.>"}
		}},
		{Risk, "not all of NATS_SUBJECT", func(s *stream, _ *consumer) { s.Subjects = []string{"notify.a"} }},
		{Refuse, "is a stream of counters", func(s *stream, _ *consumer) { s.AllowMsgCounter = true }},
		{Risk, "is bounded and discards old", func(s *stream, _ *consumer) {
			s.MaxMsgs, s.Discard = 10, jetstream.DiscardOld
		}},
		{Remark, "", func(s *stream, _ *consumer) { s.MaxMsgs = 10 }},
		{Remark, "", func(s *stream, _ *consumer) { s.Discard = jetstream.DiscardOld }},
		{Risk, "has max_msgs_per_subject 3: a newer event", func(s *stream, _ *consumer) {
			s.MaxMsgsPerSubject = 3
		}},
		{Remark, "", func(s *stream, _ *consumer) { s.MaxMsgsPerSubject, s.DiscardNewPerSubject = 3, true }},
		{Risk, "deletes events after 59m", func(s *stream, _ *consumer) { s.MaxAge = 59 * time.Minute }},
		{Remark, "", func(s *stream, _ *consumer) { s.MaxAge = time.Hour }},
		{Risk, "allows TTLs", func(s *stream, _ *consumer) { s.AllowMsgTTL = true }},
		{Risk, "allows roll-ups", func(s *stream, _ *consumer) { s.AllowRollup = true }},
		{Risk, "allows schedules", func(s *stream, _ *consumer) { s.AllowMsgSchedules = true }},
		{Risk, "keeps only events that a consumer waits for", func(s *stream, _ *consumer) {
			s.Retention = jetstream.InterestPolicy
		}},
		{Risk, "keeps every event for ever", func(s *stream, _ *consumer) {
			s.Retention = jetstream.LimitsPolicy
		}},
		{Remark, "", func(s *stream, _ *consumer) { s.Retention, s.MaxBytes = jetstream.LimitsPolicy, 1<<20 }},
		{Remark, "keeps settled events", func(s *stream, _ *consumer) { s.Retention = jetstream.LimitsPolicy }},
		{Risk, "is in memory", func(s *stream, _ *consumer) { s.Storage = jetstream.MemoryStorage }},
		{Risk, "acknowledges events before", func(s *stream, _ *consumer) {
			s.PersistMode = jetstream.AsyncPersistMode
		}},
		{Risk, "acknowledges nothing", func(s *stream, _ *consumer) { s.NoAck = true }},
		{Risk, "is sealed", func(s *stream, _ *consumer) { s.Sealed = true }},
		{Remark, "mirrors, sources", func(s *stream, _ *consumer) { s.Mirror = &jetstream.StreamSource{} }},
		{Remark, "mirrors, sources", func(s *stream, _ *consumer) { s.Sources = []*jetstream.StreamSource{{}} }},
		{Remark, "mirrors, sources", func(s *stream, _ *consumer) {
			s.SubjectTransform = &jetstream.SubjectTransformConfig{}
		}},

		{Refuse, "has the acknowledgement policy", func(_ *stream, c *consumer) {
			c.AckPolicy = jetstream.AckAllPolicy
		}},
		{Refuse, "has the acknowledgement policy", func(_ *stream, c *consumer) {
			c.AckPolicy = jetstream.AckNonePolicy
		}},
		{Refuse, "is a push consumer", func(_ *stream, c *consumer) { c.DeliverSubject = "there" }},
		{Refuse, "has the priority groups night", func(_ *stream, c *consumer) {
			c.PriorityGroups = []string{"night"}
		}},
		{Refuse, "has headers_only", func(_ *stream, c *consumer) { c.HeadersOnly = true }},
		{Withhold, "takes notify.a, which is not all", func(_ *stream, c *consumer) { c.FilterSubject = "notify.a" }},
		{Withhold, "takes notify.a and notify.b, which is not all", func(_ *stream, c *consumer) {
			c.FilterSubjects = []string{"notify.a", "notify.b"}
		}},
		{Wait, `belongs to workers with REDIS_NAMESPACE "staging", and here it is "notifier"`,
			func(_ *stream, c *consumer) { c.Metadata = map[string]string{NamespaceKey: "staging"} }},
		{Remark, "", func(_ *stream, c *consumer) { c.Metadata = map[string]string{NamespaceKey: "notifier"} }},
		{Risk, "has max_deliver 3", func(_ *stream, c *consumer) { c.MaxDeliver = 3 }},
		{Risk, "has a backoff", func(_ *stream, c *consumer) { c.BackOff = []time.Duration{time.Second} }},
		{Risk, "has ack wait 1s", func(_ *stream, c *consumer) { c.AckWait = time.Second }},
		{Remark, "has ack wait 1h", func(_ *stream, c *consumer) { c.AckWait = time.Hour }},
		{Risk, "has max_ack_pending 255 for all workers, and one could hold", func(_ *stream, c *consumer) {
			c.MaxAckPending = 255
		}},
		{Remark, "", func(_ *stream, c *consumer) { c.MaxAckPending = 256 }},
		{Remark, "", func(_ *stream, c *consumer) { c.MaxAckPending = -1 }},
		{Withhold, "is paused until 2096-11-28T08:30:00Z: no events arrive", func(_ *stream, c *consumer) {
			until := time.Date(2096, 11, 28, 9, 30, 0, 0, time.FixedZone("CET", 3600))
			c.PauseUntil = &until
		}},
		{Risk, "has replay policy original", func(_ *stream, c *consumer) {
			c.ReplayPolicy = jetstream.ReplayOriginalPolicy
		}},
		{Risk, "has deliver policy new", func(_ *stream, c *consumer) {
			c.DeliverPolicy = jetstream.DeliverNewPolicy
		}},
		{Risk, "is deleted after 1m without workers", func(s *stream, c *consumer) {
			s.Retention, c.InactiveThreshold = jetstream.LimitsPolicy, time.Minute
		}},
		{Remark, "", func(_ *stream, c *consumer) { c.InactiveThreshold = time.Minute }},
		{Risk, "is in memory", func(s *stream, c *consumer) {
			s.Retention, c.MemoryStorage = jetstream.LimitsPolicy, true
		}},
		{Risk, "has 1 replica, its stream 3", func(s *stream, c *consumer) { s.Replicas, c.Replicas = 3, 1 }},
		{Remark, "allows 1 request over all workers", func(_ *stream, c *consumer) { c.MaxWaiting = 1 }},
		{Remark, "has max_expires 500ms", func(_ *stream, c *consumer) { c.MaxRequestExpires = time.Second / 2 }},
	} {
		s := stream{
			Name: "NOTIFY", Subjects: []string{"notify.>"},
			Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew,
		}
		c := consumer{AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: 1000}
		test.change(&s, &c)
		reading := Reading{Subject: "notify.>", Namespace: "notifier", Held: 256, Stream: s}
		info := &jetstream.ConsumerInfo{Name: "notifier", Config: c, Paused: c.PauseUntil != nil}
		faults := append(reading.StreamFaults(), reading.ConsumerFaults(info)...)
		isExpected := func(f Fault) bool {
			return f.Severity == test.severity && strings.Contains(f.Problem, test.problem)
		}
		isMore := func(f Fault) bool { return f.Severity > Remark }
		if test.problem == "" && slices.ContainsFunc(faults, isMore) ||
			test.problem != "" && !slices.ContainsFunc(faults, isExpected) {
			t.Errorf("faults %v, expected %d with %q", faults, test.severity, test.problem)
		}
	}
}

// An operator can pause a consumer, or change its filters, while workers read it.
func TestWithheldEvents(t *testing.T) {
	t.Parallel()
	later := time.Now().Add(time.Hour)
	for name, test := range map[string]struct {
		consumer jetstream.ConsumerConfig
		problem  string // if empty, nothing is withheld
		none     bool
	}{
		"pause is over by the server's clock": {jetstream.ConsumerConfig{FilterSubject: "notify.>", PauseUntil: &later}, "", false},

		"all":          {jetstream.ConsumerConfig{FilterSubject: "notify.>", MaxDeliver: 3}, "", false},
		"no filter":    {jetstream.ConsumerConfig{}, "", false},
		"some":         {jetstream.ConsumerConfig{FilterSubject: "notify.a"}, "takes notify.a, which is not all", false},
		"all together": {jetstream.ConsumerConfig{FilterSubjects: []string{"notify.*", "notify.*.>"}}, "", false},
		"a gap":        {jetstream.ConsumerConfig{FilterSubjects: []string{"notify.*", "notify.*.*.>"}}, "which is not all", false},
		"others":       {jetstream.ConsumerConfig{FilterSubject: "audit.>"}, "takes audit.>, which is more than", true},
		"paused":       {jetstream.ConsumerConfig{FilterSubject: "notify.>", PauseUntil: &later}, "is paused until", true},
		"some, paused": {jetstream.ConsumerConfig{FilterSubject: "notify.a", PauseUntil: &later}, "is paused until", true},
	} {
		reading := Reading{Subject: "notify.>", Stream: jetstream.StreamConfig{
			Name: "NOTIFY", Subjects: []string{"notify.>", "audit.>"},
		}}
		if name == "no filter" {
			reading.Stream.Subjects = reading.Stream.Subjects[:1]
		}
		test.consumer.AckPolicy = jetstream.AckExplicitPolicy
		paused := strings.Contains(name, "paused")
		fault, none, found := reading.Withheld(&jetstream.ConsumerInfo{Name: "notifier", Config: test.consumer, Paused: paused})
		if found != (test.problem != "") || none != test.none || !strings.Contains(fault.Problem, test.problem) {
			t.Errorf("%s: %+v (none: %t, found: %t), expected %q", name, fault, none, found, test.problem)
		}
	}
}

// A work queue refuses a consumer with a new name beside the one that is there.
func TestAdviceFitsTheRetention(t *testing.T) {
	t.Parallel()
	for retention, want := range map[jetstream.RetentionPolicy]string{
		jetstream.LimitsPolicy:    "set NATS_CONSUMER to a new name",
		jetstream.WorkQueuePolicy: "delete it: a worker creates it again",
	} {
		for name, config := range map[string]jetstream.ConsumerConfig{
			"push":         {DeliverSubject: "there", AckPolicy: jetstream.AckExplicitPolicy},
			"policy":       {AckPolicy: jetstream.AckAllPolicy},
			"groups":       {PriorityGroups: []string{"night"}, AckPolicy: jetstream.AckExplicitPolicy},
			"headers_only": {HeadersOnly: true, AckPolicy: jetstream.AckExplicitPolicy},
		} {
			reading := Reading{Subject: "notify.>", Stream: jetstream.StreamConfig{
				Name: "NOTIFY", Subjects: []string{"notify.>"}, Retention: retention,
			}}
			faults := reading.ConsumerFaults(&jetstream.ConsumerInfo{Name: "notifier", Config: config})
			if len(faults) == 0 || faults[0].Severity != Refuse || !strings.Contains(faults[0].Advice, want) {
				t.Errorf("%s: %+v, expected the advice %q", name, faults, want)
			}
		}
	}
}
