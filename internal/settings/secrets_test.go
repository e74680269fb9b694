package settings

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"notifier/test/kit"
)

// secretTexts lists secrets that operators put into the wrong variable. All contain hunter2.
var secretTexts = []string{
	"xoxb-1-hunter2", "xapp-1-hunter2", "https://hooks.slack.com/services/T/B/hunter2", "nats://me:hunter2@one:bad",
	"redis://me:hunter2@one:bad/x", "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6hunter2", "0123456789abcdef0123hunter2abcdef0", "eyJ0eXAi.hunter2.x",
	"-----BEGIN PRIVATE KEY-----hunter2",
}

// No problem shows a secret, whether one variable or file contains it or all of them do.
func TestNoProblemShowsASecret(t *testing.T) {
	folder := t.TempDir()
	for _, v := range Variables() {
		for i, secret := range secretTexts {
			for _, text := range []string{secret, "errors=" + secret} {
				t.Setenv(v.Name, text)
				t.Setenv(v.Name+"_FILE", "")
				hidesSecret(t, v.Name, text)
				t.Setenv(v.Name, "")
				t.Setenv(v.Name+"_FILE", text)
				hidesSecret(t, v.Name+"_FILE", text)
			}
			path := filepath.Join(folder, v.Name+string(rune('a'+i)))
			kit.Check(t, os.WriteFile(path, []byte(secret+"\n"), 0o600))
			t.Setenv(v.Name+"_FILE", path)
			hidesSecret(t, v.Name+"_FILE", "a file with "+secret)
			t.Setenv(v.Name+"_FILE", "")
		}
	}
	for _, suffix := range []string{"", "_FILE"} {
		for _, secret := range secretTexts {
			for _, text := range []string{`"` + secret + `"`, "\ufeff" + secret, secret + "\r", "errors=" + secret} {
				for _, v := range Variables() {
					t.Setenv(v.Name+suffix, text)
				}
				hidesSecret(t, "every variable"+suffix, text)
			}
		}
		for _, v := range Variables() {
			t.Setenv(v.Name+suffix, "")
		}
	}
}

func hidesSecret(t *testing.T, name, text string) {
	t.Helper()
	s, err := Load()
	if s.Store.Redis != nil {
		_ = s.Store.Redis.Close()
	}
	if err != nil && strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%s=%q: %s", name, text, err)
	}
}

// Load returns settings or problems for any environment. Each problem is one line that starts with the name
// of a variable.
func TestRandomSettings(t *testing.T) {
	known := map[string]bool{}
	for _, v := range Variables() {
		t.Setenv(v.Name, "") // restored at the end
		known[v.Name], known[v.Name+"_FILE"] = true, true
	}
	pieces := rapid.SampledFrom([]string{
		"nats://", "redis://", "rediss://", "https://", "one", ":6379", ":0", "/0", "?", "&", "addr=two:1", "master_name=main",
		"route_by_latency=true", "route_randomly=true", "pool_size=-1", "min_idle_conns=9", "protocol=7", "db=-1", "@", "%zz",
		"10", "/", "30m", "+", "=", ",", "errors", ".", "*", ">", "-", "[", "]", "\n", "é", " ", "1e9", "999999999999999999999",
		"xoxb-hunter2", "nats://me:hunter2@", "\"", "\ufeff",
	})
	value := rapid.OneOf(
		rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(pieces, 0, 8).Draw(t, "pieces"), "") }),
		rapid.String(),
	)
	rapid.Check(t, func(t *rapid.T) {
		for _, v := range Variables() {
			text := ""
			if rapid.IntRange(0, 2).Draw(t, "set") == 0 {
				text = strings.ReplaceAll(value.Draw(t, v.Name), "\x00", "") // invalid in an environment
			}
			if err := os.Setenv(v.Name, text); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Load()
		if s.Store.Redis != nil {
			_ = s.Store.Redis.Close()
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
			if !known[variable] || rest == "" || strings.ContainsFunc(line, unicode.IsControl) || strings.Contains(line, "hunter2") {
				t.Errorf("%q, expected a variable and its problem, on one line without secrets", line)
			}
		}
	})
}
