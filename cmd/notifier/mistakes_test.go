package main

import (
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"

	"notifier/test/kit"
)

// TestMistakes: each mistake in testdata/mistakes.txt gets its one line on standard error, and its exit code.
func TestMistakes(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile("testdata/mistakes.txt")
	kit.Check(t, err)
	env := map[string]string{
		"PATH": os.Getenv("PATH"), "NATS_URL": "nats://127.0.0.1:1", "REDIS_URL": "redis://127.0.0.1:1",
		"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_CHANNEL": "#alerts",
	}
	rows := strings.Split(strings.TrimSpace(string(table)), "\n\n")[1:] // without the head
	if len(rows) < 40 {
		t.Errorf("%d mistakes, expected 40 or more", len(rows))
	}
	for _, row := range rows {
		lines := strings.Split(row, "\n")
		command, found := strings.CutPrefix(lines[0], "$ ")
		if !found || len(lines) != 3 {
			t.Fatalf("%q, expected a command, a line and an exit code", row)
		}
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			p := startCommand(t, exec.Command("sh", "-c", command), maps.Clone(env))
			code := p.code(t)
			said := strings.TrimPrefix(p.errOut.String(), "notifier: invalid configuration:\n")
			said, _, _ = strings.Cut(strings.TrimSpace(said), "\n")
			if said != lines[1] {
				t.Errorf("%s\n%s\nexpected\n%s", command, said, lines[1])
			}
			if want := "exit " + string(rune('0'+code)); want != lines[2] {
				t.Errorf("%s: exit %d, expected %s", command, code, lines[2])
			}
			if p.out.String() != "" {
				t.Errorf("%s: %q on standard output", command, p.out.String())
			}
		})
	}
}
