package preflight

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

func TestSlack(t *testing.T) {
	t.Parallel()
	refuses := func(code string) devstack.Hook { return devstack.NextHistory(devstack.Response{Code: code}) }
	scopes := func(list string) devstack.Hook {
		return func(r devstack.Request) *devstack.Response {
			if r.Method != "auth.test" {
				return nil
			}
			return &devstack.Response{Header: map[string]string{"X-OAuth-Scopes": list}}
		}
	}
	channel := func(name string) change { return func(env map[string]string) { env["SLACK_CHANNEL"] = name } }
	for name, test := range map[string]struct {
		slack  devstack.Hook
		change change
		name   string
		state  State
		text   string
	}{
		"valid token":   {nil, channel("C0123"), "slack", OK, "workspace Fake Workspace, user notifier"},
		"revoked token": {nil, func(env map[string]string) { env["SLACK_BOT_TOKEN"] = "xoxb-" + secret + "-revoked" }, "slack", Fail, "token_revoked; install the app again"},
		"cannot post":   {scopes("users:read"), channel("C0123"), "slack/scopes", Fail, "users:read; add chat:write to the app"},
		"cannot read":   {scopes("chat:write"), channel("C0123"), "slack/scopes", OK, "chat:write; without channels:history"},
		"no scopes":     {scopes(""), channel("C0123"), "slack/scopes", Skip, "not listed by Slack"},
		"member":        {nil, channel("C0123"), "slack/channels", OK, "the bot is a member of C0123"},
		"by name":       {nil, channel("#alerts"), "slack/channels", Skip, "#alerts: unknown before the first post"},
		"no channel":    {refuses("channel_not_found"), channel("C0123"), "slack/channels", Fail, "C0123: not found"},
		"no member":     {refuses("not_in_channel"), channel("C0123"), "slack/channels", Fail, "C0123: not a member; invite the bot"},
		"failure with a code in its text": {devstack.NextHistory(devstack.Response{
			Body: `{"ok":false,"error":"internal_error","response_metadata":{"messages":["perhaps not_in_channel"]}}`,
		}), channel("C0123"), "slack/channels", Skip, "C0123: unknown"},
		"may post anywhere": {devstack.First(
			scopes("chat:write,chat:write.public,channels:history"), refuses("not_in_channel"),
		), channel("C0123"), "slack/channels", Skip, "C0123: unknown"},
		"routes": {refuses("not_in_channel"), func(env map[string]string) {
			env["SLACK_ROUTES"] = "errors=C0001,deploys=#deploys"
		}, "slack/channels", Fail, "C0001: not a member"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slack, err := devstack.StartSlack("127.0.0.1:0")
			kit.Check(t, err)
			defer slack.Close()
			slack.Respond(test.slack)
			api := func(env map[string]string) { env["SLACK_API_URL"] = slack.APIURL() }
			rows := found(t, slackGroup(parsed(t, api, test.change)))
			want(t, rows, test.name, test.state, test.text)
			if test.state != Fail {
				wantOnly(t, rows, Fail)
			}
			if posts := slack.Accepted(); posts > 0 {
				t.Errorf("check has posted %d messages", posts)
			}
		})
	}
}

// TestWebhook is not requested: that would post.
func TestWebhook(t *testing.T) {
	t.Parallel()
	hook := kit.Serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the webhook was requested") }))
	rows := found(t, slackGroup(parsed(t, func(env map[string]string) {
		env["SLACK_BOT_TOKEN"], env["SLACK_CHANNEL"], env["SLACK_WEBHOOK_URL"] = "", "", "http://"+hook+"/"+secret
	})))
	want(t, rows, "slack", Skip, `only a post can check a webhook: "notifier publish CATEGORY TEXT"; 127.0.0.1 is not Slack's host`)
	rows = found(t, slackGroup(parsed(t, func(env map[string]string) {
		env["SLACK_BOT_TOKEN"], env["SLACK_CHANNEL"] = "", ""
		env["SLACK_WEBHOOK_URL"] = "https://hooks.slack.com/services/" + secret
	})))
	want(t, rows, "slack", Skip, "only a post can check a webhook")
	if text := fmt.Sprint(rows); strings.Contains(text, "not Slack's") {
		t.Errorf("rows %s of Slack's own host", text)
	}
}

// TestNotSlack: other servers behind SLACK_API_URL.
func TestNotSlack(t *testing.T) {
	t.Parallel()
	page := kit.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	missing := kit.Serve(t, http.NotFoundHandler())
	for addr, text := range map[string]string{page: "127.0.0.1 replied 200 with 6 bytes of HTML; this is not Slack", missing: "set SLACK_API_URL to the base of Slack's Web API"} {
		rows := found(t, slackGroup(parsed(t, func(env map[string]string) { env["SLACK_API_URL"] = "http://" + addr + "/" })))
		want(t, rows, "slack", Fail, text)
	}
}
