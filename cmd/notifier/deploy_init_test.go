package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"notifier/test/kit"
)

// passwordNames are the variables that deploy/init.sh makes.
var passwordNames = []string{
	"NATS_WORKER_PASSWORD", "NATS_PUBLISHER_PASSWORD", "NATS_OPERATOR_PASSWORD", "REDIS_PASSWORD",
}

// clone copies the files that deploy/init.sh uses, as git does under a strict umask.
func clone(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	for _, name := range []string{"deploy/init.sh", "deploy/nats.conf", "observability/prometheus.yml", ".env.example"} {
		path := filepath.Join(directory, name)
		kit.Check(t, os.MkdirAll(filepath.Dir(path), 0o700))
		kit.Check(t, os.WriteFile(path, []byte(read(t, name)), 0o600))
	}
	kit.Check(t, os.Chmod(filepath.Join(directory, ".env.example"), 0o644))
	return directory
}

// initialise runs deploy/init.sh in a clone from another directory and returns its output.
func initialise(t *testing.T, directory string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "sh", filepath.Join(directory, "deploy/init.sh"))
	command.Dir = t.TempDir()
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// dotenv returns the content of .env.
func dotenv(t *testing.T, directory string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(directory, ".env"))
	kit.Check(t, err)
	return string(text)
}

// passwordsOf returns the passwords of .env by name. Each must be set exactly once.
func passwordsOf(t *testing.T, env string) map[string]string {
	t.Helper()
	passwords := map[string]string{}
	for _, name := range passwordNames {
		found := regexp.MustCompile(`(?m)^`+name+`=(.+)$`).FindAllStringSubmatch(env, -1)
		if len(found) != 1 {
			t.Fatalf("%s is set %d times in\n%s", name, len(found), env)
		}
		passwords[name] = found[0][1]
	}
	return passwords
}

// TestInitMakesPasswords: .env is the example and four different random passwords, for its owner alone. A
// second run changes nothing.
func TestInitMakesPasswords(t *testing.T) {
	t.Parallel()
	directory := clone(t)
	out := initialise(t, directory)
	env := dotenv(t, directory)
	if !strings.HasPrefix(env, read(t, ".env.example")) || !strings.Contains(out, "set SLACK_BOT_TOKEN and SLACK_CHANNEL") {
		t.Errorf("init says %s and makes\n%s", out, env)
	}
	seen := map[string]bool{}
	for name, password := range passwordsOf(t, env) {
		if seen[password] || !regexp.MustCompile(`^p[0-9a-f]{48}$`).MatchString(password) {
			t.Errorf("%s=%s, expected p and 48 hexadecimal digits of its own", name, password)
		}
		seen[password] = true
		if strings.Contains(out, password) {
			t.Errorf("init prints the password %s", name)
		}
	}
	checkModes(t, directory)
	initialise(t, directory)
	if again := dotenv(t, directory); again != env {
		t.Errorf("the second run changes .env from\n%s\nto\n%s", env, again)
	}
}

// TestInitKeepsWhatIsThere: an .env of an earlier release keeps its lines and gains the passwords that it
// lacks, also without a line end at its end.
func TestInitKeepsWhatIsThere(t *testing.T) {
	t.Parallel()
	directory := clone(t)
	const before = "SLACK_WEBHOOK_URL=https://hooks.slack.com/services/T0/B0/x\nREDIS_PASSWORD=mine\nNATS_WORKER_PASSWORD=\nNATS_URL=nats://own\nLIMIT_GLOBAL=5/1m"
	kit.Check(t, os.WriteFile(filepath.Join(directory, ".env"), []byte(before), 0o644))
	out := initialise(t, directory)
	checkModes(t, directory)
	env := dotenv(t, directory)
	if !strings.HasPrefix(env, before+"\n") || passwordsOf(t, env)["REDIS_PASSWORD"] != "mine" {
		t.Errorf("%q has become\n%s", before, env)
	}
	if !strings.Contains(out, "warning: NATS_URL") {
		t.Errorf("init does not say that NATS_URL has no effect: %s", out)
	}
	if strings.Contains(out, "next:") || strings.Contains(out, "REDIS_PASSWORD") {
		t.Errorf("with Slack's webhook and a password set, init says %s", out)
	}
}

// checkModes checks that only the owner can read .env, and that containers, which run as other users, can
// read their configuration.
func checkModes(t *testing.T, directory string) {
	t.Helper()
	for name, want := range map[string]os.FileMode{
		".env": 0o600, "deploy/nats.conf": 0o644, "observability": 0o755, "observability/prometheus.yml": 0o644,
	} {
		info, err := os.Stat(filepath.Join(directory, name))
		kit.Check(t, err)
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %o, expected %o", name, info.Mode().Perm(), want)
		}
	}
}
