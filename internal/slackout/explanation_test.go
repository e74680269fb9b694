package slackout

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"notifier/test/kit"
)

func TestSlacksExplanationIsTheDetail(t *testing.T) {
	const secret = "my-own-token-format"
	missing := "[ERROR] missing required field: alt_text [json-pointer:/attachments/0/blocks/0]"
	for name, test := range map[string]struct {
		status   int
		response string
		want     string // the detail
		class    Class
	}{
		"messages": {
			200, `"invalid_attachments","errors":["x"],"response_metadata":{"messages":["` + missing + `"]}`,
			"invalid_attachments: " + missing, Rejected,
		},
		"errors": {400, `"invalid_blocks","errors":["no more","than\n50"]`, "invalid_blocks: no more; than 50", Rejected},
		"other types": {
			200, `"invalid_blocks","errors":[{"a":1}],"response_metadata":7`, "invalid_blocks", Rejected,
		},
		"secrets": {
			200, `"invalid_blocks","errors":["` + secret + ` https://me:hunter2@x/y \u001b[2J\u202ex"]`,
			"invalid_blocks: [redacted] https://x/y ?[2J?x", Rejected,
		},
		"a secret at the cut": {
			200, `"invalid_blocks","errors":["` + strings.Repeat("x", 291) + secret + `"]`,
			"invalid_blocks: " + strings.Repeat("x", 291) + "[redac…", Rejected,
		},
		"a scope that one message needs": {
			200, `"missing_scope","errors":["[json-pointer:/blocks/0]"]`, "missing_scope: [json-pointer:/blocks/0]", Rejected,
		},
		"a scope that all messages need": {200, `"missing_scope"`, "missing_scope", Credentials},
	} {
		t.Run(name, func(t *testing.T) {
			url := "http://" + kit.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, `{"ok":false,"error":`+test.response+`}`)
			}))
			p := newPoster(t, Config{Token: secret, Channel: "C1", APIURL: url, Timeout: 10 * time.Second})
			_, err := p.Post(t.Context(), hello())
			var failure *Error
			if !errors.As(err, &failure) {
				t.Fatal(err)
			}
			if failure.Class != test.class || failure.Workspace != (test.class == Credentials) {
				t.Errorf("%v, of the workspace: %t, want %s", err, failure.Workspace, test.class)
			}
			if failure.Detail() != test.want || len(failure.Explanation) > 300 {
				t.Errorf("detail %q, want %q", failure.Detail(), test.want)
			}
		})
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
