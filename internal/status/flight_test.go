package status

import (
	"errors"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/snapshot"
	"notifier/internal/status/report"
	"notifier/test/kit"
)

// TestFlights: the line has the last error, the next attempt and the conditions that the event waits for.
func TestFlights(t *testing.T) {
	failing := []snapshot.Failing{
		{Channel: "#other", Category: "other", EventID: "e-1", Error: "http_500"},
		{Channel: "#alerts", Category: "errors", EventID: "e-1", Error: "http_503", Next: now.Add(time.Minute)},
		{Channel: "#alerts", Category: "errors", EventID: "e-3", Error: "http_503", Next: ago(time.Second)},
		{Channel: "#own", Category: "errors", EventID: "e-4", Error: "http_503"},
	}
	s := &stored{Report: report.Report{Now: now, Replicas: []report.Replica{replica("a", func(s *snapshot.Snapshot) {
		shows("100/30m", time.Hour)(s)
		s.Failing = failing
		s.Channels = []snapshot.Channel{
			{Name: "#alerts", Queued: 42, Refused: "is_archived"},
			{Name: "#own", Refused: "not_in_channel"},
		}
	})}}}
	source := s.source()
	flying := ratelimit.Trace{Category: "errors", Source: "ci", Admitted: ago(time.Hour), InFlight: true, Posts: 3}
	traces := []ratelimit.Trace{flying, {Category: "errors", Sent: now}}
	admitted := "In flight in errors: admitted " + ago(time.Hour).UTC().Format(time.RFC3339) + ", 3 attempts, source ci"
	next := now.Add(time.Minute).UTC().Format(time.RFC3339)
	alerts := "; channel/#alerts: " + messageOf(t, source, "channel/#alerts")
	own := "; channel/#own: " + messageOf(t, source, "channel/#own")
	for id, want := range map[string]string{
		"e-1":      admitted + ", last error http_503, next attempt " + next + alerts,
		"e-3":      admitted + ", last error http_503" + alerts, // the next attempt has begun
		"e-4":      admitted + ", last error http_503" + own,
		"unposted": admitted + alerts,
	} {
		flights, err := source.Flights(t.Context(), id, traces)
		kit.Check(t, err)
		if len(flights) != 1 || flights[0].String() != want {
			t.Errorf("%s: %v\nexpected\n%s", id, flights, want)
		}
	}
	s.err = errors.New("connection refused")
	flights, err := source.Flights(t.Context(), "e-1", traces)
	if err == nil || len(flights) != 1 || len(flights[0].Conditions) == 0 || flights[0].Conditions[0].Type != "redis" {
		t.Errorf("%+v, %v; expected the event, the condition redis and an error", flights, err)
	}
}

// messageOf returns the message of a condition.
func messageOf(t *testing.T, source Source, kind string) string {
	t.Helper()
	for _, c := range source.Read(t.Context()).Conditions {
		if c.Type == kind {
			return c.Message
		}
	}
	t.Fatalf("there is no condition %s", kind)
	return ""
}
