package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"notifier/test/kit"
)

// secretsScript is deploy/secrets.sh with a directory for its volumes, without Docker.
type secretsScript struct {
	deploy, secrets, bin string
}

// newSecretsScript copies deploy. It stubs chown, which needs root, and flock, which some machines lack.
func newSecretsScript(t *testing.T) secretsScript {
	t.Helper()
	s := secretsScript{deploy: t.TempDir(), secrets: t.TempDir(), bin: t.TempDir()}
	kit.Check(t, os.CopyFS(s.deploy, os.DirFS("../../deploy")))
	for _, name := range []string{"chown", "flock"} {
		kit.Check(t, os.WriteFile(filepath.Join(s.bin, name), []byte("#!/bin/sh\n"), 0o700))
	}
	return s
}

// run runs the script, given arguments separated by blanks, standard input and settings.
func (s secretsScript) run(t *testing.T, arguments, input string, settings ...string) (output string, err error) {
	t.Helper()
	script := append([]string{filepath.Join(s.deploy, "secrets.sh")}, strings.Fields(arguments)...)
	cmd := exec.CommandContext(t.Context(), "sh", script...)
	cmd.Stdin = strings.NewReader(input)
	cmd.Env = append([]string{
		"PATH=" + s.bin + ":" + os.Getenv("PATH"), "SECRETS_DIR=" + s.secrets, "NATS_HOST=nats", "NATS_PORT=4222", "REDIS_HOST=redis",
	}, settings...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// must runs the script without input, and ends the test where it fails.
func (s secretsScript) must(t *testing.T, arguments string, settings ...string) string {
	t.Helper()
	out, err := s.run(t, arguments, "", settings...)
	if err != nil {
		t.Fatalf("%s: %v: %s", arguments, err, out)
	}
	return out
}

// file returns the content of a file from the script, or "" if the file does not exist.
func (s secretsScript) file(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(s.secrets, name))
	if !errors.Is(err, fs.ErrNotExist) {
		kit.Check(t, err)
	}
	return string(content)
}

// TestComposeSecretsHaveTheNamesThatAreSet: the permissions are given for the names that are set, even for
// one that is the default of another name.
func TestComposeSecretsHaveTheNamesThatAreSet(t *testing.T) {
	t.Parallel()
	s := newSecretsScript(t)
	out, err := s.run(t, "", "", "NATS_STREAM=notifier", "NATS_CONSUMER=NOTIFY", "NATS_SUBJECT=alerts.notifier.>",
		"DEAD_LETTER_SUBJECT=notify", "DROPPED_SUBJECT=dropped.notifier.NOTIFY", "REDIS_NAMESPACE=alerts")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, want, _ := strings.Cut(read(t, "deploy/nats.conf"), "authorization")
	want = strings.NewReplacer( // replaces in one pass
		"NOTIFY.notifier", "notifier.NOTIFY", "NOTIFY", "notifier",
		`"notify-dead.>"`, `"notify.>", "dropped.notifier.NOTIFY.>"`, `"notify-events.>"`, `"notifier-events.>"`,
		`"notify.>"`, `"alerts.notifier.>"`).Replace(want)
	want = regexp.MustCompile(`password: \$\w+`).ReplaceAllString(want, "password:")
	_, got, _ := strings.Cut(s.file(t, "nats/nats.conf"), "authorization")
	got = regexp.MustCompile(`password: "[0-9a-f]{48}"`).ReplaceAllString(got, "password:")
	if got != want {
		t.Errorf("%s\nexpected\n%s", got, want)
	}
	hashes := regexp.MustCompile(`#[0-9a-f]{64} `)
	users := s.file(t, "redis/users.acl")
	wantUsers := strings.NewReplacer(">PASSWORD ", "", ">HEALTH_PASSWORD ", "", "{notifier}", "{alerts}").
		Replace(regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(read(t, "deploy/redis.acl"), ""))
	if len(hashes.FindAllString(users, -1)) != 2 || hashes.ReplaceAllString(users, "") != wantUsers {
		t.Errorf("the users of Redis:\n%s\nexpected with two hashes\n%s", users, wantUsers)
	}
}

// TestComposeSecretsFailClosed: if a server's permissions are missing, the script fails and writes no file,
// so the server does not start. Files from an earlier run stay unchanged.
func TestComposeSecretsFailClosed(t *testing.T) {
	t.Parallel()
	for _, conf := range []string{"nats.conf", "redis.acl"} {
		for _, state := range []string{"missing", "empty"} {
			s := newSecretsScript(t)
			path := filepath.Join(s.deploy, conf)
			content, err := os.ReadFile(path)
			kit.Check(t, err)
			spoil := func() {
				kit.Check(t, os.Remove(path))
				if state == "empty" {
					kit.Check(t, os.WriteFile(path, nil, 0o600))
				}
				if out, err := s.run(t, "", ""); err == nil || !strings.Contains(out, conf) {
					t.Errorf("with %s %s the script ends with %v and %q; expected a failure that names it", state, conf, err, out)
				}
			}
			spoil()
			if nats, redis := s.file(t, "nats/nats.conf"), s.file(t, "redis/users.acl"); nats != "" || redis != "" {
				t.Errorf("with %s %s the script writes %q and %q, expected nothing", state, conf, nats, redis)
			}
			kit.Check(t, os.WriteFile(path, content, 0o600))
			if out, err := s.run(t, "", ""); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			nats, redis := s.file(t, "nats/nats.conf"), s.file(t, "redis/users.acl")
			spoil()
			if nats == "" || redis == "" || nats != s.file(t, "nats/nats.conf") || redis != s.file(t, "redis/users.acl") {
				t.Errorf("with %s %s the files of an earlier run have changed", state, conf)
			}
		}
	}
}

// TestComposeSecretsAreNotEmpty: "secrets set" stores its input and rejects empty input.
func TestComposeSecretsAreNotEmpty(t *testing.T) {
	t.Parallel()
	s := newSecretsScript(t)
	for _, input := range []string{"", " \n"} {
		if out, err := s.run(t, "set slack-bot-token", input); err == nil || !strings.Contains(out, "worker/slack-bot-token") {
			t.Errorf("set with %q ends with %v and %q; expected a failure that names the file", input, err, out)
		}
	}
	if out, err := s.run(t, "set slack-bot-token", "xoxb-1\n"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, err := s.run(t, "set slack-bot-token", "")
	if got := s.file(t, "worker/slack-bot-token"); got != "xoxb-1\n" || err == nil {
		t.Errorf("after set without input, which ends with %v, the secret is %q; expected a failure and the one from before", err, got)
	}
}
