package main

import (
	"context"
	"errors"
	"fmt"
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
	"notifier/internal/status/stats"
	"notifier/lua"
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

// userURL is where a user of setUser logs in.
func userURL(server *redistest.Server, name string) string {
	return "redis://" + name + ":" + secret + "@" + server.Addr
}

// freely are commands without which no call fails; the document says why they stand there all the same.
var freely = []string{"+info", "+hrandfield"}

// TestSecurityRedisTrimmed: each command of the document is needed, and nothing outside its keys is allowed.
func TestSecurityRedisTrimmed(t *testing.T) {
	t.Parallel()
	server := redistest.StartProcess(t)
	rules := redisUser(t)
	server.SetUser(t, secret, "notifier", rules...)
	if err := useRedis(t, server, "notifier"); err != nil {
		t.Fatalf("with all commands: %v", err)
	}
	for _, rule := range rules {
		if !strings.HasPrefix(rule, "+") {
			continue
		}
		server.SetUser(t, secret, "less", slices.DeleteFunc(slices.Clone(rules), func(r string) bool { return r == rule })...)
		err := useRedis(t, server, "less")
		switch {
		case slices.Contains(freely, rule) && err != nil:
			t.Errorf("without %s: %v; the document says that everything works", rule, err)
		case !slices.Contains(freely, rule) && !isForbidden(err):
			t.Errorf("without %s: %v, expected that something is not permitted", rule, err)
		}
		if rule != "+hrandfield" { // which is only a note
			checkNames(t, openAs(t, server, "less"), strings.ToUpper(rule[1:]))
		}
	}
	client := openAs(t, server, "notifier")
	for _, key := range []string{"other", "notifier:global", "{other}:global", "{notifier}x"} {
		if err := client.Get(t.Context(), key).Err(); !redis.IsPermissionError(err) {
			t.Errorf("GET %s: %v, expected no permission", key, err)
		}
	}
	for _, command := range []string{"FLUSHALL", "KEYS *", "CONFIG GET *", "ACL LIST", "SCRIPT FLUSH", "PUBLISH x y", "SUBSCRIBE x", "SHUTDOWN"} {
		var arguments []any
		for word := range strings.FieldsSeq(command) {
			arguments = append(arguments, word)
		}
		if err := client.Do(t.Context(), arguments...).Err(); !isForbidden(err) {
			t.Errorf("%s: %v, expected no permission", command, err)
		}
	}
}

// TestSecurityRedisElsewhere: what the document adds for another database and for a Cluster.
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
	document, err := os.ReadFile("../../docs/security.md")
	kit.Check(t, err)
	for _, further := range []string{"`+select`", "`+cluster|slots`"} {
		if !strings.Contains(string(document), further) {
			t.Errorf("docs/security.md has no %s", further)
		}
	}
	if database, slots := elsewhere("+select", "+cluster|slots"); database != nil || slots != nil {
		t.Errorf("with +select and +cluster|slots: database 1: %v, Cluster: %v", database, slots)
	}
}

// checkNames expects that check names the one command of the scripts that the user may not run.
func checkNames(t *testing.T, client redis.UniversalClient, command string) {
	t.Helper()
	if !slices.Contains(preflight.ScriptCommands(), command) {
		return
	}
	got := preflight.CheckPermissions(t.Context(), client, "notifier")
	want := []preflight.Finding{{
		Level: preflight.Fail, Text: "the user may not run " + command + " on keys that begin with {notifier}:", Advice: "give the user the ACL in docs/security.md",
	}}
	if !slices.Equal(got, want) {
		t.Errorf("check reports %q, expected %q", got, want)
	}
}

// isForbidden reports whether the user may not do something, itself or in a script.
func isForbidden(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "NOPERM") || strings.Contains(err.Error(), "can't run this command"))
}

// TestSecurityRedisScripts: the commands that the scripts call are those that the document allows and that
// check asks about. A script that calls another one needs it in both places.
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
	if diff := cmp.Diff(slices.Sorted(maps.Keys(called)), preflight.ScriptCommands()); diff != "" {
		t.Errorf("ScriptCommands (-lua +preflight/redis.go):\n%s", diff)
	}
	allowed := redisUser(t)
	for command := range called {
		if !slices.Contains(allowed, "+"+strings.ToLower(command)) {
			t.Errorf("docs/security.md does not allow %s", command)
		}
	}
}

