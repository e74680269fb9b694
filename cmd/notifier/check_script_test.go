package main

import (
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"notifier/internal/devstack"
)

// startSlack starts a fake Slack for the script, with a token of these scopes, and points SLACK_API_URL at
// it: slack chat:write.
func startSlack(ts *testscript.TestScript, _ bool, scopes []string) {
	slack, err := devstack.StartSlack(ephemeralAddr)
	ts.Check(err)
	ts.Defer(func() { ts.Check(slack.Close()) })
	if len(scopes) > 0 {
		header := map[string]string{"X-OAuth-Scopes": strings.Join(scopes, ",")}
		slack.Respond(func(r devstack.Request) *devstack.Response {
			if r.Method != "auth.test" {
				return nil
			}
			return &devstack.Response{Header: header}
		})
	}
	ts.Setenv("SLACK_API_URL", slack.APIURL())
}
