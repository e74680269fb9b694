package main

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// redisPassword is REDIS_PASSWORD in docker-compose.yml.
var redisPassword = regexp.MustCompile(`\$\{REDIS_PASSWORD[^}]*\}`)

// redisArguments are the words of the command of Redis in docker-compose.yml.
func redisArguments(t *testing.T) []string {
	t.Helper()
	_, rest, found := strings.Cut(read(t, "docker-compose.yml"), "    command: >-\n      redis-server ")
	block, _, ended := strings.Cut(rest, "\n    environment:")
	if !found || !ended {
		t.Fatal("docker-compose.yml has no command of Redis")
	}
	return shellWords(redisPassword.ReplaceAllString(strings.Join(strings.Fields(block), " "), secret))
}

// TestComposeHasTheDocumentedPermissions: NATS and Redis in docker-compose.yml grant exactly the permissions
// documented in docs/security.md.
func TestComposeHasTheDocumentedPermissions(t *testing.T) {
	t.Parallel()
	head, block, found := strings.Cut(read(t, "deploy/nats.conf"), "\nauthorization {")
	if want := securityBlock(t, "nats"); !found || "authorization {"+block != want+"\n" {
		t.Errorf("deploy/nats.conf ends with:\n%s\nexpected the block of docs/security.md:\n%s", block, want)
	}
	if strings.Contains(head, "no_auth_user") || strings.Contains(head, "accounts") {
		t.Errorf("deploy/nats.conf admits others:\n%s", head)
	}
	_, users, _ := strings.Cut(strings.Join(redisArguments(t), " "), " --user ")
	got := strings.Split(users, " --user ")
	// Without these permissions Redis replays no transaction of its append-only file.
	const off = "default off resetpass ~* &* +@all"
	if !strings.Contains(read(t, "docs/security.md"), "\n    user "+off+"\n") {
		t.Errorf("docs/security.md does not show how to turn the default user off: %s", off)
	}
	documented := strings.TrimPrefix(strings.TrimSpace(securityBlock(t, "redis-acl")), "user ")
	want := []string{
		off,
		"health on >" + secret + " resetkeys resetchannels -@all +ping",
		strings.Replace(documented, ">PASSWORD", ">"+secret, 1),
	}
	if !slices.Equal(got, want) {
		t.Errorf("the users of Redis are\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestComposeStartsNoOpenServer: no container but a worker and the commands shares a network with NATS and
// Redis, and the demo is a project of its own.
func TestComposeStartsNoOpenServer(t *testing.T) {
	t.Parallel()
	for file, services := range map[string]map[string]string{
		"docker-compose.yml":       {"nats": "backend, nats-port", "redis": "backend", "notifier": "backend, outside", "cli": "backend"},
		"deploy/observability.yml": {"notifier": "observe", "prometheus": "observe, dashboards", "grafana": "dashboards"},
	} {
		_, text, _ := strings.Cut(read(t, file), "\nservices:\n")
		for service, want := range services {
			block := regexp.MustCompile(`(?m)^  ` + service + `:\n(?:(?:    .*)?\n)+`).FindString(text)
			networks := regexp.MustCompile(`(?m)^    networks: \[(.*)\]$`).FindStringSubmatch(block)
			if got := strings.Join(networks[min(1, len(networks)):], ""); got != want || block == "" {
				t.Errorf("%s: the service %s is in the networks %q, expected %q", file, service, got, want)
			}
		}
	}
	if !strings.Contains(read(t, "docker-compose.yml"), "\n  backend: {internal: true}\n") {
		t.Error("the network of NATS and Redis has a way out")
	}
	if !strings.Contains(read(t, "deploy/demo.yml"), "\nname: notifier-demo\n") {
		t.Error("the demo would replace the workers, and use the volumes, of the real project")
	}
}

// TestComposeNATS: the server takes deploy/nats.conf with the passwords of its environment, admits no user
// without one, and does not start if one is missing.
func TestComposeNATS(t *testing.T) {
	const file = "../../deploy/nats.conf"
	passwords := []string{"NATS_WORKER_PASSWORD", "NATS_PUBLISHER_PASSWORD", "NATS_OPERATOR_PASSWORD"}
	for _, name := range passwords {
		t.Setenv(name, "p123"+strings.ToLower(name[5:8]))
	}
	options, err := server.ProcessConfigFile(file)
	kit.Check(t, err)
	options.StoreDir, options.HTTPPort = t.TempDir(), 0
	started := kit.NATSServer(t, options)
	for user, password := range map[string]string{"notifier": "p123wor", "publisher": "p123pub", "operator": "p123ope"} {
		connection, err := nats.Connect(started.ClientURL(), nats.UserInfo(user, password))
		if err != nil {
			t.Fatalf("%s: %v", user, err)
		}
		connection.Close()
	}
	for what, login := range map[string]nats.Option{
		"no password":       nats.Name("stranger"),
		"another's":         nats.UserInfo("operator", "p123pub"),
		"an empty password": nats.UserInfo("publisher", ""),
		"the variable":      nats.UserInfo("publisher", "$NATS_PUBLISHER_PASSWORD"),
	} {
		if _, err := nats.Connect(started.ClientURL(), login); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("with %s: %v, expected a refusal", what, err)
		}
	}
	for _, name := range passwords {
		kept := os.Getenv(name)
		kit.Check(t, os.Unsetenv(name))
		if _, err := server.ProcessConfigFile(file); err == nil {
			t.Errorf("without %s NATS starts", name)
		}
		kit.Check(t, os.Setenv(name, kept))
	}
}

// TestComposeRedis: the server takes the arguments of docker-compose.yml, admits no user without a password,
// and knows the admissions after a kill.
func TestComposeRedis(t *testing.T) {
	t.Parallel()
	addr, start := composeRedis(t)
	stop := start()
	as := func(user, password string) *redis.Client {
		client := redis.NewClient(&redis.Options{Addr: addr, Username: user, Password: password, MaxRetries: -1})
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	for what, client := range map[string]*redis.Client{
		"nothing": as("", ""), "the default user": as("default", secret), "a wrong password": as("notifier", "wrong"), "health without one": as("health", ""),
	} {
		err := client.Ping(t.Context()).Err()
		if err == nil || !strings.Contains(err.Error(), "NOAUTH") && !strings.Contains(err.Error(), "WRONGPASS") {
			t.Errorf("with %s: %v, expected a refusal", what, err)
		}
	}
	for command, err := range map[string]error{
		"GET":  as("health", secret).Get(t.Context(), "{notifier}:global").Err(),
		"INFO": as("health", secret).Info(t.Context()).Err(),
	} {
		if !isForbidden(err) {
			t.Errorf("health may %s: %v", command, err)
		}
	}
	url := "redis://notifier:" + secret + "@" + addr
	client, err := ratelimit.Open(url, nil)
	kit.Check(t, err)
	defer client.Close()
	kit.Check(t, useLimiter(t.Context(), client))
	before, err := client.ZCard(t.Context(), "{notifier}:global").Result()
	kit.Check(t, err)

	stop()
	defer start()()
	after, err := client.ZCard(t.Context(), "{notifier}:global").Result()
	if err != nil || after != before || before == 0 {
		t.Errorf("%d admissions before a kill and %d after it, %v", before, after, err)
	}
}

// composeRedis returns an address and a function that starts Redis there with the arguments of
// docker-compose.yml. The function it returns kills the server.
func composeRedis(t *testing.T) (addr string, start func() (stop func())) {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil && os.Getenv("NOTIFIER_TEST_REDIS") == "require" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip("no redis-server in PATH")
	}
	addr = kit.FreeAddr(t)
	directory := t.TempDir()
	_, port, _ := strings.Cut(addr, ":")
	arguments := append(redisArguments(t), "--port", port, "--bind", "127.0.0.1", "--dir", directory)
	health := redis.NewClient(&redis.Options{Addr: addr, Username: "health", Password: secret, MaxRetries: -1})
	t.Cleanup(func() { _ = health.Close() })
	return addr, func() func() {
		command := exec.Command(program, arguments...)
		kit.Check(t, command.Start())
		var stopped bool
		stop := func() {
			if !stopped {
				stopped = true
				_ = command.Process.Kill()
				_ = command.Wait()
			}
		}
		t.Cleanup(stop)
		deadline := time.Now().Add(kit.Patience)
		for health.Ping(t.Context()).Err() != nil {
			if time.Now().After(deadline) {
				t.Fatalf("redis-server does not start with %q", arguments)
			}
			time.Sleep(10 * time.Millisecond)
		}
		return stop
	}
}
