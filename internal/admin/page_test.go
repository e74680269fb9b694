package admin

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"notifier/internal/outcome"
	"notifier/internal/status"
)

func TestPageShowsTheState(t *testing.T) {
	t.Parallel()
	var asked EventsQuery
	probes := fixture()
	probes.Events = func(_ context.Context, query EventsQuery) (Events, error) {
		asked = query
		at := time.Date(2026, 11, 20, 9, 10, 38, 0, time.UTC)
		return Events{Note: "Older events were not read.", Events: []outcome.Record{
			{Time: at, EventID: "e-1", Category: "deploys", Outcome: outcome.Sent, Channel: "#alerts"},
			{Time: at, EventID: "e-2", Category: "errors", Outcome: outcome.Dropped, Reason: outcome.Category, Limit: "10/30m"},
		}}, nil
	}
	response := get(handlerOf(t, "", probes), "/?category=errors&outcome=dropped")
	body := response.Body.String()
	if response.Code != 200 || response.Header().Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("%d %v", response.Code, response.Header())
	}
	if want := (EventsQuery{"errors", "dropped", defaultEvents}); asked != want {
		t.Errorf("the page read %+v, expected %+v", asked, want)
	}
	for _, want := range []string{
		`<title>warn · notifier</title>`, `<h1 class="warn"><strong role="status">warn</strong>`,
		"Sending. 23 of 100 global slots are used; errors is full for 29m58s.", `<time id="time">09:00:00Z</time>`,
		`<rect width="23" height="1"/></svg><bdi>23/100</bdi>`, "noise.*", "worker-1", "6f1c (2), 91ab (1)",
		`name="category" value="errors"`, "<option selected>dropped</option>", "2026-11-20T09:10:38Z", "Older events were not read.",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Index(body, "e-1") > strings.Index(body, "e-2") {
		t.Error("the newest event is not the last")
	}
}

// Publishers and other servers choose much of the text.
func TestPageShowsForeignText(t *testing.T) {
	t.Parallel()
	const hostile = "<img src=x onerror=alert(1)>\"'`{{.}}\u2069\u202e\u0007\u2028x"
	const shown = "&lt;img src=x onerror=alert(1)&gt;&#34;&#39;`{{.}}\ufffd\ufffd\ufffd\ufffdx"
	long := strings.Repeat("é", 10_000)
	for _, text := range []string{hostile, long} {
		probes := fixture()
		probes.State = func(context.Context) status.State {
			at := time.Now()
			return status.State{
				State: status.Fail, Summary: text,
				Conditions: []status.Condition{{Type: text, State: status.Fail, Since: at, Message: text}},
				Limits:     []status.Limit{{Scope: text, Limit: text, Used: 99, Max: 10}, {Used: -1, Max: 0}},
				Replicas:   []status.Replica{{ID: text, State: text, Version: text, Settings: text}},
				Overrides:  []status.Override{{Kind: text, Name: text, Limit: text, By: text, Reason: text}},
			}
		}
		probes.Events = func(context.Context, EventsQuery) (Events, error) {
			record := outcome.Record{EventID: text, Category: text, Outcome: text, Reason: text, Detail: text, Channel: text}
			return Events{Note: text, Events: []outcome.Record{record}}, nil
		}
		response := get(handlerOf(t, "", probes), "/")
		body := response.Body.String()
		for _, unwanted := range []string{"<img", "ZgotmplZ", "\u202e", "\u2028", long[:2*maxText]} {
			if strings.Contains(body, unwanted) {
				t.Errorf("%d: the page has %.40q", response.Code, unwanted)
			}
		}
		if text == hostile && strings.Count(strings.ReplaceAll(body, "?", "\ufffd"), shown) < 16 {
			t.Errorf("the text is in the page %d times", strings.Count(body, shown))
		}
		if len(body) > 60_000 {
			t.Errorf("the page has %d bytes", len(body))
		}
	}
}

// The policy allows exactly the script and the style in the document.
func TestPagePolicy(t *testing.T) {
	t.Parallel()
	response := get(handlerOf(t, "", fixture()), "/")
	body, policy := response.Body.String(), response.Header().Get("Content-Security-Policy")
	for element, directive := range map[string]string{"script": "script-src", "style": "style-src"} {
		found := regexp.MustCompile(`(?s)<`+element+`>(.*?)</`+element+`>`).FindAllStringSubmatch(body, -1)
		if len(found) != 1 {
			t.Fatalf("%d elements %s", len(found), element)
		}
		sum := sha256.Sum256([]byte(found[0][1]))
		if want := directive + " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "';"; !strings.Contains(policy, want) {
			t.Errorf("the policy %q lacks %s", policy, want)
		}
	}
	for _, want := range []string{"connect-src 'self'", "img-src data:", "form-action 'self'", "base-uri 'none'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy lacks %s", want)
		}
	}
	if outside := regexp.MustCompile(`(src|href|action)="(https?:)?//|style=|onclick=|innerHTML`).FindString(body); outside != "" {
		t.Errorf("the page has %s", outside)
	}
}

// The rest of the page stays useful without events.
func TestPageWithoutEvents(t *testing.T) {
	t.Parallel()
	probes := fixture()
	probes.Events = func(context.Context, EventsQuery) (Events, error) { return Events{}, errors.New("stream <gone>") }
	handler := handlerOf(t, "", probes)
	for path, want := range map[string]string{
		"/":               "Unknown: stream &lt;gone&gt;",
		"/?outcome=eaten": "Unknown: outcome &#34;eaten&#34;: expected sent, dropped, dead",
	} {
		response := get(handler, path)
		if body := response.Body.String(); response.Code != http.StatusOK || !strings.Contains(body, want) || !strings.Contains(body, "Sending.") {
			t.Errorf("%s: %d, lacks %s", path, response.Code, want)
		}
	}
}
