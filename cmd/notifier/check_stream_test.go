//go:build !production

package main

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/devstack"
	"notifier/internal/testkit"
)

// TestCheckStream looks at streams and consumers that somebody else has made.
func TestCheckStream(t *testing.T) {
	t.Parallel()
	settings := checkSettingsOf(t)
	var js jetstream.JetStream
	consumer := jetstream.ConsumerConfig{Durable: "notifier", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "notify.>"}
	for name, test := range map[string]struct {
		stream      jetstream.StreamConfig
		consumer    func(*jetstream.ConsumerConfig)
		level, text string
		want        int
	}{
		"good": {level: "ok", text: "consumer notifier takes notify.>: 0 waiting, 0 with workers; ack wait 30s, no max_deliver, "},
		"discards": {
			stream: jetstream.StreamConfig{MaxMsgs: 10, Discard: jetstream.DiscardOld},
			level:  "warn", text: "stream NOTIFY is bounded and discards old: when it is full, it deletes events that no worker has read; set discard to new",
		},
		"forgets": {
			stream: jetstream.StreamConfig{MaxAge: time.Minute}, level: "warn", text: "stream NOTIFY deletes events after 1m",
		},
		"in memory": {
			stream: jetstream.StreamConfig{Storage: jetstream.MemoryStorage}, level: "warn", text: "stream NOTIFY is in memory",
		},
		"keeps": {
			stream: jetstream.StreamConfig{Retention: jetstream.LimitsPolicy}, level: "note", text: "stream NOTIFY keeps settled events",
		},
		"bounds": {
			stream: jetstream.StreamConfig{MaxBytes: 5 << 20, MaxMsgs: 7, MaxAge: 48 * time.Hour, MaxMsgsPerSubject: 3, Discard: jetstream.DiscardNew},
			level:  "ok", text: "WorkQueue retention, discards new, max_age 48h, max_bytes 5.0 MiB, max_msgs 7, max_msgs_per_subject 3, file storage, 1 replica",
		},
		"gives up": {
			consumer: func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 3 }, level: "warn", text: "consumer notifier has max_deliver 3",
		},
		"backs off": {
			consumer: func(c *jetstream.ConsumerConfig) {
				c.BackOff = []time.Duration{time.Second, time.Minute}
				c.MaxDeliver = 5
			},
			level: "warn", text: "consumer notifier has a backoff",
		},
		"narrow": {
			consumer: func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 10 }, level: "note", text: "consumer notifier allows 10 unacknowledged events",
		},
		"does not wait for us": {
			stream:   jetstream.StreamConfig{Retention: jetstream.LimitsPolicy},
			consumer: func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckNonePolicy },
			level:    "fail", text: "consumer notifier has the acknowledgement policy ", want: exitFailed,
		},
		"elsewhere": {
			consumer: func(c *jetstream.ConsumerConfig) { c.FilterSubject = "notify.errors" },
			level:    "warn", text: "consumer notifier takes notify.errors, which is not all of NATS_SUBJECT notify.>",
		},
		"paused": {
			consumer: func(c *jetstream.ConsumerConfig) { until := time.Now().Add(time.Hour); c.PauseUntil = &until },
			level:    "warn", text: "consumer notifier is paused for ",
		},
	} {
		stream, with := test.stream, consumer
		stream.Name, stream.Subjects = "NOTIFY", []string{"notify.>"}
		if stream.Retention == jetstream.LimitsPolicy && name != "keeps" && name != "does not wait for us" {
			stream.Retention = jetstream.WorkQueuePolicy
		}
		if test.consumer != nil {
			test.consumer(&with)
		}
		server, err := devstack.StartNATS(ephemeralAddr, t.TempDir())
		testkit.Check(t, err)
		t.Cleanup(func() { _ = server.Close() })
		settings["NATS_URL"], js = server.URL(), jetStreamAt(t, server.URL())
		made, err := js.CreateStream(t.Context(), stream)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := made.CreateConsumer(t.Context(), with); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out := checkAgainst(t, settings, test.want)
		wantFinding(t, out, test.level, "nats", test.text)
		if warned := len(out.lines("warn  nats")) > 0; name == "good" && warned {
			t.Errorf("warnings about a good stream:\n%s", out.String())
		}
	}

	// A push consumer, and a dead-letter stream that takes other letters.
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "NOTIFY_DEAD", Subjects: []string{"dead.>"}}); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteConsumer(t.Context(), "NOTIFY", "notifier"); err != nil { // a work queue has one for each subject
		t.Fatal(err)
	}
	if _, err := js.CreatePushConsumer(t.Context(), "NOTIFY", jetstream.ConsumerConfig{
		Durable: "pushes", DeliverSubject: "there", AckPolicy: jetstream.AckExplicitPolicy,
	}); err != nil {
		t.Fatal(err)
	}
	settings["NATS_CONSUMER"] = "pushes"
	out := checkAgainst(t, settings, exitFailed)
	wantFinding(t, out, "fail", "nats", "stream NOTIFY_DEAD does not take notify-dead.>: an event that can never be sent would be held for ever")
	wantFinding(t, out, "fail", "nats", "consumer pushes is a push consumer")
}
