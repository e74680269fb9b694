//go:build !production

package main

import (
	"context"
	"io"
	"strings"
	"testing"

	"notifier/internal/devstack"
	"notifier/internal/testkit"
)

// TestPublishInterrupted: Ctrl-C ends a publisher at once, whatever it waits for, and it says how far it came.
func TestPublishInterrupted(t *testing.T) {
	server, err := devstack.StartNATS(ephemeralAddr, t.TempDir())
	testkit.Check(t, err)
	defer server.Close()
	t.Setenv("NATS_URL", server.URL())
	t.Setenv("NATS_MODE", "core")
	for name, arguments := range map[string][]string{
		"while nobody types":            {"publish", "errors", "-"},
		"while nobody types JSON":       {"publish", "errors", "-json", "-"},
		"while the rate makes it wait":  {"publish", "errors", "-n", "1000", "-rate", "0.001"},
		"while lines wait for the rate": {"publish", "errors", "-rate", "0.001", "-"},
	} {
		t.Run(name, func(t *testing.T) {
			keyboard, typed := io.Pipe()
			ctx, cancel := context.WithCancel(context.Background())
			var out, errOut output
			code := make(chan int, 1)
			go func() {
				code <- run(ctx, append([]string{"notifier"}, arguments...), keyboard, &out, &errOut)
			}()
			if strings.HasPrefix(name, "while lines") {
				for range 2 {
					if _, err := io.WriteString(typed, "disk full\n"); err != nil {
						t.Fatal(err)
					}
				}
			}
			cancel()
			if got := <-code; got != exitFailed {
				t.Errorf("exit code %d, expected 1", got)
			}
			if got := errOut.String(); got != "notifier: interrupted\n" {
				t.Errorf("%q on stderr, expected that it was interrupted", got)
			}
			if got := out.lines(" published to notify.errors"); len(got) != 1 {
				t.Errorf("%q, expected how far it came", out.String())
			}
			_ = typed.Close() // as the end of the process does
		})
	}
}
