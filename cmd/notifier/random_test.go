package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestRandomCommandLines: whatever is typed, the exit code is one of the three, and no command line panics.
func TestRandomCommandLines(t *testing.T) {
	t.Setenv("NATS_SUBJECT", "nonsense") // nothing is started or connected
	t.Setenv("ADMIN_ADDR", "nonsense")
	words := rapid.SampledFrom([]string{
		"serve", "publish", "healthcheck", "version", "errors", "-n", "-n=3", "-wait", "-id", "--id=x", "-json", "-json=no", "-",
		"--", "---", "-=", "-h", "--help", "-h=false", "-é", "", " ", "{}", "-1", "nonsense", "--generate-shell-completion",
	})
	rapid.Check(t, func(t *rapid.T) {
		arguments := append([]string{"notifier"}, rapid.SliceOfN(words, 0, 6).Draw(t, "arguments")...)
		var out, errOut strings.Builder
		code := run(context.Background(), arguments, strings.NewReader("x\n"), &out, &errOut)
		// shell completion may print nothing
		completing := slices.Contains(arguments, "--generate-shell-completion")
		switch {
		case code == exitDone && !completing && (out.Len() == 0 || errOut.Len() > 0):
			t.Errorf("exit code 0 with %q and %q, expected something on stdout alone", out.String(), errOut.String())
		case code == exitUsage && !strings.Contains(errOut.String(), "notifier: "):
			t.Errorf("exit code 2 with %q, expected a reason", errOut.String())
		case code != exitDone && code != exitUsage:
			t.Errorf("exit code %d, expected 0 or 2", code)
		}
	})
}
