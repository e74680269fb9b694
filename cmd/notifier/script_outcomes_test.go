package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"

	"notifier/internal/event"
	"notifier/internal/outcome/recent"
)

// storeRecorded records an outcome as a worker would: recorded CATEGORY OUTCOME REASON EVENT_ID
// FIELD=VALUE... Its time is a morning in November, unless time= says otherwise.
func storeRecorded(ts *testscript.TestScript, _ bool, args []string) {
	record := map[string]any{
		"time": time.Date(2026, 11, 20, 9, 31, 29, 0, time.UTC), "category": args[0], "outcome": args[1],
		"reason": args[2], "event_id": args[3],
	}
	for _, field := range args[4:] {
		name, value, _ := strings.Cut(field, "=")
		var parsed any
		if json.Unmarshal([]byte(value), &parsed) != nil {
			parsed = value
		}
		record[name] = parsed
	}
	publishRecord(ts, args[0], args[3], record)
}

// storeOutcome records the outcome of the event with a sequence in the stream: outcome errors e-1 17
// '{"outcome":"sent","channel":"#alerts"}'.
func storeOutcome(ts *testscript.TestScript, _ bool, args []string) {
	record := map[string]any{}
	ts.Check(json.Unmarshal([]byte(args[3]), &record))
	seq, err := strconv.Atoi(args[2])
	ts.Check(err)
	record["time"], record["category"], record["event_id"], record["stream_seq"] = time.Now(), args[0], args[1], seq
	publishRecord(ts, args[0], args[1], record)
}

func publishRecord(ts *testscript.TestScript, category, id string, record map[string]any) {
	data, err := json.Marshal(record)
	ts.Check(err)
	pattern, err := event.ParsePattern("notify.>")
	ts.Check(err)
	place, err := recent.NewPlace("NOTIFY", pattern)
	ts.Check(err)
	hash := sha256.Sum256([]byte(id))
	withJetStream(ts, func(ctx context.Context, js jetstream.JetStream) {
		_, err := js.CreateStream(ctx, place.Config())
		ts.Check(err)
		_, err = js.Publish(ctx, fmt.Sprintf("notify-events.%x.%s", hash[:8], category), data)
		ts.Check(err)
	})
}

// createConsumer creates the consumer of the workers: consumer. Or it pauses that consumer: consumer pause TIME.
func createConsumer(ts *testscript.TestScript, _ bool, args []string) {
	withJetStream(ts, func(ctx context.Context, js jetstream.JetStream) {
		if len(args) == 2 && args[0] == "pause" {
			until, err := time.Parse(time.RFC3339, args[1])
			ts.Check(err)
			_, err = js.PauseConsumer(ctx, "NOTIFY", "notifier", until)
			ts.Check(err)
			return
		}
		_, err := js.CreateConsumer(ctx, "NOTIFY", jetstream.ConsumerConfig{
			Durable: "notifier", FilterSubject: "notify.>", AckPolicy: jetstream.AckExplicitPolicy,
		})
		ts.Check(err)
	})
}
