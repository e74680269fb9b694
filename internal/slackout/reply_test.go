package slackout

import (
	"strings"
	"testing"

	"notifier/internal/devstack"
)

// TestByteOrderMark: a mark before Slack's words changes nothing.
func TestByteOrderMark(t *testing.T) {
	for i, accepted := range []string{`{"ok":true,"channel":"C0DEFAULT","ts":"1.000001"}`, "ok"} {
		t.Run(ways[i].name, func(t *testing.T) {
			s := startSlack(t)
			p := newPoster(t, ways[i].config(s))
			s.Respond(devstack.Next(devstack.Response{Body: "\ufeff" + accepted, Accept: true}))
			mustPost(t, p, hello())
			s.Respond(devstack.Next(devstack.Response{Body: "\ufeff" + `{"ok":false,"error":"is_archived"}`}))
			_, err := p.Post(t.Context(), hello())
			wantError(t, err, Error{Class: Rejected, Code: "is_archived", ChannelRefused: true})
		})
	}
}

// TestReplyBeyondItsBound: a 2xx response that is longer than any of Slack's is not Slack's, whatever it
// begins with. Its message may be posted.
func TestReplyBeyondItsBound(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			s := startSlack(t)
			p := newPoster(t, way.config(s))
			for name, body := range map[string]string{
				"a success":        `{"ok":true,"channel":"C0DEFAULT","ts":"1.000001"}` + strings.Repeat(" ", maxReply),
				"a refusal":        `{"ok":false,"error":"is_archived"}` + strings.Repeat("\n", maxReply),
				"the word":         "ok" + strings.Repeat("\n", maxReply),
				"Slack's own word": "no_service" + strings.Repeat(" ", maxReply),
			} {
				s.Respond(devstack.Next(devstack.Response{Body: body, Accept: true}))
				_, err := p.Post(t.Context(), hello())
				wantError(t, err, Error{Class: Ambiguous, Code: "invalid_response"})
				const want = "slack: ambiguous: invalid_response: 127.0.0.1 replied 200 with more than 4.0 MiB"
				if err == nil || err.Error() != want {
					t.Errorf("%s: %v, want %s", name, err, want)
				}
			}
			fits := `{"ok":true,"channel":"C0DEFAULT","ts":"1.000001"}`
			s.Respond(devstack.Next(devstack.Response{Body: fits + strings.Repeat(" ", maxReply-len(fits)), Accept: true}))
			mustPost(t, p, hello())
		})
	}
}
