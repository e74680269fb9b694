package main

import (
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"notifier/test/kit"
)

// betweenCommands is the pause before a command is run once more: a process is much work for a look.
const betweenCommands = 100 * time.Millisecond

// Reruns a command until a line of its output matches the pattern. The exit code is ignored.
func asks(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: asks PATTERN COMMAND [ARGUMENT...]")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	said := ""
	if !kit.Within(kit.Patience, func() bool {
		_ = ts.Exec(args[1], args[2:]...)
		said = ts.ReadFile("stdout") + ts.ReadFile("stderr")
		if pattern.MatchString(said) {
			return true
		}
		time.Sleep(betweenCommands)
		return false
	}) {
		ts.Fatalf("after %s %s has not answered %s, but:\n%s", kit.Patience, strings.Join(args[1:], " "), args[0], said)
	}
}

// behaves sets the faults of the script's fake Slack: behaves '{"revoked":true}'. {} ends them.
func behaves(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("expected one argument, a JSON object")
	}
	url := strings.TrimSuffix(ts.Getenv("SLACK_API_URL"), "api/") + "fake/faults"
	response, err := http.Post(url, "application/json", strings.NewReader(args[0]))
	ts.Check(err)
	ts.Check(response.Body.Close())
	if response.StatusCode != http.StatusOK {
		ts.Fatalf("the fake Slack replies %s to %s", response.Status, args[0])
	}
}
