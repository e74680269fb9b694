package slackout

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"notifier/test/kit"
)

// TestResponseThatIsNotSlacks: the error says what came back and from where, and quotes none of it.
func TestResponseThatIsNotSlacks(t *testing.T) {
	const secret = "SeCrEtToKeN"
	for i, way := range ways {
		for _, test := range []struct {
			status     int
			body, want string
		}{
			{200, `{"success":true,"echo":"` + secret + `"}`, "200 with 37 bytes of JSON"},
			{201, `{"error":"` + secret + `"}`, "201 with 23 bytes of JSON"},
			{200, `[]`, "200 with 2 bytes of JSON"},
			{204, "", "204 with an empty body"},
			{202, "1", "202 with 1 byte of text"},
			{200, "\x00\xff" + secret, "200 with 13 bytes of binary data"},
			{200, html + secret, "200 with 61 bytes of HTML"},
			{200, `{"ok":true,`, "200 with 11 bytes of text"},
			{200, "success", "200 with 7 bytes of text"},
		} {
			t.Run(fmt.Sprint(way.name, " ", test.want), func(t *testing.T) {
				addr := kit.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(test.status)
					_, _ = io.WriteString(w, test.body)
				}))
				config := Config{WebhookURL: "http://" + addr + "/services/" + secret, Timeout: kit.Patience}
				if i == 0 {
					config = Config{Token: secret, Channel: "C1", APIURL: "http://" + addr, Timeout: kit.Patience}
				}
				_, err := newPoster(t, config).Post(t.Context(), hello())
				failure := AsError(err)
				want := "invalid_response: 127.0.0.1 replied " + test.want
				if !failure.NotSlack() || failure.Workspace || failure.Detail() != want {
					t.Errorf("%v, not Slack's %t, of the workspace %t; expected %s",
						err, failure.NotSlack(), failure.Workspace, want)
				}
			})
		}
	}
}
