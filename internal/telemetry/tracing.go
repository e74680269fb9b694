package telemetry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"notifier/internal/buildinfo"
	"notifier/internal/consume/result"
	"notifier/internal/event"
	"notifier/internal/outcome"
)

// tracingEnd bounds the export of the last spans when a worker stops.
const tracingEnd = 2 * time.Second

// Tracing makes one span of each settled event, from its publication through the decision to Slack's reply.
// The span is a child of the one that the publisher names in W3C's traceparent header. Tracing is on where
// the standard OTEL_* variables name an exporter; spans that cannot be exported are lost, and events never
// wait for them.
//
// A nil *Tracing does nothing.
type Tracing struct {
	provider   *sdktrace.TracerProvider
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
}

// tracingWanted reports whether the environment names an exporter. Without one nothing is started: the
// libraries would send to this host by default.
func tracingWanted() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	if exporter := os.Getenv("OTEL_TRACES_EXPORTER"); exporter != "" {
		return exporter != "none"
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" ||
		os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// CheckTracing returns the problems of the OTEL_* variables, a line each: the variable, the problem and the
// expected value. It quotes no value that can be a secret.
func CheckTracing() error {
	_, err := exporterClient()
	return err
}

// exporterClient returns a client of the exporter that the variables name, or nil if tracing is off.
func exporterClient() (*otlpClient, error) {
	if !tracingWanted() {
		return nil, nil
	}
	client, err := newOTLPClient(otlpVariable)
	if exporter := os.Getenv("OTEL_TRACES_EXPORTER"); exporter != "" && exporter != "otlp" {
		return nil, errors.Join(fmt.Errorf("OTEL_TRACES_EXPORTER: %q, expected otlp or none", exporter), err)
	}
	return client, err
}

// StartTracing reads the OTEL_* variables. It returns nil if tracing is off. If the variables cannot be used, it
// returns nil and the problems, and the caller works without traces.
func StartTracing(ctx context.Context, log *zap.Logger) (*Tracing, error) {
	client, err := exporterClient()
	if client == nil {
		return nil, err
	}
	// The library would log settings that it cannot read, and they can contain secrets: headers, URLs.
	otel.SetLogger(logr.Discard())
	otel.SetErrorHandler(
		otel.ErrorHandlerFunc(func(err error) { log.Warn("spans are lost", zap.Error(showable(err))) }),
	)
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, showable(err)
	}
	name := resource.NewSchemaless(
		attribute.String("service.name", "notifier"),
		attribute.String("service.version", buildinfo.Version()),
	)
	described, err := resource.Merge(resource.Default(), name)
	if namesService() { // else resource.Default() has the name unknown_service:notifier
		described, err = resource.Merge(name, resource.Default())
	}
	if err != nil {
		return nil, showable(err)
	}
	return tracingTo(
		sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(described)),
	), nil
}

// namesService reports whether the OTEL_* variables name the service.
func namesService() bool {
	if os.Getenv("OTEL_SERVICE_NAME") != "" {
		return true
	}
	for attribute := range strings.SplitSeq(os.Getenv("OTEL_RESOURCE_ATTRIBUTES"), ",") {
		if name, _, _ := strings.Cut(attribute, "="); strings.TrimSpace(name) == "service.name" {
			return true
		}
	}
	return false
}

// otlpVariable returns the name and the value of a variable of the exporter: the one for traces, else the one
// for all signals.
func otlpVariable(suffix string) (name, value string) {
	if name = "OTEL_EXPORTER_OTLP_TRACES_" + suffix; os.Getenv(name) == "" {
		name = "OTEL_EXPORTER_OTLP_" + suffix
	}
	return name, os.Getenv(name)
}

// showable returns an error of our exporter, which holds no secret. Errors of the library can quote a variable.
func showable(err error) error {
	var own otlpError
	if errors.As(err, &own) {
		return own
	}
	return errors.New("OpenTelemetry reports an error that may quote an OTEL_* variable, and is not shown")
}

func tracingTo(provider *sdktrace.TracerProvider) *Tracing {
	return &Tracing{
		provider:   provider,
		tracer:     provider.Tracer("notifier"),
		propagator: propagation.TraceContext{},
	}
}

// Observe makes the span of one settled event.
func (t *Tracing) Observe(s *result.Result) {
	if t == nil {
		return
	}
	record := s.Record()
	ctx := t.propagator.Extract(context.Background(), headerCarrier(s.Header))
	_, span := t.tracer.Start(
		ctx,
		"notification",
		trace.WithTimestamp(s.Event.Published),
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(
			attribute.String("messaging.system", "nats"),
			text("messaging.destination.name", record.Subject),
			text("notifier.event_id", record.EventID),
			text("notifier.category", record.Category),
			attribute.String("notifier.outcome", record.Outcome),
			attribute.String("notifier.reason", record.Reason),
			attribute.Int("notifier.attempts", record.Attempts),
		),
	)
	if !s.Decided.IsZero() {
		span.AddEvent("decided", trace.WithTimestamp(s.Decided))
	}
	if !s.Posted.IsZero() {
		span.AddEvent("post begun", trace.WithTimestamp(s.Posted))
	}
	if record.Outcome == outcome.Dead {
		span.SetStatus(codes.Error, record.Reason)
	}
	end := record.Time
	if record.Outcome == outcome.Sent {
		end = s.Event.Published.Add(s.Latency)
	}
	span.End(trace.WithTimestamp(end))
}

// text is an attribute that can be encoded: subjects are bytes, and one that is not UTF-8 would make a whole
// batch fail.
func text(key, value string) attribute.KeyValue {
	return attribute.String(key, strings.ToValidUTF8(value, "\uFFFD"))
}

// Stop exports the last spans, for two seconds at most.
func (t *Tracing) Stop() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tracingEnd)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // the error handler has logged lost spans
}

// headerCarrier reads NATS headers. Publishers spell their names in any case.
type headerCarrier map[string][]string

// Get implements propagation.TextMapCarrier.
func (h headerCarrier) Get(name string) string {
	value, _ := event.HeaderValue(h, name)
	return value
}

// Set implements propagation.TextMapCarrier; nothing is ever written.
func (h headerCarrier) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (h headerCarrier) Keys() []string {
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	return names
}
