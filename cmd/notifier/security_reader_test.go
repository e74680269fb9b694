package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// readerRules are the rules of the document's user for reading, but for the password.
func readerRules(t *testing.T) []string {
	t.Helper()
	words := strings.Fields(securityBlock(t, "redis-acl-reader"))
	if len(words) < 5 || !slices.Equal(words[:4], []string{"user", "reader", "on", ">PASSWORD"}) {
		t.Fatalf("the line of the user: %q", words)
	}
	return words[4:]
}

// TestSecurityRedisReader: the document's second user suffices for status and why, and changes nothing.
func TestSecurityRedisReader(t *testing.T) {
	t.Parallel()
	server := redistest.StartProcess(t)
	kit.Check(t, useLimiter(t.Context(), server.Client(t)))
	server.SetUser(t, secret, "reader", readerRules(t)...)
	_, _, settings := startServices(t)
	settings["REDIS_URL"] = userURL(server, "reader")
	for _, arguments := range [][]string{{"status"}, {"status", "errors"}, {"why", "one"}} {
		p := start(t, settings, arguments...)
		if code := p.code(t); code != exitDone || isForbidden(errors.New(p.out.String()+p.errOut.String())) {
			t.Errorf("%v: exit code %d", arguments, code)
		}
	}
	readerChangesNothing(t, openAs(t, server, "reader"))
}

// readerChangesNothing tries to admit an event, run a script and send commands. Redis has to deny each
// attempt.
func readerChangesNothing(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	limit := ratelimit.Limit{{Count: 10, Window: time.Hour}}
	limiter, err := ratelimit.New(client, "notifier", ratelimit.Rules{Global: limit, Category: limit}, time.Hour)
	kit.Check(t, err)
	_, err = limiter.Admit(t.Context(), []ratelimit.Request{{ID: "new", Delivery: "d", Category: "errors", Cost: 1}})
	errs := map[string]error{
		"admit": err,
		"EVAL":  client.Eval(t.Context(), "return redis.call('DEL', KEYS[1])", []string{"{notifier}:global"}).Err(),
	}
	for name, err := range errs {
		if !isForbidden(err) {
			t.Errorf("%s: %v, expected no permission", name, err)
		}
	}
	wantForbidden(t, client,
		"DEL {notifier}:global", "SET {notifier}:x y", "ZADD {notifier}:global 1 x", "HSET {notifier}:probes a b",
		"CONFIG GET *", "KEYS *", "GET other")
}
