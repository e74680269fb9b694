package consume

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"

	"notifier/internal/consume/feed"
	"notifier/internal/consume/result"
	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/steering"
)

// lineOfRecord encodes the fields of a record's line.
func lineOfRecord(t *testing.T, r outcome.Record) map[string]any {
	t.Helper()
	var fields fieldList
	fields.addShared(&r)
	fields.addOwn(&r)
	line, err := zapcore.NewJSONEncoder(zapcore.EncoderConfig{}).EncodeEntry(zapcore.Entry{}, fields)
	if err != nil {
		t.Fatal(err)
	}
	return decoded(t, line.Bytes())
}

func decoded(t *testing.T, data []byte) (fields map[string]any) {
	t.Helper()
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

// TestTheLineIsTheRecord compares the log line with the JSON of the record, with each field set alone and with
// all of them.
func TestTheLineIsTheRecord(t *testing.T) {
	base := outcome.Record{EventID: "e", Category: "c", Subject: "notify.c", Outcome: outcome.Sent}
	all := base
	notInTheLine := []string{"LeftOut", "Seq"}
	records := []outcome.Record{base}
	for field := range reflect.TypeFor[outcome.Record]().Fields() {
		alone := base
		for _, r := range []*outcome.Record{&alone, &all} {
			fill(t, reflect.ValueOf(r).Elem().FieldByIndex(field.Index))
		}
		records = append(records, alone)
	}
	for _, r := range append(records, all) {
		for _, name := range notInTheLine {
			reflect.ValueOf(&r).Elem().FieldByName(name).SetZero()
		}
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		want := decoded(t, data)
		delete(want, "time")
		if diff := cmp.Diff(want, lineOfRecord(t, r)); diff != "" {
			t.Errorf("JSON and line (-JSON +line):\n%s", diff)
		}
	}
}

// A line writer encodes once the fields that results of one kind share. A value that the kind forgets would
// leak from the first result into the second.
func TestSharedFieldsDoNotLeak(t *testing.T) {
	base := result.Result{
		Event:   event.Event{ID: "e", Category: "c", Subject: "notify.c"},
		Outcome: outcome.Sent, Delivery: &feed.Delivery{Seq: 1}, Tier: ratelimit.Tier{Count: 10, Window: time.Hour},
	}
	now := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	mute := &steering.Order{Target: "c", Until: now.Add(time.Hour), By: "me", Reason: "noise"}
	for name, change := range map[string]func(r *result.Result){
		"id":        func(r *result.Result) { r.Event.ID = "other" },
		"category":  func(r *result.Result) { r.Event.Category = "other" },
		"subject":   func(r *result.Result) { r.Event.Subject = "other" },
		"source":    func(r *result.Result) { r.Event.Source = "other" },
		"outcome":   func(r *result.Result) { r.Outcome = outcome.Dead },
		"reason":    func(r *result.Result) { r.Reason = outcome.Global },
		"tier":      func(r *result.Result) { r.Tier.Count = 11 },
		"retry":     func(r *result.Result) { r.RetryAfter = time.Second },
		"at least":  func(r *result.Result) { r.AtLeast = true },
		"never":     func(r *result.Result) { r.Never = true },
		"reserved":  func(r *result.Result) { r.Reserved = 3 },
		"mute":      func(r *result.Result) { r.Mute = mute },
		"detail":    func(r *result.Result) { r.Detail = "a fault" },
		"no letter": func(r *result.Result) { r.NoLetter = true },
		"delivery": func(r *result.Result) {
			r.Delivery = &feed.Delivery{Seq: 2}
			r.Delivery.Redelivered.Store(true)
		},
	} {
		var written zaptest.Buffer
		encoder := zapcore.NewJSONEncoder(zapcore.EncoderConfig{})
		log := zap.New(zapcore.NewCore(encoder, &written, zapcore.InfoLevel))
		lines := newLineWriter(log, func(category string) string { return "group of " + category }, now)
		changed, unchanged := base, base
		change(&changed)
		batch := []*result.Result{&changed, &unchanged}
		for _, r := range batch {
			lines.write(r)
		}
		if n := len(written.Lines()); n != len(batch) {
			t.Fatalf("%s: %d lines, expected %d", name, n, len(batch))
		}
		for i, text := range written.Lines() {
			if diff := cmp.Diff(lineOfRecord(t, batch[i].Record()), decoded(t, []byte(text))); diff != "" {
				t.Errorf("%s: record and line %d (-record +line):\n%s", name, i+1, diff)
			}
		}
	}
}

// fill sets a field to a value other than its zero.
func fill(t *testing.T, field reflect.Value) {
	t.Helper()
	switch field.Interface().(type) {
	case string:
		field.SetString("a text")
	case bool:
		field.SetBool(true)
	case int:
		field.SetInt(7)
	case uint64:
		field.SetUint(7)
	case float64:
		field.SetFloat(0.000_001)
	case time.Time:
		field.Set(reflect.ValueOf(time.Date(2026, 11, 20, 9, 0, 0, 123_000, time.UTC)))
	case *bool:
		field.Set(reflect.ValueOf(new(bool)))
	default:
		t.Fatalf("no value for a %s", field.Type())
	}
}
