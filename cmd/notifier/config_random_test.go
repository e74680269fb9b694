package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

// TestRandomSettings: whatever the environment holds, there are settings or faults, never a panic, and each fault is
// one line that begins with a variable.
func TestRandomSettings(t *testing.T) {
	for _, name := range settingNames() {
		t.Setenv(name, "") // restored at the end
	}
	known := map[string]bool{}
	for _, name := range settingNames() {
		known[name], known[name+"_FILE"] = true, true
	}
	pieces := rapid.SampledFrom([]string{
		"nats://", "redis://", "rediss://", "https://", "one", ":6379", ":0", "/0", "?", "&", "addr=two:1", "master_name=main",
		"route_by_latency=true", "route_randomly=true", "pool_size=-1", "min_idle_conns=9", "protocol=7", "db=-1", "@", "%zz",
		"10", "/", "30m", "+", "=", ",", "errors", ".", "*", ">", "-", "[", "]", "\x00x", "\n", "é", " ", "1e9", "999999999999999999999",
	})
	value := rapid.OneOf(
		rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(pieces, 0, 8).Draw(t, "pieces"), "") }),
		rapid.String(),
	)
	rapid.Check(t, func(t *rapid.T) {
		for _, name := range settingNames() {
			text := ""
			if rapid.IntRange(0, 2).Draw(t, "set") == 0 {
				text = strings.ReplaceAll(value.Draw(t, name), "\x00", "") // no environment can hold it
			}
			if err := os.Setenv(name, text); err != nil {
				t.Fatal(err)
			}
		}
		c, err := loadConfig()
		if c.redis != nil {
			_ = c.redis.Close()
		}
		var wrong *faults
		if err != nil && !errors.As(err, &wrong) {
			t.Fatalf("%v, expected faults", err)
		}
		if wrong == nil {
			return
		}
		for _, line := range wrong.lines {
			variable, rest, _ := strings.Cut(line, ": ")
			if !known[variable] || rest == "" || strings.ContainsFunc(line, unicode.IsControl) {
				t.Errorf("%q, expected a variable and what is wrong, on one line", line)
			}
		}
	})
}

// TestRandomCommandLines: whatever is typed, the exit code is one of the three, and no command line panics.
func TestRandomCommandLines(t *testing.T) {
	t.Setenv("NATS_MODE", "nonsense") // nothing is started or connected
	t.Setenv("ADMIN_ADDR", "nonsense")
	words := rapid.SampledFrom([]string{
		"serve", "publish", "healthcheck", "version", "errors", "-n", "-n=3", "-rate", "-id", "--id=x", "-json", "-json=no", "-",
		"--", "---", "-=", "-h", "--help", "-h=false", "-é", "", " ", "{}", "-1", "nonsense", "--generate-shell-completion",
	})
	rapid.Check(t, func(t *rapid.T) {
		arguments := append([]string{"notifier"}, rapid.SliceOfN(words, 0, 6).Draw(t, "arguments")...)
		var out, errOut strings.Builder
		code := run(context.Background(), arguments, strings.NewReader("x\n"), &out, &errOut)
		completing := slices.Contains(arguments, "--generate-shell-completion") // a shell asks, and there may be nothing to say
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