// openAs is a client like a worker's.
func openAs(t *testing.T, server *redistest.Server, user string) redis.UniversalClient {
	t.Helper()
	client, err := ratelimit.Open(userURL(server, user), nil)
	kit.Check(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// useRedis does once, on an empty server whose scripts nobody has loaded, what workers and those who look on
// do, and joins what went wrong.
func useRedis(t *testing.T, server *redistest.Server, user string) error {
	t.Helper()
	everything := server.Client(t)
	kit.Check(t, errors.Join(everything.FlushAll(t.Context()).Err(), everything.ScriptFlush(t.Context()).Err()))
	client := openAs(t, server, user)
	return errors.Join(useLimiter(t.Context(), client), useStats(t.Context(), client), useDigest(t.Context(), client))
}

func useLimiter(ctx context.Context, client redis.UniversalClient) error {
	limit := ratelimit.Limit{{Count: 10, Window: time.Hour}}
	limiter, err := ratelimit.New(client, "notifier", ratelimit.Rules{Global: limit, Category: limit, Pace: ratelimit.Tier{Count: 2, Window: time.Minute}}, time.Hour)
	if err != nil {
		return err
	}
	request := func(id string) ratelimit.Request {
		return ratelimit.Request{ID: id, Source: "/ci", Delivery: "NOTIFY.1." + id, Category: "errors", Cost: 1}
	}
	var errs []error
	note := func(err error) { errs = append(errs, err) }
	note(limiter.Check(ctx))
	for _, id := range []string{"one", "two"} { // the second one finds what the first has left
		_, err := limiter.Admit(ctx, []ratelimit.Request{request(id)})
		note(err)
	}
	// so many look for keys first
	_, err = limiter.Admit(ctx, slices.Repeat([]ratelimit.Request{request("one")}, 8))
	note(err)
	_, err = limiter.Trace(ctx, "one", "")
	note(err)
	note(usePosts(ctx, limiter, request("one")))
	note(limiter.Sent(ctx, request("one")))
	_, err = limiter.Refund(ctx, request("two"), "")
	note(err)
	_, err = limiter.Admit(ctx, []ratelimit.Request{request("one")}) // a duplicate
	note(err)
	_, err = limiter.Peek(ctx, "errors")
	note(err)
	_, _, err = limiter.Recent(ctx, 10)
	note(err)
	_, err = limiter.Slots(ctx, 10, "errors")
	note(err)
	hidden := request("long " + strings.Repeat("x", 100))
	_, err = limiter.Admit(ctx, []ratelimit.Request{hidden}) // its slot does not show its category
	note(err)
	_, err = limiter.Slots(ctx, 10, "errors")
	note(err)
	return errors.Join(errs...)
}

// usePosts asks for posts to a channel, meets a pause, and asks for one more than the pace has room for.
func usePosts(ctx context.Context, limiter *ratelimit.Limiter, request ratelimit.Request) error {
	var errs []error
	note := func(err error) { errs = append(errs, err) }
	answer := func(a ratelimit.Answer) {
		a.Channel = "#a"
		_, _, err := limiter.Answered(ctx, a)
		note(err)
	}
	for i := range 4 { // the second may come while the pause lasts; one is the probe after it
		name := fmt.Sprint("post", i)
		_, err := limiter.Begin(ctx, ratelimit.Post{Channel: "#a", Name: name, Longest: time.Second, First: true})
		note(err)
		if i == 0 {
			answer(ratelimit.Answer{Name: name, RetryAfter: time.Millisecond})
			time.Sleep(2 * time.Millisecond) // longer than the pause, by the clock that ends it
		}
		answer(ratelimit.Answer{Name: name, Posted: true})
	}
	_, err := limiter.Begin(ctx, ratelimit.Post{Request: request, Channel: "C000000B", Name: "post", Longest: time.Second})
	note(err)
	_, err = limiter.Pauses(ctx)
	note(err)
	return errors.Join(errs...)
}

// useStats counts an event of each kind, with the script itself, as a recorder would try again, and reads the
// counts.
func useStats(ctx context.Context, client redis.UniversalClient) error {
	keys := []string{"{notifier}:flushed:run", "{notifier}:replicas", "{notifier}:lastsent", "{notifier}:digest:pending", "{notifier}:counts:1",
		"{notifier}:steering", "{notifier}:sources:1"}
	flushed := redis.NewScript(lua.Flush).Run(ctx, client, keys, "1", "one", "{}", "1", "100", "8",
		"2", "sent//", "errors", "1", "dropped/category/", "errors", "1", // counts
		"1", "errors", "1700000000000000", // sent
		"1", "category 10/1h ", "errors", "1", // drops
		"2", "sent", "errors", "ci", "1", "refused", "errors", "", "1", // sources
	).Err()
	reader, err := stats.NewReader(client, "notifier")
	if err != nil {
		return err
	}
	_, hour := reader.Hour(ctx)
	_, sources := reader.Sources(ctx)
	_, replicas := reader.Replicas(ctx)
	return errors.Join(flushed, hour, sources, replicas)
}

// useDigest reports the drop that useStats has counted, with the commands themselves: nothing has to be
// waited for.
func useDigest(ctx context.Context, client redis.UniversalClient) error {
	keys, err := stats.NewKeys("notifier")
	if err != nil {
		return err
	}
	all := []string{keys.Lease(), keys.Pending(), keys.Posting(), keys.State(), keys.Message()}
	step := func(arguments ...any) error {
		return redis.NewScript(lua.Digest).Run(ctx, client, all, append([]any{"token"}, arguments...)...).Err()
	}
	return errors.Join(
		redis.NewScript(lua.Now).Run(ctx, client, []string{keys.Lease()}).Err(),
		client.SetNX(ctx, keys.Lease(), "1700000000000000 token", time.Minute).Err(),
		client.HGetAll(ctx, keys.Pending()).Err(),
		client.Get(ctx, keys.Lease()).Err(),
		client.HSet(ctx, keys.Pending(), "since", "1700000000000000").Err(),
		step("begin", "1000000", "at", "1", "begun", "1", "category 10/1h errors", "1"),
		step("reported", "0", "0", "{}"),
		step("release"),
	)
}
