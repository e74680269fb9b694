package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/test/kit"
)

// example is the code of docs/publishing.md in a language, as a file of its own.
func example(t *testing.T, language, name string) string {
	t.Helper()
	_, code, found := strings.Cut(read(t, "docs/publishing.md"), "\n```"+language+"\n")
	code, _, ended := strings.Cut(code, "\n```\n")
	if !found || !ended {
		t.Fatalf("docs/publishing.md has no example in %s", language)
	}
	path := filepath.Join(t.TempDir(), name)
	kit.Check(t, os.WriteFile(path, []byte(code+"\n"), 0o600))
	return path
}

// runExample runs a command in the module, which the example of Go needs.
func runExample(t *testing.T, env map[string]string, name string, arguments ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, arguments...)
	command.Dir = filepath.Join("..", "..")
	command.Env = os.Environ()
	for name, value := range env {
		command.Env = append(command.Env, name+"="+value)
	}
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
	return string(out)
}

// TestPublishingExampleGo: the documented lines publish an event with its id, and report one that was stored
// before.
func TestPublishingExampleGo(t *testing.T) {
	t.Parallel()
	js, env := startWithStreams(t)
	file := example(t, "go", "main.go")
	binary := filepath.Join(t.TempDir(), "example")
	runExample(t, nil, "go", "build", "-o", binary, file)
	if formatted := runExample(t, nil, "gofmt", "-l", file); formatted != "" {
		t.Errorf("the example is not formatted: %s", formatted)
	}
	for _, before := range []string{"false", "true"} {
		out := runExample(t, env, binary)
		if !strings.Contains(out, "event 1 of stream NOTIFY, stored before: "+before) {
			t.Errorf("%q", out)
		}
	}
	stream, err := js.Stream(t.Context(), "NOTIFY")
	kit.Check(t, err)
	message, err := stream.GetMsg(t.Context(), 1)
	kit.Check(t, err)
	if message.Subject != "notify.deploys" || message.Header.Get(jetstream.MsgIDHeader) != "deploy-1234" {
		t.Errorf("%s %v", message.Subject, message.Header)
	}
}

// TestPublishingExamplesParse: the lines for Python and for a shell are valid, where there is something to
// check that with.
func TestPublishingExamplesParse(t *testing.T) {
	t.Parallel()
	for language, check := range map[string][]string{
		"python": {"python3", "-c", "import ast, sys; ast.parse(open(sys.argv[1]).read())"},
		"sh":     {"sh", "-n"},
	} {
		t.Run(language, func(t *testing.T) {
			file := example(t, language, "example."+language)
			if _, err := exec.LookPath(check[0]); err != nil {
				t.Skip(err)
			}
			runExample(t, nil, check[0], append(check[1:], file)...)
		})
	}
}
