package preflight

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/devstack"
	"notifier/internal/settings"
	"notifier/test/kit"
)

// natsFindings are those of a server and a consumer, and expected to have a failure or none.
func natsFindings(t *testing.T, url, consumer string, failure bool) []Finding {
	t.Helper()
	findings := found(t, checkNATS, parsed(t, func(env *settings.Environment) { env.NATSURL, env.NATSConsumer = url, consumer }))
	if failed := slices.ContainsFunc(findings, func(f Finding) bool { return f.Level == Fail }); failed != failure {
		t.Errorf("failed: %t, expected %t: %q", failed, failure, findings)
	}
	return findings
}

// foreignStream is a stream with a consumer, as somebody else might have created them, and a finding about
// them.
type foreignStream struct {
	stream   jetstream.StreamConfig
	consumer func(*jetstream.ConsumerConfig)
	level    Level
	text     string
	want     bool // a failure
}

var foreignStreams = map[string]foreignStream{
	"good": {level: OK, text: "consumer notifier takes notify.>: 0 waiting, 0 with workers; ack wait 30s, no max_deliver, "},
	"discards": {
		stream: jetstream.StreamConfig{MaxMsgs: 10, Discard: jetstream.DiscardOld},
		level:  Warn, text: "stream NOTIFY is bounded and discards old: when it is full, it deletes events that no worker has read; set discard to new",
	},
	"forgets": {
		stream: jetstream.StreamConfig{MaxAge: time.Minute}, level: Warn, text: "stream NOTIFY deletes events after 1m",
	},
	"in memory": {
		stream: jetstream.StreamConfig{Storage: jetstream.MemoryStorage}, level: Warn, text: "stream NOTIFY is in memory",
	},
	"keeps": {
		stream: jetstream.StreamConfig{Retention: jetstream.LimitsPolicy}, level: Note, text: "stream NOTIFY keeps settled events",
	},
	"bounds": {
		stream: jetstream.StreamConfig{MaxBytes: 5 << 20, MaxMsgs: 7, MaxAge: 48 * time.Hour, MaxMsgsPerSubject: 3, Discard: jetstream.DiscardNew},
		level:  OK, text: "WorkQueue retention, discards new, max_age 48h, max_bytes 5.0 MiB, max_msgs 7, max_msgs_per_subject 3, file storage, 1 replica",
	},
	"gives up": {
		consumer: func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 3 }, level: Warn, text: "consumer notifier has max_deliver 3",
	},
	"backs off": {
		consumer: func(c *jetstream.ConsumerConfig) {
			c.BackOff = []time.Duration{time.Second, time.Minute}
			c.MaxDeliver = 5
		},
		level: Warn, text: "consumer notifier has a backoff",
	},
	"narrow": {
		consumer: func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 10 }, level: Note, text: "consumer notifier allows 10 unacknowledged events",
	},
	"does not wait for us": {
		stream:   jetstream.StreamConfig{Retention: jetstream.LimitsPolicy},
		consumer: func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckNonePolicy },
		level:    Fail, text: "consumer notifier has the acknowledgement policy ", want: true,
	},
	"elsewhere": {
		consumer: func(c *jetstream.ConsumerConfig) { c.FilterSubject = "notify.errors" },
		level:    Warn, text: "consumer notifier takes notify.errors, which is not all of NATS_SUBJECT notify.>",
	},
	"paused": {
		consumer: func(c *jetstream.ConsumerConfig) { until := time.Now().Add(time.Hour); c.PauseUntil = &until },
		level:    Warn, text: "consumer notifier is paused for ",
	},
}

// foreignConsumer is a consumer like a worker's.
var foreignConsumer = jetstream.ConsumerConfig{Durable: "notifier", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "notify.>"}

// startNATS starts a server, and returns its URL.
func startNATS(t *testing.T) string {
	t.Helper()
	server, err := devstack.StartNATS("127.0.0.1:0", t.TempDir())
	kit.Check(t, err)
	t.Cleanup(func() { _ = server.Close() })
	return server.URL()
}

