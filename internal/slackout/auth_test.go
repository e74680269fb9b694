package slackout

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

// scopes is a hook with these scopes of the token; "" means that Slack does not list any.
func scopes(list string) devstack.Hook {
	return func(devstack.Request) *devstack.Response {
		return &devstack.Response{Header: map[string]string{"X-OAuth-Scopes": list}}
	}
}

func TestCheckAuth(t *testing.T) {
	s := startSlack(t)
	token := ways[0].config(s)
	ask := func(config Config) (Identity, error) { return newPoster(t, config).CheckAuth(t.Context()) }

	who, err := ask(token)
	want := Identity{Team: "Fake Workspace", User: "notifier", BotID: "B000", Scopes: []string{"chat:write", "channels:history"}}
	if diff := cmp.Diff(want, who); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	s.Respond(scopes("chat:write,,users:read.email "))
	if who, err = ask(token); err != nil || !cmp.Equal(who.Scopes, []string{"chat:write", "users:read.email"}) {
		t.Errorf("scopes %q, error %v", who.Scopes, err)
	}
	s.Respond(scopes(""))
	if who, err = ask(token); err != nil || who.Scopes != nil {
		t.Errorf("scopes %q, error %v; want none when Slack does not say", who.Scopes, err)
	}
	for _, way := range ways[1:] {
		if who, err := ask(way.config(s)); err != nil || !cmp.Equal(who, Identity{}) {
			t.Errorf("%s: %+v, error %v; want nothing, for nobody was asked", way.name, who, err)
		}
	}

	token.Token = "xoxb-revoked"
	_, err = ask(token)
	wantError(t, err, Error{Class: Credentials, Code: "token_revoked"})
	token.APIURL = s.URL() // not the API: a 404 in no words of Slack's
	_, err = ask(token)
	wantError(t, err, Error{Class: Retry, Code: "http_404"})
	token.APIURL = "http://" + kit.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	_, err = ask(token)
	wantError(t, err, Error{Class: Retry, Code: "http_503"}) // whether a message was posted is no question here
	token.APIURL = s.APIURL() + "elsewhere"
	_, err = ask(token)
	wantError(t, err, Error{Class: Credentials, Code: "unknown_method"})
	if s.Requests() != 0 {
		t.Errorf("%d posts, want none", s.Requests())
	}
	var odd Identity
	if odd.read(&exchange{body: []byte(`{"ok":true,"team":7}`)}) {
		t.Errorf("%+v was read from an answer whose team is a number", odd)
	}
}
