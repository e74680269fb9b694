package slackout

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode"

	"notifier/internal/event"
)

func TestSlacksExplanationIsTheDetail(t *testing.T) {
	const secret = "my-own-token-format"
	missing := "[ERROR] missing required field: alt_text [json-pointer:/attachments/0/blocks/0]"
	for name, test := range map[string]struct {
		response string
		want     string // the detail
	}{
		"messages": {`{"ok":false,"error":"invalid_attachments","errors":["x"],"response_metadata":{"messages":["` + missing + `"]}}`,
			"invalid_attachments: " + missing},
		"errors":      {`{"ok":false,"error":"invalid_blocks","errors":["no more","than\n50"]}`, "invalid_blocks: no more; than 50"},
		"none":        {`{"ok":false,"error":"invalid_blocks"}`, "invalid_blocks"},
		"other types": {`{"ok":false,"error":"invalid_blocks","errors":[{"a":1}],"response_metadata":7}`, "invalid_blocks"},
		"secrets": {
			`{"ok":false,"error":"invalid_blocks","errors":["` + secret + ` https://me:hunter2@x/y \u001b[2J\u202ex"]}`,
			"invalid_blocks: [redacted] https://x/y ?[2J?x",
		},
		"long": {
			`{"ok":false,"error":"invalid_blocks","errors":["` + strings.Repeat("é", 400) + `"]}`,
			"invalid_blocks: " + strings.Repeat("é", 148) + "…",
		},
		"a secret at the cut": {
			`{"ok":false,"error":"invalid_blocks","errors":["` + strings.Repeat("x", 291) + secret + `"]}`,
			"invalid_blocks: " + strings.Repeat("x", 291) + "[redac…",
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(test.response))
			}))
			defer server.Close()
			p := newPoster(t, Config{Token: secret, Channel: "C1", APIURL: server.URL, Timeout: 10 * time.Second})
			_, err := p.Post(t.Context(), hello())
			var failure *Error
			if !errors.As(err, &failure) {
				t.Fatal(err)
			}
			if failure.Class != Rejected || failure.Detail() != test.want {
				t.Fatalf("%v with %q, expected a rejection with the detail %q", err, failure.Detail(), test.want)
			}
			if len(failure.Explanation) > 300 || strings.ContainsFunc(failure.Explanation, unicode.IsControl) {
				t.Errorf("explanation of %d bytes: %q", len(failure.Explanation), failure.Explanation)
			}
			p.Close()
		})
	}
}

func TestFakeSlackExplainsARefusal(t *testing.T) {
	s := startSlack(t)
	p := newPoster(t, ways[0].config(s))
	_, err := p.Post(t.Context(), event.Event{
		ID: "e1", Category: "errors",
		Blocks: json.RawMessage(`[{"type":"header","text":{"type":"plain_text","text":"` + strings.Repeat("x", 151) + `"}}]`),
	})
	var failure *Error
	if !errors.As(err, &failure) {
		t.Fatal(err)
	}
	want := "invalid_blocks: [ERROR] must be less than 151 characters [json-pointer:/blocks/0/text/text]"
	if failure.Detail() != want {
		t.Errorf("%q, expected %q", failure.Detail(), want)
	}
	if n := len(s.Messages()); n != 0 {
		t.Errorf("%d messages were posted", n)
	}
}

func TestExplanationIsBoundedAndWithoutCredentials(t *testing.T) {
	config := Config{
		WebhookURL: "https://proxy.example/T00/B00/hidden-path", APIURL: "https://me:hunter22@slack.example/api/",
	}
	for _, text := range []string{
		"no T00/B00/hidden-path here", "no hidden-path here", "no hunter22 here", config.WebhookURL,
	} {
		if got := config.explain(text); strings.Contains(got, "hidden") || strings.Contains(got, "hunter22") {
			t.Errorf("%q became %q", text, got)
		}
	}
	// Redacting 4 MiB of these would take minutes.
	for _, unit := range []string{"://", "a://b@", "é"} {
		began := time.Now()
		got := config.explain(strings.Repeat(unit, 4<<20/len(unit)))
		if took := time.Since(began); len(got) > 300 || took > 10*time.Second {
			t.Errorf("%q repeated: %d bytes in %s", unit, len(got), took)
		}
	}
}

func TestMissingScopeOfOneMessageIsItsOwnFault(t *testing.T) {
	for response, want := range map[string]Class{
		`{"ok":false,"error":"missing_scope","response_metadata":{"messages":["[ERROR] x [json-pointer:/blocks/0]"]}}`: Rejected,
		`{"ok":false,"error":"missing_scope"}`: Credentials,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(response))
		}))
		p := newPoster(t, Config{Token: testToken, Channel: "C1", APIURL: server.URL, Timeout: 10 * time.Second})
		_, err := p.Post(t.Context(), hello())
		var failure *Error
		if !errors.As(err, &failure) || failure.Class != want || failure.Workspace != (want == Credentials) {
			t.Errorf("%s: %v, expected %s", response, err, want)
		}
		p.Close()
		server.Close()
	}
}

func TestExplanationOfAnyStatus(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"ok":false,"error":"invalid_blocks","errors":["too long"]}`))
	}))
	defer server.Close()
	p := newPoster(t, Config{Token: testToken, Channel: "C1", APIURL: server.URL, Timeout: 10 * time.Second})
	defer p.Close()
	_, err := p.Post(t.Context(), hello())
	var failure *Error
	if !errors.As(err, &failure) || failure.Detail() != "invalid_blocks: too long" {
		t.Errorf("%v, expected the explanation", err)
	}
}
