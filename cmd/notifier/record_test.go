package main

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"notifier/internal/devstack"
	"notifier/internal/outcome"
	"notifier/internal/outcome/recent"
	"notifier/test/kit"
)

// endings lists an event for each kind of end, in the order in which they are published. Slack names the
// channel by its ID.
var endings = []struct {
	outcome, category, payload string
	slack                      []devstack.Response
}{
	{"sent", "team.a", `{"id":"e-1","text":"x"}`, []devstack.Response{{Body: `{"ok":true,"channel":"C9","ts":"1.000001"}`}}},
	{"dropped category", "team.a", `{"id":"e-2","text":"x"}`, nil},
	{"dropped duplicate", "team.a", `{"id":"e-1","text":"x"}`, nil},
	{"dropped expired", "team.b", `{"id":"e-4","text":"x","time":"2020-01-01T00:00:00Z"}`, nil},
	{"dropped muted", "quiet", `{"id":"e-5","text":"x"}`, nil},
	{"dead unroutable", "odd", `{"id":"e-6","text":"x","channel":"#none"}`, nil},
	{"dead slack_rejected", "odd", `{"id":"e-7","text":"x"}`, []devstack.Response{{Code: "invalid_blocks"}}},
}

// collector keeps the attributes of spans, by event and outcome.
type collector struct {
	mu    sync.Mutex
	spans map[string]map[string]string
}

func (c *collector) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var traces tracepb.TracesData
	body, err := io.ReadAll(r.Body)
	if err != nil || proto.Unmarshal(body, &traces) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range traces.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				attributes := map[string]string{}
				for _, a := range span.Attributes {
					attributes[a.Key] = a.Value.GetStringValue()
					if a.Key == "notifier.attempts" {
						attributes[a.Key] = fmt.Sprint(a.Value.GetIntValue())
					}
				}
				c.spans[attributes["notifier.event_id"]+" "+attributes["notifier.reason"]] = attributes
			}
		}
	}
}

// without returns a copy of fields without some names.
func without(fields map[string]any, names ...string) map[string]any {
	fields = maps.Clone(fields)
	for _, name := range names {
		delete(fields, name)
	}
	return fields
}

// TestEverybodyShowsTheSameRecord follows one event of each end from its log line to everything that shows or
// keeps it.
func TestEverybodyShowsTheSameRecord(t *testing.T) {
	t.Parallel()
	spans := &collector{spans: map[string]map[string]string{}}
	otlp := httptest.NewServer(spans)
	t.Cleanup(otlp.Close)
	_, slack, env := services(t, map[string]string{
		"LIMIT_CATEGORY": "1/1h", "LIMIT_GROUP": "50/1h", "EVENT_MAX_AGE": "1h", "OTEL_EXPORTER_OTLP_ENDPOINT": otlp.URL,
	})
	p := startReady(t, env)
	runToEnd(t, env, exitDone, "mute", "add", "quiet", "-for", "1h", "-reason", "noise", "-by", "me")
	kit.Eventually(t, "the mute is in force", func() bool { return len(p.out.lines("mute is in force")) == 1 })

	var lines []map[string]any // without level, ts and msg
	for i, e := range endings {
		slack.Respond(devstack.Next(e.slack...))
		code := exitUnsent
		if e.outcome == outcome.Sent {
			code = exitDone
		}
		out, _ := runToEnd(t, env, code, "publish", e.category, "-wait", "-json", e.payload)
		settled := p.out.lines(`"outcome":`)
		if len(settled) != i+1 {
			t.Fatalf("%d lines after event %d", len(settled), i+1)
		}
		line := without(logLine(t, settled[i]), "level", "ts", "msg")
		lines = append(lines, line)
		if got := strings.TrimSpace(fmt.Sprint(line["outcome"], " ", line["reason"])); got != e.outcome && got != e.outcome+" <nil>" {
			t.Errorf("event %d is %s, expected %s", i+1, got, e.outcome)
		}
		shown := without(logLine(t, out), "time", "seq", "stream")
		if diff := cmp.Diff(line, shown); diff != "" {
			t.Errorf("log line and publish -wait -json (-line +shown):\n%s", diff)
		}
	}
	if lines[0]["channel"] != "#alerts" || lines[0]["group"] != "team" {
		t.Errorf("%v, expected the channel's name in the settings, and the group", lines[0])
	}

	out, _ := runToEnd(t, env, exitDone, "events", "-json")
	events := strings.Split(strings.TrimSpace(out), "\n")
	var answer struct{ Events []json.RawMessage }
	_, body := get(t, adminURL(t, &p.out)+"/api/events")
	kit.Check(t, json.Unmarshal([]byte(body), &answer))
	_, page := get(t, adminURL(t, &p.out)+"/")
	letters := kit.JetStream(t, env["NATS_URL"])
	for i, line := range lines {
		event := logLine(t, events[i])
		if diff := cmp.Diff(line, without(event, "time", "seq")); diff != "" {
			t.Errorf("log line and events -json (-line +shown):\n%s", diff)
		}
		if diff := cmp.Diff(event, logLine(t, string(answer.Events[i]))); diff != "" {
			t.Errorf("events -json and /api/events:\n%s", diff)
		}
		why, _ := runToEnd(t, env, exitDone, "why", "-json", line["event_id"].(string))
		if !strings.Contains(why, events[i]+"\n") {
			t.Errorf("why -json shows\n%s, expected\n%s", why, events[i])
		}
		var record outcome.Record
		kit.Check(t, json.Unmarshal([]byte(events[i]), &record))
		if cell := html.EscapeString(recent.Detail(record)); !strings.Contains(page, cell) {
			t.Errorf("the page does not show %q", cell)
		}
		if record.Outcome == outcome.Dead {
			stream, err := letters.Stream(t.Context(), "NOTIFY_DEAD")
			kit.Check(t, err)
			letter, err := stream.GetMsg(t.Context(), record.LetterSeq)
			kit.Check(t, err)
			for name, want := range map[string]string{
				outcome.HeaderEventID: record.EventID, outcome.HeaderReason: record.Reason, outcome.HeaderDetail: record.Detail,
				outcome.HeaderSubject: record.Subject, outcome.HeaderStreamSeq: fmt.Sprint(record.StreamSeq),
				outcome.HeaderTime: record.Time.Format(time.RFC3339Nano),
			} {
				if got := letter.Header.Get(name); got != want {
					t.Errorf("the letter has %s %q, expected %q", name, got, want)
				}
			}
		}
	}

	p.terminate(t)
	p.ends(t, exitDone)
	for _, line := range lines {
		reason, _ := line["reason"].(string)
		attempts, _ := line["attempts"].(float64)
		want := map[string]string{
			"messaging.system": "nats", "messaging.destination.name": line["subject"].(string), "notifier.event_id": line["event_id"].(string),
			"notifier.category": line["category"].(string), "notifier.outcome": line["outcome"].(string), "notifier.reason": reason,
			"notifier.attempts": fmt.Sprint(attempts),
		}
		if diff := cmp.Diff(want, spans.spans[want["notifier.event_id"]+" "+reason]); diff != "" {
			t.Errorf("span (-line +span):\n%s", diff)
		}
	}
}
