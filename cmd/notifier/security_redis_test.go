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
	"go.uber.org/zap"

	"notifier/internal/preflight"
	"notifier/internal/ratelimit"
	"notifier/internal/snapshot"
	"notifier/internal/status/report"
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
		checkNames(t, openAs(t, server, "less"), strings.ToUpper(rule[1:]))
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
	if !slices.Contains(preflight.NeededCommands(), command) {
		return
	}
	got, err := preflight.ForbiddenCommands(t.Context(), client, "notifier")
	if err != nil || !slices.Equal(got, []string{command}) {
		t.Errorf("check reports %q, %v; expected %s", got, err, command)
	}
}

// isForbidden reports whether the user may not do something, itself or in a script.
func isForbidden(err error) bool {
	if err == nil {
		return false
	}
	refusals := []string{"NOPERM", "can't run this command", "can't access at least one of the keys"}
	return slices.ContainsFunc(refusals, func(words string) bool { return strings.Contains(err.Error(), words) })
}

// TestSecurityRedisScripts compares the commands of the scripts and of the pipelines with the ACL in the document
// and with those that check looks for.
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

// useRedis empties the server and its script cache, runs the operations of workers and operators once, and
// joins the errors.
func useRedis(t *testing.T, server *redistest.Server, user string) error {
	t.Helper()
	everything := server.Client(t)
	kit.Check(t, errors.Join(everything.FlushAll(t.Context()).Err(), everything.ScriptFlush(t.Context()).Err()))
	client := openAs(t, server, user)
	return errors.Join(useLimiter(t.Context(), client), useReport(t.Context(), client), useSteering(t.Context(), client))
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
	for _, id := range []string{"one", "two"} { // the second one finds the keys of the first
		_, err := limiter.Admit(ctx, []ratelimit.Request{request(id)})
		note(err)
	}
	// a batch this large looks up its keys first
	_, err = limiter.Admit(ctx, slices.Repeat([]ratelimit.Request{request("one")}, 8))
	note(err)
	_, err = limiter.Trace(ctx, "one")
	note(err)
	note(usePosts(ctx, limiter, request("one")))
	note(limiter.Sent(ctx, request("one")))
	_, err = limiter.Refund(ctx, request("two"), "")
	note(err)
	_, err = limiter.Admit(ctx, []ratelimit.Request{request("one")}) // a duplicate
	note(err)
	large := request("large")
	large.Cost = 10
	_, err = limiter.Admit(ctx, []ratelimit.Request{large}) // has no room
	note(err)
	_, err = limiter.Peek(ctx, "errors")
	note(err)
	_, _, err = limiter.Recent(ctx, 10)
	note(err)
	hidden := request("long " + strings.Repeat("x", 100))
	_, err = limiter.Admit(ctx, []ratelimit.Request{hidden}) // its member is a hash
	note(err)
	return errors.Join(errs...)
}

// usePosts covers posts to a channel, a pause, and a post beyond the pace.
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

// newReporter is a replica with a sent and a dropped event.
func newReporter(client redis.UniversalClient) (*report.Reporter, error) {
	reporter, err := report.New(report.Config{
		Redis: client, Namespace: "notifier", Replica: "one", Digest: time.Hour, Log: zap.NewNop(),
		Snapshot: func() snapshot.Snapshot { return snapshot.Snapshot{Time: time.Now()} },
	})
	if err == nil {
		reporter.Observe("sent", "", "errors", "ci", 1)
		reporter.Observe("dropped", "category", "errors", "", 1)
	}
	return reporter, err
}

// useReport reports a replica, reads everything back, and removes the replica.
func useReport(ctx context.Context, client redis.UniversalClient) error {
	reporter, err := newReporter(client)
	if err != nil {
		return err
	}
	reader, err := report.NewReader(client, "notifier")
	if err != nil {
		return err
	}
	reported := reporter.Report(ctx)
	now, read := reader.Read(ctx)
	if read == nil && reported == nil && len(now.Replicas) != 1 {
		read = fmt.Errorf("%d replicas", len(now.Replicas))
	}
	period := report.Period(now.Now, time.Hour)
	_, claimed := reader.ClaimDrops(ctx, time.Hour, period, "one")
	_, drops := reader.Drops(ctx, time.Hour, period)
	stopped, stop := context.WithCancel(ctx)
	stop()
	reporter.Run(stopped) // removes the heartbeat
	after, last := reader.Replicas(ctx)
	left, err := client.Exists(ctx, "{notifier}:replica:one").Result()
	if last == nil && read == nil && len(after)+int(left) > 0 {
		last = errors.New("NOPERM: the heartbeat is still there")
	}
	return errors.Join(reported, read, claimed, drops, last, err)
}

// useSteering polls for overrides as a worker does.
func useSteering(ctx context.Context, client redis.UniversalClient) error {
	return errors.Join(
		ignoreNil(client.HGet(ctx, "{notifier}:steering", "version").Err()), client.HLen(ctx, "{notifier}:steering").Err(),
	)
}

func ignoreNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}
