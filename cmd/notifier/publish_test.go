package main

import (
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

// TestPublishInterrupted: Ctrl-C ends a publisher at once, whatever it waits for, and it says how far it
// came.
func TestPublishInterrupted(t *testing.T) {
	t.Parallel()
	server, err := devstack.StartNATS(ephemeralAddr, t.TempDir())
	kit.Check(t, err)
	defer server.Close()
	connection, err := nats.Connect(server.URL())
	kit.Check(t, err)
	defer connection.Close()
	createStreams(t, kit.JetStream(t, server.URL()))
	for name, test := range map[string]struct {
		arguments []string
		typed     string
	}{
		"while nobody types":            {[]string{"-"}, "disk full\n"},
		"while the rate makes it wait":  {[]string{"-n", "1000", "-rate", "0.001"}, ""},
		"while lines wait for the rate": {[]string{"-rate", "0.001", "-"}, "disk full\ndisk full\n"},
	} {
		t.Run(name, func(t *testing.T) {
			inbox := "_INBOX_" + strings.ReplaceAll(name, " ", "_")
			acknowledged, err := connection.SubscribeSync(inbox + ".>")
			kit.Check(t, err)
			defer func() { _ = acknowledged.Unsubscribe() }()
			kit.Check(t, connection.Flush())
			interrupted := func() (out *output) {
				command := exec.Command("notifier", append([]string{"publish", "errors", "-inbox-prefix", inbox}, test.arguments...)...)
				keyboard, err := command.StdinPipe()
				kit.Check(t, err)
				defer keyboard.Close()
				p := startCommand(t, command, map[string]string{"NATS_URL": server.URL()})
				_, err = io.WriteString(keyboard, test.typed)
				kit.Check(t, err)
				_, err = acknowledged.NextMsg(kit.Patience)
				kit.Check(t, err)
				p.terminate(t)
				p.ends(t, exitFailed)
				if got := p.errOut.String(); got != "notifier: interrupted\n" {
					t.Errorf("%q on stderr, expected that it was interrupted", got)
				}
				return &p.out
			}
			// It may be interrupted before it has seen the acknowledgement.
			kit.Eventually(t, "it says how far it came", func() bool {
				return len(interrupted().lines("1 published to notify.errors")) == 1
			})
		})
	}
}

// TestDryRunInterrupted: Ctrl-C ends a dry run after it has shown the lines read so far.
func TestDryRunInterrupted(t *testing.T) {
	t.Parallel()
	command := exec.Command("notifier", "publish", "errors", "-dry-run", "-")
	keyboard, err := command.StdinPipe()
	kit.Check(t, err)
	defer keyboard.Close()
	p := startCommand(t, command, nil)
	_, err = io.WriteString(keyboard, "disk full\n")
	kit.Check(t, err)
	kit.Eventually(t, "the line is read", func() bool {
		return len(p.out.lines("line 1: would be posted to ")) == 1
	})
	p.terminate(t)
	p.ends(t, exitFailed)
	if got := p.errOut.String(); got != "notifier: interrupted\n" {
		t.Errorf("%q on stderr, expected that it was interrupted", got)
	}
}

// TestLineAboveServerLimit: the line that the server rejects is named; those before it are published.
func TestLineAboveServerLimit(t *testing.T) {
	t.Parallel()
	js, env := startWithStreams(t)
	command := exec.Command("notifier", "publish", "errors", "-")
	command.Stdin = strings.NewReader("disk full\n\n" + strings.Repeat("x", 2_000_000) + "\nnever read\n")
	p := startCommand(t, command, env)
	p.ends(t, exitFailed)
	const want = "notifier: standard input: line 3: payload has 2000000 bytes, " +
		"the server accepts at most 1048576 with headers\n"
	if got := p.errOut.String(); got != want {
		t.Errorf("%q, expected %q", got, want)
	}
	if n := messages(t, js, "NOTIFY"); n != 1 || len(p.out.lines("1 published to notify.errors")) != 1 {
		t.Errorf("%d events and %q, expected one", n, p.out.String())
	}
}
