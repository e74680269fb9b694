package main

import (
	"context"
	"encoding/json"
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
		"time": time.Date(2026, 11, 20, 9, 31, 29, 0, time.UTC), "category": args[0], "outcome": args[1], "reason": args[2], "event_id": args[3],
	}
	for _, field := range args[4:] {
		name, value, _ := strings.Cut(field, "=")
		var parsed any
		if json.Unmarshal([]byte(value), &parsed) != nil {
			parsed = value
		}
		record[name] = parsed
	}
	data, err := json.Marshal(record)
	ts.Check(err)
	pattern, err := event.ParsePattern("notify.>")
	ts.Check(err)
	place, err := recent.NewPlace("NOTIFY", pattern)
	ts.Check(err)
	withJetStream(ts, func(ctx context.Context, js jetstream.JetStream) {
		_, err := js.CreateStream(ctx, place.Config())
		ts.Check(err)
		_, err = js.Publish(ctx, "notify-events."+args[0], data)
		ts.Check(err)
	})
}