// TestStreamsOfOthers looks at streams and consumers that somebody else has created.
func TestStreamsOfOthers(t *testing.T) {
	t.Parallel()
	for name, test := range foreignStreams {
		stream, consumer := test.stream, foreignConsumer
		stream.Name, stream.Subjects = "NOTIFY", []string{"notify.>"}
		if stream.Retention == jetstream.LimitsPolicy && name != "keeps" && name != "does not wait for us" {
			stream.Retention = jetstream.WorkQueuePolicy
		}
		if test.consumer != nil {
			test.consumer(&consumer)
		}
		url := startNATS(t)
		made, err := kit.JetStream(t, url).CreateStream(t.Context(), stream)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := made.CreateConsumer(t.Context(), consumer); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		findings := natsFindings(t, url, "notifier", test.want)
		wantFinding(t, findings, test.level, test.text)
		if name == "good" {
			const anybody = "it requires no user: whoever can reach it can read, publish and delete events"
			wantFinding(t, findings, Warn, anybody)
			wantNone(t, slices.DeleteFunc(findings, func(f Finding) bool { return f.Text == anybody }), Warn)
		}
	}
}

// TestSubjectsThatDoNotFit: what a worker would wait for is a failure.
func TestSubjectsThatDoNotFit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		subjects []string
		filter   string
		want     string
	}{
		{[]string{"other.>"}, "", "stream NOTIFY takes other.>, and nothing of NATS_SUBJECT notify.>; a worker waits until they agree"},
		{[]string{"notify.>", "other.>"}, "", "consumer notifier takes everything in stream NOTIFY, notify.> and other.>, which is more than NATS_SUBJECT notify.>"},
		{[]string{"notify.>", "other.>"}, "other.*", "consumer notifier takes other.*, which is more than NATS_SUBJECT notify.>"},
		{[]string{"notify.>", "other.>"}, "notify.>", ""},
	} {
		url := startNATS(t)
		stream, err := kit.JetStream(t, url).CreateStream(t.Context(), jetstream.StreamConfig{
			Name: "NOTIFY", Subjects: test.subjects, Retention: jetstream.WorkQueuePolicy,
		})
		kit.Check(t, err)
		consumer := foreignConsumer
		consumer.FilterSubject = test.filter
		_, err = stream.CreateConsumer(t.Context(), consumer)
		kit.Check(t, err)
		if findings := natsFindings(t, url, "notifier", test.want != ""); test.want != "" {
			wantFinding(t, findings, Fail, test.want)
		}
	}
}

// TestDeadLettersOfAnother: the dead-letter stream cannot be created where another stream takes its subjects.
func TestDeadLettersOfAnother(t *testing.T) {
	t.Parallel()
	url := startNATS(t)
	_, err := kit.JetStream(t, url).CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER_DEAD", Subjects: []string{"notify-dead.>"}})
	kit.Check(t, err)
	wantFinding(t, natsFindings(t, url, "notifier", true), Fail,
		"stream NOTIFY_DEAD does not exist and cannot be created: stream OTHER_DEAD already has subjects of notify-dead.>; set DEAD_LETTER_SUBJECT")
}

// TestPushConsumer: a push consumer, and a dead-letter stream that takes other letters.
func TestPushConsumer(t *testing.T) {
	t.Parallel()
	url := startNATS(t)
	js := kit.JetStream(t, url)
	for name, subject := range map[string]string{"NOTIFY": "notify.>", "NOTIFY_DEAD": "dead.>"} {
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subject}, Retention: jetstream.WorkQueuePolicy})
		kit.Check(t, err)
	}
	_, err := js.CreatePushConsumer(t.Context(), "NOTIFY", jetstream.ConsumerConfig{
		Durable: "pushes", DeliverSubject: "there", AckPolicy: jetstream.AckExplicitPolicy,
	})
	kit.Check(t, err)
	findings := natsFindings(t, url, "pushes", true)
	wantFinding(t, findings, Fail, "stream NOTIFY_DEAD does not take notify-dead.>: an event that can never be sent would be held for ever")
	wantFinding(t, findings, Fail, "consumer pushes is a push consumer")
}
