package settings

import (
	"errors"
	"os"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

// TestRandomSettings: whatever the environment holds, there are settings or problems, never a panic, and each
// problem is one line that begins with a variable.
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
		c, err := Load()
		if c.Store.Redis != nil {
			_ = c.Store.Redis.Close()
		}
		var problems *Problems
		if err != nil && !errors.As(err, &problems) {
			t.Fatalf("%v, expected problems", err)
		}
		if problems == nil {
			return
		}
		for _, line := range problems.Lines() {
			variable, rest, _ := strings.Cut(line, ": ")
			if !known[variable] || rest == "" || strings.ContainsFunc(line, unicode.IsControl) {
				t.Errorf("%q, expected a variable and what is wrong, on one line", line)
			}
		}
	})
}
