package main

import (
	"os/exec"
	"strings"
	"testing"

	"notifier/test/kit"
)

// TestProductionBuild: the production binary contains neither the embedded servers nor gRPC.
func TestProductionBuild(t *testing.T) {
	t.Parallel()
	list, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, list)
	}
	if !strings.Contains(string(list), "notifier/internal/consume\n") {
		t.Fatalf("no list of packages:\n%s", list)
	}
	for dependency := range strings.Lines(string(list)) {
		for _, left := range []string{"nats-server", "miniredis", "gopher-lua", "notifier/internal/devstack", "notifier/internal/devstack/embedded", "notifier/internal/devstack/simulate", "notifier/test/redistest", "testing\n", "google.golang.org/grpc", "grpc-gateway"} {
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
}

// mostModules limits the modules linked into the production binary. Each module has to be trusted and kept up
// to date, so adding one is a decision. The last addition is jsontext, which reads payloads. Drop it once the
// standard library includes it.
const mostModules = 39

// The two programs, and the folder that they are built into.
var (
	production = &kit.Program{}
	developers = &kit.Program{Package: "notifier/cmd/notifier-dev"}
	programs   string
)
