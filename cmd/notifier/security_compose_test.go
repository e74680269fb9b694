package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestComposeHasTheDocumentedPermissions: NATS and Redis in docker-compose.yml grant exactly the permissions
// documented in docs/security.md.
func TestComposeHasTheDocumentedPermissions(t *testing.T) {
	t.Parallel()
	head, block, found := strings.Cut(read(t, "deploy/nats.conf"), "\nauthorization {")
	if want := securityBlock(t, "nats"); !found || "authorization {"+block != want+"\n" {
		t.Errorf("deploy/nats.conf ends with:\n%s\nexpected the block of docs/security.md:\n%s", block, want)
	}
	if strings.Contains(head, "no_auth_user") || strings.Contains(head, "accounts") {
		t.Errorf("deploy/nats.conf lets others in:\n%s", head)
	}
	var users []string
	for line := range strings.Lines(read(t, "deploy/redis.acl")) {
		if !strings.HasPrefix(line, "#") {
			users = append(users, strings.TrimSpace(line))
		}
	}
	// without these Redis replays no transaction of its append-only file
	off := "user default off resetpass ~* &* +@all"
	if !strings.Contains(read(t, "docs/security.md"), "\n    "+off+"\n") {
		t.Errorf("docs/security.md does not show how to turn the default user off: %s", off)
	}
	want := []string{
		off,
		"user health on >HEALTH_PASSWORD resetkeys resetchannels -@all +ping",
		strings.TrimSpace(securityBlock(t, "redis-acl")),
	}
	if !slices.Equal(users, want) {
		t.Errorf("deploy/redis.acl has\n%s\nexpected\n%s", strings.Join(users, "\n"), strings.Join(want, "\n"))
	}
}

// TestComposeStartsNoOpenServer: each NATS and Redis of docker-compose.yml is started with these permissions,
// and is in no network with those who need only the workers' admin servers.
func TestComposeStartsNoOpenServer(t *testing.T) {
	t.Parallel()
	compose := read(t, "docker-compose.yml")
	for _, want := range []string{
		`command: ["-c", "/secrets/nats/nats.conf"]`, `"--aclfile", "/secrets/redis/users.acl"]`,
	} {
		if strings.Count(compose, want) != 1 {
			t.Errorf("docker-compose.yml has not one %s", want)
		}
	}
	for service, want := range map[string]string{
		"secrets": "", "nats": "backend, nats-port", "redis": "backend", "notifier": "backend, observe, outside", "cli": "backend, outside",
		"nats-demo": "demo", "redis-demo": "demo", "fake-slack": "demo", "notifier-demo": "demo, observe-demo", "burst": "demo",
		"prometheus": "observe, observe-demo, dashboards", "grafana": "dashboards",
	} {
		block := regexp.MustCompile(`(?m)^  ` + service + `:\n(?:(?:    .*)?\n)+`).FindString(compose)
		networks := regexp.MustCompile(`(?m)^    networks: \[(.*)\]$`).FindStringSubmatch(block)
		if got := strings.Join(networks[min(1, len(networks)):], ""); got != want || block == "" {
			t.Errorf("the service %s is in the networks %q, expected %q", service, got, want)
		}
	}
}
