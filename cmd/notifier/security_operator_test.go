package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"notifier/test/kit"
	"notifier/test/redistest"
)

// operatorRules are the rules of the document's user for mutes and temporary limits, but for the password.
func operatorRules(t *testing.T) []string {
	t.Helper()
	line := strings.TrimSpace(securityBlock(t, "redis-acl-operator"))
	rest, found := strings.CutPrefix(line, "user operator on >PASSWORD ")
	outer, selector, divided := strings.Cut(rest, " (")
	if !found || !divided {
		t.Fatalf("the line of the user: %q", line)
	}
	return append(strings.Fields(outer), "("+selector)
}

// TestSecurityRedisOperator: the document's third user suffices for mutes, temporary limits and status, and
// writes no other key.
func TestSecurityRedisOperator(t *testing.T) {
	t.Parallel()
	server := redistest.StartProcess(t)
	everything := server.Client(t)
	kit.Check(t, useLimiter(t.Context(), everything))
	server.SetUser(t, secret, "operator", operatorRules(t)...)
	_, _, settings := startServices(t)
	settings["REDIS_URL"] = userURL(server, "operator")
	for _, test := range []struct {
		code      int
		arguments []string
	}{
		{exitDone, []string{"mute", "add", "errors", "-for", "1h", "-reason", "why not"}},
		{exitDone, []string{"mute"}},
		{exitDone, []string{"limit", "set", "global", "5/1m", "-for", "1h"}},
		{exitDone, []string{"limit"}},
		{exitDone, []string{"status"}},
		{exitDone, []string{"mute", "end", "errors"}},
		{exitDone, []string{"limit", "end", "global"}},
		{exitFailed, []string{"mute", "end", "errors"}},
	} {
		kit.Check(t, everything.ScriptFlush(t.Context()).Err())
		p := start(t, settings, test.arguments...)
		if code := p.code(t); code != test.code || isForbidden(errors.New(p.out.String()+p.errOut.String())) {
			t.Errorf("%v: exit code %d, expected %d", test.arguments, code, test.code)
		}
	}
	readerChangesNothing(t, openAs(t, server, "operator"))
	reader := slices.DeleteFunc(operatorRules(t), func(rule string) bool { return strings.HasPrefix(rule, "(") })
	server.SetUser(t, secret, "reader", reader...)
	settings["REDIS_URL"] = userURL(server, "reader")
	for arguments, want := range map[string]int{"mute": exitDone, "mute add errors -for 1h": exitFailed} {
		if code := start(t, settings, strings.Fields(arguments)...).code(t); code != want {
			t.Errorf("a reader's %s: exit code %d, expected %d", arguments, code, want)
		}
	}
}
