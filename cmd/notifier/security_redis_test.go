package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"notifier/internal/preflight"
	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// redisUser are the rules of the document's user, but for the password.
func redisUser(t *testing.T) []string {
	t.Helper()
	words := strings.Fields(securityBlock(t, "redis-acl"))
	if len(words) < 5 || !slices.Equal(words[:4], []string{"user", "notifier", "on", ">PASSWORD"}) {
		t.Fatalf("the line of the user: %q", words)
	}
	return words[4:]
}

// userURL returns the login URL of a user created with SetUser.
func userURL(server *redistest.Server, name string) string {
	return "redis://" + name + ":" + secret + "@" + server.Addr
}

// isForbidden reports whether the user may not do something, itself or in a script.
func isForbidden(err error) bool {
	if err == nil {
		return false
	}
	refusals := []string{"NOPERM", "can't run this command", "can't access at least one of the keys"}
	return slices.ContainsFunc(refusals, func(words string) bool { return strings.Contains(err.Error(), words) })
}

// openAs is a client like a worker's.
func openAs(t *testing.T, server *redistest.Server, user string) redis.UniversalClient {
	t.Helper()
	client, err := ratelimit.Open(userURL(server, user), nil)
	kit.Check(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestSecurityRedisTrimmed: the document's user reaches no other keys, and no command about the server.
func TestSecurityRedisTrimmed(t *testing.T) {
	t.Parallel()
	server := redistest.StartProcess(t)
	server.SetUser(t, secret, "notifier", redisUser(t)...)
	client := openAs(t, server, "notifier")
	kit.Check(t, useLimiter(t.Context(), client))
	wantForbidden(t, client,
		"GET other", "GET notifier:global", "GET {other}:global", "GET {notifier}x", "FLUSHALL", "KEYS *",
		"CONFIG GET *", "ACL LIST", "SCRIPT FLUSH", "PUBLISH x y", "SUBSCRIBE x", "SHUTDOWN")
}

// wantForbidden sends commands that the user may not run.
func wantForbidden(t *testing.T, client redis.UniversalClient, commands ...string) {
	t.Helper()
	for _, command := range commands {
		var arguments []any
		for word := range strings.FieldsSeq(command) {
			arguments = append(arguments, word)
		}
		if err := client.Do(t.Context(), arguments...).Err(); !isForbidden(err) {
			t.Errorf("%s: %v, expected no permission", command, err)
		}
	}
}

// TestSecurityRedisElsewhere: another database and a Cluster need the additional permissions in the document.
func TestSecurityRedisElsewhere(t *testing.T) {
	t.Parallel()
	rules := redisUser(t)
	use := func(url string) error {
		client, err := ratelimit.Open(url, nil)
		kit.Check(t, err)
		defer client.Close()
		return useLimiter(t.Context(), client)
	}
	server := redistest.StartProcess(t)
	cluster := redistest.StartCluster(t, 3)
	elsewhere := func(further ...string) (database, slots error) {
		for _, s := range append(cluster.Nodes, server) {
			s.SetUser(t, secret, "notifier", append(slices.Clone(rules), further...)...)
		}
		return use(userURL(server, "notifier") + "/1"), use(strings.Replace(cluster.URL(), "redis://", "redis://notifier:"+secret+"@", 1))
	}
	if database, slots := elsewhere(); !isForbidden(database) || slots == nil {
		t.Errorf("with what suffices for one server: database 1: %v, Cluster: %v; expected that something is not permitted", database, slots)
	}
	if database, slots := elsewhere("+select", "+cluster|slots"); database != nil || slots != nil {
		t.Errorf("with +select and +cluster|slots: database 1: %v, Cluster: %v", database, slots)
	}
}

// TestSecurityRedisScripts: the document's user may run the commands of the scripts and of the pipelines and
// no others, and check looks for the same. TestNoSecretGetsOut runs a worker as this user.
func TestSecurityRedisScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../lua/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	called := map[string]bool{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		kit.Check(t, err)
		for _, match := range regexp.MustCompile(`(?:call|in_chunks|find)\('([A-Z]+)'`).FindAllStringSubmatch(string(content), -1) {
			called[match[1]] = true
		}
	}
	for _, own := range []string{"GET", "HINCRBY", "HLEN", "SET"} { // of the pipelines in status/report
		called[own] = true
	}
	needed := maps.Clone(called)
	delete(needed, "HRANDFIELD") // a script tolerates its absence
	if diff := cmp.Diff(slices.Sorted(maps.Keys(needed)), preflight.NeededCommands()); diff != "" {
		t.Errorf("NeededCommands (-lua +preflight/redis.go):\n%s", diff)
	}
	for _, ofTheClient := range []string{"EVALSHA", "EVAL", "INFO"} {
		called[ofTheClient] = true
	}
	var allowed []string
	for _, rule := range redisUser(t) {
		if command, found := strings.CutPrefix(rule, "+"); found {
			allowed = append(allowed, strings.ToUpper(command))
		}
	}
	slices.Sort(allowed)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(called)), allowed); diff != "" {
		t.Errorf("commands of the user in docs/security.md (-called +allowed):\n%s", diff)
	}
}

// useLimiter checks the store and admits an event, as a worker does.
func useLimiter(ctx context.Context, client redis.UniversalClient) error {
	limit := ratelimit.Limit{{Count: 10, Window: time.Hour}}
	limiter, err := ratelimit.New(client, "notifier", ratelimit.Rules{Global: limit, Category: limit}, time.Hour)
	if err != nil {
		return err
	}
	_, err = limiter.Admit(ctx, []ratelimit.Request{{ID: "one", Delivery: "NOTIFY.1.1", Category: "errors", Cost: 1}})
	return errors.Join(limiter.Check(ctx), err)
}
