package real

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"notifier/test/kit"
)

var (
	folder  string
	program kit.Program
)

func TestMain(m *testing.M) {
	kit.QuietRedis()
	os.Exit(kit.InFolder(m, &folder))
}

// need returns the path of a program.
func need(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
	case os.Getenv("NOTIFIER_TEST_REAL") == "require":
		t.Fatalf("NOTIFIER_TEST_REAL requires %s: %v", name, err)
	default:
		t.Skipf("%s is not installed, or not in PATH", name)
	}
	return path
}

// run runs a command of notifier with these variables and no others, and expects success. It returns both
// outputs.
func run(t *testing.T, env map[string]string, arguments ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), program.Build(t, folder), arguments...)
	for name, value := range env {
		command.Env = append(command.Env, name+"="+value)
	}
	out, err := command.CombinedOutput()
	if err != nil {
		t.Errorf("notifier %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
	return string(out)
}
