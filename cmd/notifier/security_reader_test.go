package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/internal/status/report"
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

// TestSecurityRedisReader: the document's second user suffices for status and why, each of its commands is
// needed, and it changes nothing.
func TestSecurityRedisReader(t *testing.T) {
	t.Parallel()
	server := redistest.StartProcess(t)
	rules := readerRules(t)
	everything := server.Client(t)
	reporter, err := newReporter(everything)
	kit.Check(t, errors.Join(err, useLimiter(t.Context(), everything), reporter.Report(t.Context())))
	server.SetUser(t, secret, "reader", rules...)
	if err := readRedis(t.Context(), openAs(t, server, "reader")); err != nil {
		t.Fatalf("with all commands: %v", err)
	}
	for _, rule := range rules {
		if !strings.HasPrefix(rule, "+") {
			continue
		}
		server.SetUser(t, secret, "less", slices.DeleteFunc(slices.Clone(rules), func(r string) bool { return r == rule })...)
		kit.Check(t, everything.ScriptFlush(t.Context()).Err())
		if err := readRedis(t.Context(), openAs(t, server, "less")); !isForbidden(err) {
			t.Errorf("without %s: %v, expected that something is not permitted", rule, err)
		}
	}
	_, _, settings := startServices(t)
	maps.Copy(settings, map[string]string{"REDIS_URL": userURL(server, "reader")})
	for _, arguments := range [][]string{
		{"status"}, {"status", "-json"}, {"status", "errors"}, {"status", "-json", "never.seen"}, {"why", "one"},
	} {
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
	for _, command := range []string{"DEL {notifier}:global", "SET {notifier}:x y", "ZADD {notifier}:global 1 x", "HSET {notifier}:probes a b", "CONFIG GET *", "KEYS *", "GET other"} {
		var arguments []any
		for word := range strings.FieldsSeq(command) {
			arguments = append(arguments, word)
		}
		errs[command] = client.Do(t.Context(), arguments...).Err()
	}
	for name, err := range errs {
		if !isForbidden(err) {
			t.Errorf("%s: %v, expected no permission", name, err)
		}
	}
}

// readRedis performs the reads of status and why.
func readRedis(ctx context.Context, client redis.UniversalClient) error {
	limit := ratelimit.Limit{{Count: 10, Window: time.Hour}}
	limiter, err := ratelimit.New(client, "notifier", ratelimit.Rules{Global: limit, Category: limit}, time.Hour)
	if err != nil {
		return err
	}
	reader, err := report.NewReader(client, "notifier")
	if err != nil {
		return err
	}
	_, usage := limiter.Peek(ctx, "errors")
	_, decision := limiter.DryRun(ctx, "errors", 10) // has no room
	_, _, categories := limiter.Recent(ctx, 10)
	_, traces := limiter.Trace(ctx, "one")
	_, pauses := limiter.Pauses(ctx)
	_, replicas := reader.Read(ctx)
	return errors.Join(usage, decision, categories, traces, pauses, replicas)
}
