//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"notifier/test/kit"
)

// behindProxy lets the client inject a proxy into all containers, as a company's configuration does.
func (p *project) behindProxy(t *testing.T, proxy string) {
	t.Helper()
	var info struct {
		ClientInfo struct {
			Plugins []struct{ Name, Path string }
		}
	}
	kit.Check(t, json.Unmarshal([]byte(p.docker(t, "info", "--format", "{{json .}}")), &info))
	var plugins []string
	for _, plugin := range info.ClientInfo.Plugins {
		plugins = append(plugins, filepath.Dir(plugin.Path))
	}
	directory := t.TempDir()
	text, err := json.Marshal(map[string]any{
		"cliPluginsExtraDirs": plugins,
		"proxies":             map[string]any{"default": map[string]string{"httpProxy": proxy, "httpsProxy": proxy}},
	})
	kit.Check(t, err)
	kit.Check(t, os.WriteFile(filepath.Join(directory, "config.json"), text, 0o600))
	p.environment = append(slices.DeleteFunc(p.environment, func(v string) bool { return strings.HasPrefix(v, "DOCKER_CONFIG=") }), "DOCKER_CONFIG="+directory)
}

// testDemo: the demo starts without a setting, also a second time, after stop and after down, behind a proxy
// that does not work. As its file says, ten events are sent, and the limit drops the others.
func testDemo(t *testing.T, e *engine) {
	p := e.project(t, "demo", []string{demoFile})
	p.behindProxy(t, "http://127.0.0.1:9")
	start := []string{"up", "-d", "--no-build", "--pull", "never", "--wait"}
	p.up(t, "--wait")
	if out := p.compose(t, "exec", "-T", "nats", "sh", "-c", "echo $http_proxy"); !strings.Contains(out, "127.0.0.1:9") {
		t.Fatalf("the containers have the proxy %q", out)
	}
	p.checkPorts(t)
	p.until(t, "ten are sent and some are dropped", func() (bool, string) {
		lines, _ := p.settled(t, "notifier", 0)
		counts := map[string]int{}
		for _, line := range lines {
			counts[line.Outcome+line.Reason]++
		}
		return counts["sent"] == limitCategory && counts["droppedcategory"] > 0, fmt.Sprint(counts)
	})
	if accepted := p.slack(t).accepted(t); accepted != limitCategory {
		t.Errorf("%d posts, expected %d", accepted, limitCategory)
	}
	for _, before := range []string{"ps", "stop", "down"} {
		p.compose(t, before)
		if _, err := p.try(commandDeadline, start...); err != nil {
			t.Errorf("up --wait after %s: %v", before, err)
		}
	}
	if out := p.compose(t, "run", "--rm", "-T", "cli", "publish", "-wait", "deploys", "v1.2.3"); !sentTo(out, "#notifications") {
		t.Errorf("publish -wait: %s", out)
	}
}
