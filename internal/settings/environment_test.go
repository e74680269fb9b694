package settings

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"notifier/test/kit"
)

// origins loads all settings and returns their origins by name.
func origins(t *testing.T) map[string]Origin {
	t.Helper()
	s, list, err := LoadWithOrigins()
	kit.Check(t, err)
	kit.Check(t, s.Store.Redis.Close())
	all := map[string]Origin{}
	for _, o := range list {
		all[o.Name] = o
	}
	return all
}

// docker-compose passes unset variables as empty ones.
func TestEmptyMeansDefault(t *testing.T) {
	for _, v := range Variables() {
		t.Setenv(v.Name, "")
		t.Setenv(v.Name+"_FILE", "")
	}
	setenv(t, nil)
	all := origins(t)
	for _, v := range Variables() {
		want := Origin{Name: v.Name, Source: FromDefault, value: v.Default}
		switch v.Name {
		case "ADMIN_ADDR":
			want.Source, want.value = FromEnvironment, "" // no admin server
		case "SLACK_BOT_TOKEN":
			want.Source, want.value = FromEnvironment, "xoxb-1"
		case "SLACK_CHANNEL":
			want.Source, want.value = FromEnvironment, "#alerts"
		case "DEAD_LETTER_SUBJECT":
			want.value = "notify-dead" // made of NATS_STREAM
		case "DIGEST_CHANNEL":
			want.value = "#alerts" // made of SLACK_CHANNEL
		}
		got := all[v.Name]
		got.secret = ""
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(Origin{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", v.Name, diff)
		}
	}
}

// content returns a valid value of a setting. It returns "" if the setting is a path or has no default.
func content(v Variable) string {
	switch v.Name {
	case "SLACK_CHANNEL", "DIGEST_CHANNEL":
		return "#alerts"
	case "SLACK_BOT_TOKEN":
		return "xoxb-1"
	case "ADMIN_TOKEN":
		return "correct-horse-battery"
	case "SLACK_API_URL":
		return "https://slack.example/api/"
	}
	return v.Default
}

// Each setting can come from its _FILE variable, less trailing line ends. Setting both is a problem.
func TestEveryVariableMayBeInAFile(t *testing.T) {
	folder := t.TempDir()
	want := map[string]string{}
	for _, v := range Variables() {
		if content(v) == "" {
			continue
		}
		path := filepath.Join(folder, v.Name)
		kit.Check(t, os.WriteFile(path, []byte(content(v)+"\r\n\n"), 0o600))
		t.Setenv(v.Name+"_FILE", path)
		want[v.Name] = content(v)
	}
	for name, o := range origins(t) {
		if text, set := want[name]; set && (o.value != text || o.Source != FromFile || o.File != filepath.Join(folder, name)) {
			t.Errorf("%s: %+v, expected %q from its file", name, o, text)
		}
	}
	for _, v := range Variables() {
		t.Setenv(v.Name, "hunter2")
		t.Setenv(v.Name+"_FILE", filepath.Join(folder, "missing"))
	}
	_, err := loaded(t)
	got := lines(t, err)
	for _, v := range Variables() {
		if want := v.Name + ": is set, and so is " + v.Name + "_FILE; expected only one of them"; !slices.Contains(got, want) {
			t.Errorf("no line %q in\n%s", want, strings.Join(got, "\n"))
		}
	}
}

// An empty file must not count as an unset setting: the loss of a secret would go unnoticed.
func TestEmptyFileIsAProblem(t *testing.T) {
	for _, content := range []string{"", "\n", " \r\n\t"} {
		path := filepath.Join(t.TempDir(), "empty")
		kit.Check(t, os.WriteFile(path, []byte(content), 0o600))
		for _, v := range Variables() {
			t.Run(v.Name, func(t *testing.T) {
				t.Setenv(v.Name+"_FILE", path)
				_, err := loaded(t, v.Name)
				want := v.Name + "_FILE: " + path + " is empty; expected a readable file with the value of " + v.Name
				if got := lines(t, err); len(got) != 1 || got[0] != want {
					t.Errorf("%q: %q, expected %q", content, got, want)
				}
			})
		}
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	folder := t.TempDir()
	unreadable := filepath.Join(folder, "unreadable")
	kit.Check(t, os.WriteFile(unreadable, []byte("xoxb-hunter2"), 0))
	large := filepath.Join(folder, "large")
	kit.Check(t, os.WriteFile(large, make([]byte, maxFileBytes+1), 0o600))
	for path, want := range map[string]string{
		folder:                        folder + " is not a regular file of at most 1048576 bytes",
		large:                         large + " is not a regular file of at most 1048576 bytes",
		unreadable:                    "open " + unreadable + ": permission denied",
		"/a\nNATS_URL: forged":        "stat /a?NATS_URL: forged: no such file or directory",
		"xoxb-hunter2":                "looks like a secret or a URL itself, and not like a path",
		strings.Repeat("hunter2X", 5): "looks like a secret or a URL itself, and not like a path",
	} {
		if path == unreadable && os.Geteuid() == 0 {
			continue // root reads everything
		}
		t.Setenv("SLACK_BOT_TOKEN_FILE", path)
		_, err := loaded(t, GroupSlack)
		want := "SLACK_BOT_TOKEN_FILE: " + want + "; expected a readable file with the value of SLACK_BOT_TOKEN"
		if got := lines(t, err); len(got) < 1 || got[0] != want {
			t.Errorf("%q: %q, expected %q", path, got, want)
		}
	}
}

// A command sees only the problems of the settings that it needs, and does not open the files of others.
func TestNeeds(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for name, text := range map[string]string{
		"SLACK_BOT_TOKEN_FILE": missing, "SLACK_ROUTES": "nonsense", "BATCH_SIZE": "nonsense", "NATS_SUBJECT": "nonsense",
		"ADMIN_TOKEN": "short", "ADMIN_ADDR": "127.0.0.1:1", "LIMIT_CATEGORY": "nonsense", "REDIS_NAMESPACE": "{}",
		"NATS_TLS_CERT": missing, "LIMIT_RESERVE": "a=1000",
	} {
		t.Setenv(name, text)
	}
	for _, test := range []struct {
		needs []string
		wrong []string // variables with a problem
	}{
		{[]string{"ADMIN_ADDR"}, nil},
		{[]string{GroupRedis}, []string{"REDIS_NAMESPACE"}},
		{[]string{GroupLimits}, []string{"LIMIT_CATEGORY", "LIMIT_RESERVE"}},
		{[]string{GroupSlack}, []string{"SLACK_BOT_TOKEN_FILE", "SLACK_CHANNEL", "SLACK_ROUTES"}},
		{[]string{GroupWorker}, []string{"BATCH_SIZE"}},
		{[]string{"LIMIT_RESERVE", "LIMIT_GLOBAL"}, []string{"LIMIT_RESERVE"}},
		{[]string{"LIMIT_RESERVE"}, nil}, // not checked: the global limit is not needed
		{nil, []string{"NATS_SUBJECT", "NATS_TLS_CERT", "REDIS_NAMESPACE", "LIMIT_CATEGORY", "LIMIT_RESERVE", "SLACK_BOT_TOKEN_FILE", "SLACK_CHANNEL", "SLACK_ROUTES", "BATCH_SIZE", "ADMIN_TOKEN"}},
	} {
		s, err := loaded(t, test.needs...)
		var wrong []string
		if err != nil {
			for _, line := range lines(t, err) {
				name, _, _ := strings.Cut(line, ":")
				wrong = append(wrong, name)
			}
		}
		if !slices.Equal(wrong, test.wrong) || err != nil && s.Store.Redis != nil {
			t.Errorf("needs %q: %v, expected problems of %q", test.needs, err, test.wrong)
		}
	}
}

// Settings that a command does not need keep their defaults, whatever the environment says.
func TestNotNeededMeansDefault(t *testing.T) {
	setenv(t, map[string]string{"LIMIT_GLOBAL": "7/1m", "NATS_STREAM": "OTHER", "ADMIN_TOKEN": "correct-horse-battery"})
	s, err := loaded(t, GroupRedis)
	kit.Check(t, err)
	if s.Store.Redis == nil || s.Store.Guard != nil {
		t.Error("expected the client of a command")
	}
	if s.Store.Limits.Global.String() != "100/30m" || s.NATS.Stream != "NOTIFY" || s.AdminToken != "" || s.Slack.Token != "" {
		t.Errorf("%+v, expected defaults", s.Store.Limits)
	}
	s, err = loaded(t, GroupLimits, GroupNATS, GroupAdmin)
	kit.Check(t, err)
	if s.Store.Redis != nil || s.Store.Limits.Global.String() != "7/1m" || s.DeadLetter != "other-dead" || s.AdminToken == "" {
		t.Errorf("%v %s %q", s.Store.Redis, s.Store.Limits.Global, s.DeadLetter)
	}
	if s, err = loaded(t); err != nil || s.Store.Guard == nil {
		t.Errorf("%v, expected the guarded client of a worker", err)
	}
}

// A value passed to LoadWith is validated. It replaces the variable and its file, which are not read.
func TestInstead(t *testing.T) {
	t.Setenv("LIMIT_GLOBAL", "nonsense")
	t.Setenv("LIMIT_CATEGORY_FILE", "/missing")
	s, err := LoadWith(map[string]string{"LIMIT_GLOBAL": "5/1m", "LIMIT_CATEGORY": "3/1m"}, GroupLimits)
	if err != nil || s.Store.Limits.Global.String() != "5/1m" || s.Store.Limits.Category.String() != "3/1m" {
		t.Errorf("%v: %+v, expected the texts that were given", err, s.Store.Limits)
	}
	for _, given := range []string{"5", ""} {
		_, err = LoadWith(map[string]string{"LIMIT_GLOBAL": given}, GroupLimits)
		var problems = err.(*Problems)
		if _, found := problems.Line("LIMIT_GLOBAL"); len(problems.Lines()) != 2 || !found {
			t.Errorf("%q, expected problems of the file and of the text that was given", problems.Lines())
		}
	}
}

func TestIsSet(t *testing.T) {
	if IsSet("LOG_FORMAT") {
		t.Error("it is not set")
	}
	t.Setenv("LOG_FORMAT_FILE", "/somewhere")
	if !IsSet("LOG_FORMAT") {
		t.Error("it is set by a file")
	}
}

// A secret file that other users can read or write gives a warning, whichever setting names it. Access by the
// group is fine.
func TestExposedFiles(t *testing.T) {
	for mode, want := range map[os.FileMode]bool{0o660: false, 0o644: true, 0o602: true, 0o711: false} {
		folder := t.TempDir()
		file := func(name, content string) string {
			path := filepath.Join(folder, name)
			kit.Check(t, os.WriteFile(path, []byte(content), 0o600))
			kit.Check(t, os.Chmod(path, mode))
			return path
		}
		t.Setenv("SLACK_BOT_TOKEN_FILE", file("token", "xoxb-1"))
		t.Setenv("REDIS_URL_FILE", file("redis", "redis://me:word@127.0.0.1"))
		t.Setenv("NATS_NKEY_FILE", file("nkey", "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"))
		t.Setenv("LIMIT_GLOBAL_FILE", file("limit", "10/30m")) // no secret
		t.Setenv("SLACK_CHANNEL", "C1")
		s, err := loaded(t)
		kit.Check(t, err)
		var expected []string
		if want {
			for _, name := range []string{"NATS_NKEY_FILE: " + folder + "/nkey", "REDIS_URL_FILE: " + folder + "/redis", "SLACK_BOT_TOKEN_FILE: " + folder + "/token"} {
				expected = append(expected, fmt.Sprintf("%s has mode %04o, so other users may read or write it", name, mode))
			}
		}
		if diff := cmp.Diff(expected, s.Exposed); diff != "" {
			t.Errorf("mode %04o (-want +got):\n%s", mode, diff)
		}
	}
}
