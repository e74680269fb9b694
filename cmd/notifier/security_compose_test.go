package main

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"notifier/test/kit"
	"notifier/test/natstest"
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
	started := natstest.Server(t, options)
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
