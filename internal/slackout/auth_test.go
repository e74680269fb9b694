package slackout

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

func TestCheckAuth(t *testing.T) {
	s := startSlack(t)
	token := ways[0].config(s)
	ask := func(config Config) (Identity, error) { return newPoster(t, config).CheckAuth(t.Context()) }

	who, err := ask(token)
	want := Identity{Team: "Fake Workspace", User: "notifier", BotID: "B000", Scopes: []string{"chat:write", "channels:history"}}
	if diff := cmp.Diff(want, who); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	s.Respond(func(devstack.Request) *devstack.Response {
		return &devstack.Response{Header: map[string]string{"X-OAuth-Scopes": "chat:write,,users:read.email "}}
	})
	if who, err = ask(token); err != nil || !cmp.Equal(who.Scopes, []string{"chat:write", "users:read.email"}) {
		t.Errorf("scopes %q, error %v", who.Scopes, err)
	}
	if who, err := ask(ways[1].config(s)); err != nil || !cmp.Equal(who, Identity{}) {
		t.Errorf("a webhook: %+v, error %v; want nothing, for nobody was asked", who, err)
	}

	token.Token = "xoxb-revoked"
	_, err = ask(token)
	wantError(t, err, Error{Class: Credentials, Code: "token_revoked"})
	token.APIURL = "http://" + kit.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	_, err = ask(token)
	wantError(t, err, Error{Class: Retry, Code: "http_503"}) // whether a message was posted is no question here
	var odd Identity
	if odd.read(&exchange{body: []byte(`{"ok":true,"team":7}`)}) {
		t.Errorf("%+v was read from an answer whose team is a number", odd)
	}
}
