//go:build e2e

package e2e_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"notifier/test/kit"
)

// testImages: both images have no shell, run as an unprivileged user, and report their version.
func testImages(t *testing.T, e *engine) {
	for _, image := range []string{e.production, e.demo} {
		t.Run(strings.SplitN(image, ":", 2)[0], func(t *testing.T) {
			var inspected []struct {
				Config struct {
					User       string
					Entrypoint []string
				}
			}
			kit.Check(t, json.Unmarshal([]byte(e.docker(t, "image", "inspect", image)), &inspected))
			config := inspected[0].Config
			if config.User != "65532:65532" || !slices.Equal(config.Entrypoint, []string{"/notifier"}) {
				t.Errorf("user %q and entrypoint %q; expected 65532:65532 and /notifier", config.User, config.Entrypoint)
			}
			if out := e.docker(t, "run", "--rm", "--network", "none", image, "version"); !strings.Contains(out, releaseVersion) {
				t.Errorf("version says %q, expected %s", out, releaseVersion)
			}
			for _, shell := range []string{"/bin/sh", "/bin/bash", "/bin/busybox"} {
				_, err := e.run(e.ctx, commandDeadline, "docker", "run", "--rm", "--network", "none", "--entrypoint", shell, image, "-c", "true")
				if code, said := exitOf(t, err); code != 127 {
					t.Errorf("%s: exit code %d, expected 127, not found: %s", shell, code, said)
				}
			}
		})
	}

	t.Run("production has a health check", func(t *testing.T) {
		if got := e.docker(t, "image", "inspect", "-f", "{{json .Config.Healthcheck.Test}}", e.production); got != `["CMD","/notifier","healthcheck"]` {
			t.Errorf("the image's health check is %s", got)
		}
	})
}

// checkHardening inspects the running containers of all services.
func (p *project) checkHardening(t *testing.T) {
	t.Helper()
	for service, user := range map[string]string{"notifier": "65532:65532", "redis": "999:1000", "nats": ""} {
		replicas := p.replicas(t, service)
		if want := map[string]int{"notifier": 3}[service]; len(replicas) != max(1, want) {
			t.Errorf("%d replicas of %s", len(replicas), service)
		}
		for _, id := range replicas {
			p.checkContainer(t, service, id, user)
		}
	}
}

// checkContainer inspects one container. NATS's runs as root without capabilities.
func (p *project) checkContainer(t *testing.T, service, id, user string) {
	t.Helper()
	var inspected []struct {
		State  struct{ Health struct{ Status string } }
		Config struct{ User string }

		HostConfig struct {
			ReadonlyRootfs bool
			Privileged     bool
			CapDrop        []string
			CapAdd         []string
			SecurityOpt    []string
			Memory         int64
			PidsLimit      int64
			RestartPolicy  struct{ Name string }
			LogConfig      struct {
				Type   string
				Config map[string]string
			}
		}
	}
	kit.Check(t, json.Unmarshal([]byte(p.docker(t, "inspect", id)), &inspected))
	container, host := inspected[0], inspected[0].HostConfig
	for property, holds := range map[string]bool{
		"is healthy":               container.State.Health.Status == "healthy",
		"runs as its user":         container.Config.User == user,
		"has a read-only root":     host.ReadonlyRootfs && !host.Privileged,
		"has no capabilities":      slices.Equal(host.CapDrop, []string{"ALL"}) && len(host.CapAdd) == 0,
		"gains no privileges":      slices.Contains(host.SecurityOpt, "no-new-privileges:true"),
		"has a memory limit":       host.Memory > 0,
		"has a process limit":      host.PidsLimit > 0,
		"is restarted after death": host.RestartPolicy.Name == "unless-stopped",
		"rotates its log":          host.LogConfig.Type == "json-file" && host.LogConfig.Config["max-size"] != "" && host.LogConfig.Config["max-file"] != "",
	} {
		if !holds {
			t.Errorf("container %s of %s: %q is not so: %+v", id, service, property, container)
		}
	}
}

// checkPorts: whatever the project publishes is on the loopback address.
func (p *project) checkPorts(t *testing.T) {
	t.Helper()
	published := 0
	for _, id := range strings.Fields(p.compose(t, "ps", "-q")) {
		var ports map[string][]struct{ HostIP string }
		kit.Check(t, json.Unmarshal([]byte(p.docker(t, "inspect", "-f", "{{json .NetworkSettings.Ports}}", id)), &ports))
		for port, bindings := range ports {
			for _, binding := range bindings {
				published++
				if binding.HostIP != "127.0.0.1" {
					t.Errorf("port %s of container %s is published on %q, expected 127.0.0.1", port, id, binding.HostIP)
				}
			}
		}
	}
	if published == 0 {
		t.Error("no port is published at all")
	}
}
