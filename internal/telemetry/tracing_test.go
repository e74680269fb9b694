package telemetry

import (
	"testing"
	"time"
	"unicode/utf8"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"notifier/internal/consume/result"
	"notifier/internal/event"
	"notifier/internal/outcome"
)

func TestASpanGoesFromPublicationToSlacksAnswer(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracing := tracingTo(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	published := time.Date(2026, 11, 20, 4, 39, 0, 0, time.UTC)
	tracing.Observe(&result.Result{
		Outcome: outcome.Sent, Event: event.Event{ID: "e1", Category: "errors", Subject: "notify.errors", Published: published},
		Latency: 3 * time.Second, Decided: published.Add(time.Second), Posted: published.Add(2 * time.Second), Attempts: 1,
		Header: map[string][]string{"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}},
	})
	tracing.Observe(&result.Result{Outcome: outcome.Dead, Reason: "malformed", Event: event.Event{Published: published, Subject: "notify.\xff"}})
	ended := spans.Ended()
	if len(ended) != 2 {
		t.Fatalf("%d spans, expected 2", len(ended))
	}
	sent := ended[0]
	if got := sent.SpanContext().TraceID().String(); got != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("trace %s, expected the publisher's", got)
	}
	if got := sent.Parent().SpanID().String(); got != "b7ad6b7169203331" {
		t.Errorf("parent %s, expected the publisher's span", got)
	}
	if !sent.StartTime().Equal(published) || !sent.EndTime().Equal(published.Add(3*time.Second)) {
		t.Errorf("from %s to %s, expected from publication to Slack's answer", sent.StartTime(), sent.EndTime())
	}
	if events := sent.Events(); len(events) != 2 || events[0].Name != "decided" || !events[1].Time.Equal(published.Add(2*time.Second)) {
		t.Errorf("events %v", events)
	}
	for _, attribute := range ended[1].Attributes() {
		if !utf8.ValidString(attribute.Value.String()) { // no collector would take the batch that it is in
			t.Errorf("%s is no UTF-8", attribute.Key)
		}
	}
	if dead := ended[1]; dead.Parent().IsValid() || dead.Status().Description != "malformed" {
		t.Errorf("a dead event's span has parent %v and status %v", dead.Parent(), dead.Status())
	}
}

func TestTracingIsOffUnlessAnExporterIsNamed(t *testing.T) {
	for name, test := range map[string]struct {
		settings map[string]string
		want     bool
	}{
		"nothing":      {nil, false},
		"endpoint":     {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, true},
		"console":      {map[string]string{"OTEL_TRACES_EXPORTER": "console"}, true},
		"none":         {map[string]string{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, false},
		"switched off": {map[string]string{"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
				t.Setenv(variable, test.settings[variable])
			}
			if got := tracingWanted(); got != test.want {
				t.Errorf("%t, expected %t", got, test.want)
			}
		})
	}
}
