package main

import (
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"notifier/internal/devstack"
	"notifier/internal/testkit"
)

// TestPublishInterrupted: Ctrl-C ends a publisher at once, whatever it waits for, and it says how far it came.
func TestPublishInterrupted(t *testing.T) {
	t.Parallel()
	server, err := devstack.StartNATS(ephemeralAddr, t.TempDir())
	testkit.Check(t, err)
	defer server.Close()
	connection, err := nats.Connect(server.URL())
	testkit.Check(t, err)
	defer connection.Close()
	createStreams(t, testkit.JetStream(t, server.URL()))
	for name, test := range map[string]struct {
		arguments []string
		typed     string
	}{
		"while nobody types":            {[]string{"-"}, "disk full\n"},
		"while nobody types JSON":       {[]string{"-json", "-"}, `{"text":"disk full"}`},
		"while the rate makes it wait":  {[]string{"-n", "1000", "-rate", "0.001"}, ""},
		"while lines wait for the rate": {[]string{"-rate", "0.001", "-"}, "disk full\ndisk full\n"},
	} {
		t.Run(name, func(t *testing.T) {
			inbox := "_INBOX_" + strings.ReplaceAll(name, " ", "_")
			acknowledged, err := connection.SubscribeSync(inbox + ".>")
			testkit.Check(t, err)
			defer func() { _ = acknowledged.Unsubscribe() }()
			testkit.Check(t, connection.Flush())
			interrupted := func() (out *output) {
				command := exec.Command("notifier", append([]string{"publish", "errors", "-inbox-prefix", inbox}, test.arguments...)...)
				keyboard, err := command.StdinPipe()
				testkit.Check(t, err)
				defer keyboard.Close()
				p := startCommand(t, command, map[string]string{"NATS_URL": server.URL()})
				_, err = io.WriteString(keyboard, test.typed)
				testkit.Check(t, err)
				_, err = acknowledged.NextMsg(testkit.Patience)
				testkit.Check(t, err)
				p.terminate(t)
				p.ends(t, exitFailed)
				if got := p.errOut.String(); got != "notifier: interrupted\n" {
					t.Errorf("%q on stderr, expected that it was interrupted", got)
				}
				return &p.out
			}
			// It may be interrupted before it has seen the acknowledgement.
			testkit.Eventually(t, "it says how far it came", func() bool {
				return len(interrupted().lines("1 published to notify.errors")) == 1
			})
		})
	}
}
