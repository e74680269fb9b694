package main

import (
	"io"
	"net/http"
	"os"
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

// opens asks for a page until it shows a text: opens 'disk full' http://127.0.0.1:8090.
func opens(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: opens PATTERN URL")
	}
	pattern, err := regexp.Compile(args[0])
	ts.Check(err)
	body := []byte("nothing")
	if !kit.Within(kit.Patience, func() bool {
		response, err := http.Get(args[1])
		if err != nil {
			return false
		}
		defer func() { _ = response.Body.Close() }()
		body, err = io.ReadAll(response.Body)
		return err == nil && response.StatusCode == http.StatusOK && pattern.Match(body)
	}) {
		ts.Fatalf("after %s %s does not show %s, but:\n%s", kit.Patience, args[1], args[0], body)
	}
}

// finds waits for a text in a file that a process in the background writes, and sets a variable to the first
// group of the pattern: finds dev.txt NATS_URL '^ *NATS +(\S+)'.
func finds(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: finds FILE VARIABLE PATTERN")
	}
	pattern, err := regexp.Compile("(?m)" + args[2])
	ts.Check(err)
	var text []byte
	if !kit.Within(kit.Patience, func() bool {
		text, _ = os.ReadFile(ts.MkAbs(args[0])) // it may not be there yet
		return pattern.Match(text)
	}) {
		ts.Fatalf("after %s %s has no %s, but:\n%s", kit.Patience, args[0], args[2], text)
	}
	ts.Setenv(args[1], string(pattern.FindSubmatch(text)[1]))
}
