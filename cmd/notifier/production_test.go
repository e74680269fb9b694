package main

import (
	"os/exec"
	"strings"
	"testing"

	"notifier/internal/testkit"
)

// TestProductionBuild: what is deployed contains neither the embedded servers, and reports where they are, nor gRPC.
func TestProductionBuild(t *testing.T) {
	t.Parallel()
	list, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", "production", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, list)
	}
	if !strings.Contains(string(list), "notifier/internal/consume\n") {
		t.Fatalf("no list of packages:\n%s", list)
	}
	for dependency := range strings.Lines(string(list)) {
		for _, left := range []string{"nats-server", "miniredis", "gopher-lua", "notifier/internal/devstack", "notifier/internal/embedded", "notifier/internal/simulate", "notifier/internal/redistest", "testing\n", "google.golang.org/grpc", "grpc-gateway"} {
			if strings.Contains(dependency, left) {
				t.Errorf("it contains %s", dependency)
			}
		}
	}
	binary := production.Build(t, programs)
	modules, err := exec.CommandContext(t.Context(), "go", "version", "-m", binary).Output()
	if n := strings.Count(string(modules), "\n\tdep\t"); err != nil || n == 0 || n > mostModules {
		t.Errorf("%v; it links %d modules, expected %d at most:\n%s", err, n, mostModules, modules)
	}
	for _, arguments := range [][]string{{"demo"}, {"dev"}, {"dev", "-slack-only", "127.0.0.1:0"}, {"simulate"}, {"simulate", "-group", "5/1m", "-"}} {
		command := exec.CommandContext(t.Context(), binary, arguments...)
		out, _ := command.CombinedOutput()
		if code := command.ProcessState.ExitCode(); code != exitFailed {
			t.Errorf("%v: exit code %d, expected 1", arguments, code)
		}
		for _, want := range []string{`"-tags production"`, `"go run ./cmd/notifier demo"`, "no embedded servers"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("%v: %q, expected %s in it", arguments, out, want)
			}
		}
	}
}

// mostModules is how many modules the production binary may link. Each of them has to be trusted and kept up to date, so one
// more is a decision. The last one is jsontext, which reads payloads; it goes when the standard library has it.
const mostModules = 39

// production is notifier as it is deployed, and programs the folder that it is built into.
var (
	production = &testkit.Program{Tags: "production"}
	programs   string
)
