package slackout

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzAnswers: for any response, a post succeeds or fails for a reason that can be logged, and no wait is
// longer than an hour.
func FuzzAnswers(f *testing.F) {
	for _, seed := range []struct {
		status int
		body   string
		wait   string
	}{
		{200, `{"ok":true,"channel":"C1","ts":"1.000001","message":{"bot_id":"B1"}}`, ""}, {200, `{"ok":false,"error":"channel_not_found"}`, ""},
		{429, `{"ok":false,"error":"ratelimited"}`, "30"}, {429, "", "1e300"}, {429, "", "-1"}, {429, "", "NaN"}, {429, "", "Fri, 20 Nov 2026 04:39:01 GMT"},
		{200, "ok", ""}, {404, "no_service", ""}, {400, "invalid_payload", ""}, {403, "\u202e\x1b[2J", ""}, {502, "<html>", ""}, {200, `{"ok":false}`, ""},
		{200, `{"ok":true,"messages":[{"ts":"1.1","metadata":{"event_type":"notifier_event","event_payload":{"event_id":"e1","category":"errors"}}}]}`, ""},
		{200, `{"ok":1,"error":{}}`, ""}, {0, "", ""}, {200, `{"ok":true,"team":"T","user":"U","bot_id":"B"}`, ""},
	} {
		f.Add(seed.status, []byte(seed.body), seed.wait)
	}
	f.Fuzz(func(t *testing.T, status int, body []byte, wait string) {
		for name, classify := range map[string]func(*exchange) (reply, *Error){"api": classifyAPI, "webhook": classifyWebhook} {
			x := &exchange{status: status, header: http.Header{"Retry-After": {wait}}, body: body}
			if status == 0 {
				x.err = errFailed
			}
			answer, failure := classify(x)
			if failure == nil {
				if answer.OK == nil || !*answer.OK {
					t.Errorf("%s: %d %q is neither a success nor a failure", name, status, body)
				}
				newLearned().posted("C1", answer)
				continue
			}
			checkFailure(t, failure)
		}
		x := &exchange{status: status, header: http.Header{"X-OAuth-Scopes": {wait}}, body: body}
		new(Identity).read(x)
		var found page
		if json.Unmarshal(body, &found) == nil {
			for _, m := range found.Messages {
				hello := markOf(hello())
				if hello.isIn(m.Metadata) && !json.Valid(m.Metadata) {
					t.Errorf("%q is the metadata of an event", m.Metadata)
				}
			}
		}
	})
}

// checkFailure wants a class of the list, a code that is safe to show, and a wait of at most an hour.
func checkFailure(t *testing.T, failure *Error) {
	t.Helper()
	if failure.Class < RetryAfter || failure.Class > Credentials {
		t.Errorf("class %v", failure.Class)
	}
	if failure.RetryAfter < 0 || failure.RetryAfter > time.Hour {
		t.Errorf("a wait of %v", failure.RetryAfter)
	}
	if len(failure.Code) == 0 || len(failure.Code) > 64 || !utf8.ValidString(failure.Code) {
		t.Errorf("code %q", failure.Code)
	}
	for _, r := range failure.Code {
		if r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') {
			t.Errorf("code %q", failure.Code)
		}
	}
}
