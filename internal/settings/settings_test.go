package settings

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"notifier/test/kit"
)

// setenv sets the environment of one test, on top of the least that a worker needs; "" sets a variable to
// nothing.
func setenv(t *testing.T, settings map[string]string) {
	t.Helper()
	t.Setenv("SLACK_BOT_TOKEN", "xoxb-1")
	t.Setenv("SLACK_CHANNEL", "#alerts")
	for name, value := range settings {
		t.Setenv(name, value)
	}
}

// loaded is Load, closed with the test.
func loaded(t *testing.T) (Settings, error) {
	t.Helper()
	c, err := Load()
	if c.Store.Redis != nil {
		t.Cleanup(func() { _ = c.Store.Redis.Close() })
	}
	return c, err
}

// lines are the problems in an error of Load.
func lines(t *testing.T, err error) []string {
	t.Helper()
	var problems *Problems
	if err == nil || !errors.As(err, &problems) {
		t.Fatalf("%v, expected problems", err)
	}
	return problems.Lines()
}

// TestDefaults holds the defaults against the product's promise.
func TestDefaults(t *testing.T) {
	want := []Variable{
		{"NATS_URL", "nats://127.0.0.1:4222"},
		{"NATS_MODE", ""},
		{"NATS_SUBJECT", "notify.>"},
		{"NATS_STREAM", "NOTIFY"},
		{"NATS_STREAM_MAX_BYTES", "0"},
		{"NATS_CONSUMER", "notifier"},
		{"NATS_REPLICAS", "0"},
		{"NATS_CREDS_FILE", ""},
		{"NATS_NKEY_FILE", ""},
		{"NATS_TLS_CA", ""},
		{"NATS_TLS_CERT", ""},
		{"NATS_TLS_KEY", ""},
		{"REDIS_URL", "redis://127.0.0.1:6379/0"},
		{"REDIS_NAMESPACE", "notifier"},
		{"REDIS_TLS_CA", ""},
		{"REDIS_TLS_CERT", ""},
		{"REDIS_TLS_KEY", ""},
		{"LIMIT_GLOBAL", "100/30m"},
		{"LIMIT_CATEGORY", "10/30m"},
		{"LIMIT_OVERRIDES", ""},
		{"LIMIT_GROUP", ""},
		{"LIMIT_GROUP_OVERRIDES", ""},
		{"LIMIT_RESERVE", ""},
		{"DEDUPE_WINDOW", "24h"},
		{"EVENT_MAX_AGE", "0"},
		{"EVENT_MAX_BYTES", "65536"},
		{"SLACK_BOT_TOKEN", ""},
		{"SLACK_WEBHOOK_URL", ""},
		{"SLACK_CHANNEL", ""},
		{"SLACK_ROUTES", ""},
		{"SLACK_API_URL", ""},
		{"SLACK_MARKUP", "escape"},
		{"SLACK_TIMEOUT", "10s"}, {"SLACK_PACE", "10/10s"},
		{"SEND_CONCURRENCY", "8"},
		{"BATCH_SIZE", "512"},
		{"DEAD_LETTER_SUBJECT", ""},
		{"DEAD_LETTER_MAX_BYTES", "268435456"},
		{"DROPPED_SUBJECT", ""},
		{"DIGEST_INTERVAL", "0"},
		{"DIGEST_CHANNEL", ""},
		{"ADMIN_ADDR", "127.0.0.1:8080"},
		{"ADMIN_TOKEN", ""},
		{"SHUTDOWN_TIMEOUT", "25s"},
		{"LOG_LEVEL", "info"},
		{"LOG_FORMAT", "json"},
	}
	if diff := cmp.Diff(want, Variables()); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	problems := &Problems{}
	if got, want := Read(problems), Default(); got != want || problems.Err() != nil {
		t.Errorf("where nothing is set: %+v and %v, expected the defaults", got, problems.Err())
	}
}

// TestDeadLettersOfTwoStreams go to two subjects, because two streams may not share one.
func TestDeadLettersOfTwoStreams(t *testing.T) {
	for _, test := range []struct{ stream, subject, want string }{
		{"", "", "notify-dead"}, {"NOTIFY", "", "notify-dead"}, {"NOTIFY_B", "", "notify_b-dead"}, {"NOTIFY_B", "mine", "mine"},
		{strings.Repeat("X", 195), "", strings.Repeat("x", 195) + "-dead"},
	} {
		setenv(t, map[string]string{"NATS_STREAM": test.stream, "DEAD_LETTER_SUBJECT": test.subject})
		c, err := loaded(t)
		if err != nil || c.DeadLetter != test.want {
			t.Errorf("stream %q and subject %q: %q and %v, expected %q", test.stream, test.subject, c.DeadLetter, err, test.want)
		}
	}
}

// TestNothingMeansDefault: docker-compose hands on unset variables as empty ones.
func TestNothingMeansDefault(t *testing.T) {
	for _, name := range settingNames() {
		t.Setenv(name, "")
		t.Setenv(name+"_FILE", "")
	}
	problems := &Problems{}
	want := Default()
	want.AdminAddr = "" // the one variable that may be nothing: no admin server
	if diff := cmp.Diff(want, Read(problems)); diff != "" || problems.Err() != nil {
		t.Errorf("%v; environment (-want +got):\n%s", problems.Err(), diff)
	}
}

// TestEveryVariableMayBeInAFile sets each variable through its file, with a line end that is no part of it.
func TestEveryVariableMayBeInAFile(t *testing.T) {
	folder := t.TempDir()
	for _, name := range settingNames() {
		path := filepath.Join(folder, name)
		kit.Check(t, os.WriteFile(path, []byte("value of "+name+"\r\n\n"), 0o600))
		t.Setenv(name+"_FILE", path)
	}
	problems := &Problems{}
	env := Read(problems)
	kit.Check(t, problems.Err())
	for name, value := range byName(env) {
		if value != "value of "+name {
			t.Errorf("%s is %q", name, value)
		}
	}

	t.Run("and not beside it", func(t *testing.T) {
		for _, name := range settingNames() {
			t.Setenv(name, "hunter2")
		}
		problems := &Problems{}
		Read(problems)
		for i, name := range settingNames() {
			if want := name + ": is set, and so is " + name + "_FILE; expected only one of them (an empty one is not set)"; problems.Lines()[i] != want {
				t.Errorf("%q, expected %q", problems.Lines()[i], want)
			}
		}
	})
	t.Run("that can be read", func(t *testing.T) {
		for _, name := range settingNames() {
			t.Setenv(name+"_FILE", filepath.Join(folder, "missing"))
		}
		_, err := loaded(t)
		got := lines(t, err)
		if len(got) != len(settingNames())+1 || got[len(got)-1] != "SLACK_WEBHOOK_URL: is set, and so is SLACK_BOT_TOKEN; expected only one of them" {
			t.Errorf("%d problems, expected one for each of %d variables and one for two ways to Slack:\n%s", len(got), len(settingNames()), strings.Join(got, "\n"))
		}
		for i, name := range settingNames() {
			want := name + "_FILE: stat " + filepath.Join(folder, "missing") + ": no such file or directory; expected a readable file with the value of " + name
			if got[i] != want {
				t.Errorf("%q, expected %q", got[i], want)
			}
		}
	})
}

// TestAnEmptyFileIsAProblem: it must not mean that nothing is set, such as no ADMIN_TOKEN.
func TestAnEmptyFileIsAProblem(t *testing.T) {
	for _, content := range []string{"", "\n", " \r\n\t"} {
		path := filepath.Join(t.TempDir(), "empty")
		kit.Check(t, os.WriteFile(path, []byte(content), 0o600))
		for _, name := range settingNames() {
			t.Run(name, func(t *testing.T) {
				t.Setenv(name+"_FILE", path)
				problems := &Problems{}
				Read(problems)
				want := name + "_FILE: " + path + " is empty; expected a readable file with the value of " + name
				if got := problems.Lines(); len(got) != 1 || got[0] != want {
					t.Errorf("%q: %q, expected %q", content, got, want)
				}
			})
		}
	}
}

func TestWorkerSettings(t *testing.T) {
	setenv(t, map[string]string{
		"LIMIT_GLOBAL": "100/30m0s", "LIMIT_CATEGORY": "10/1h0m0s+1/5000ms", "LIMIT_OVERRIDES": "errors=20/30m+2/10s, deploys = 5/90m,team-a.>=7/60m:60s,team-a.job1=7/60m",
		"LIMIT_GROUP": "40/60m:fixed", "LIMIT_GROUP_OVERRIDES": "team-a = 50/3600s:120s", "LIMIT_RESERVE": "errors=3, team-a.job1 = 2",
		"SLACK_ROUTES": "errors=C0123, deploys = #deploys,team-a.*=#team-a", "SLACK_MARKUP": "allow", "EVENT_MAX_AGE": "1h", "NATS_MODE": "jetstream",
		"LOG_LEVEL": "warn", "LOG_FORMAT": "console", "ADMIN_ADDR": "", "SLACK_TIMEOUT": "1500ms",
		"ADMIN_TOKEN":           "correct-horse-battery",
		"DEAD_LETTER_MAX_BYTES": "1099511627776", "NATS_REPLICAS": "3", "NATS_STREAM_MAX_BYTES": "1048576",
	})
	c, err := loaded(t)
	kit.Check(t, err)
	for what, pair := range map[string][2]any{
		"global limit":    {c.Store.Limits.Global.String(), "100/30m"},
		"category limit":  {c.Store.Limits.Category.String(), "10/1h+1/5s"},
		"override":        {c.Store.Limits.LimitFor("errors").String(), "20/30m+2/10s"},
		"other override":  {c.Store.Limits.LimitFor("deploys").String(), "5/1h30m"},
		"pattern":         {c.Store.Limits.LimitFor("team-a.b.c").String(), "7/1h:1m"},
		"group limit":     {c.Store.Limits.GroupLimit("errors").String(), "40/1h:fixed"},
		"group override":  {c.Store.Limits.GroupLimit("team-a").String(), "50/1h:2m"},
		"reserve":         {fmt.Sprint(c.Store.Limits.Reserve), "map[errors:3 team-a.job1:2]"},
		"routed pattern":  {routeOf(c, "team-a.job1"), "#team-a"},
		"pattern channel": {c.Events.ChannelAllowed("#team-a"), true},
		"no group limit":  {Default().LimitGroup, ""},
		"route":           {routeOf(c, "errors"), "C0123"},
		"other route":     {routeOf(c, "deploys"), "#deploys"},
		"markup":          {c.Slack.AllowMarkup, true},
		"age":             {c.MaxAge, time.Hour},
		"level":           {c.LogLevel.String(), "warn"},
		"console":         {c.LogConsole, true},
		"admin server":    {c.AdminAddr, ""},
		"admin token":     {c.AdminToken, "correct-horse-battery"},
		"time for a post": {c.Slack.Timeout, 1500 * time.Millisecond},
		"default channel": {c.Events.ChannelAllowed("#alerts"), true},
		"routed channel":  {c.Events.ChannelAllowed("C0123"), true},
		"other channel":   {c.Events.ChannelAllowed("#ceo"), false},
		"no channel":      {c.Events.ChannelAllowed(""), false},
		"dead letters":    {c.DeadLetterBytes, int64(1 << 40)},
		"stream":          {c.NATS.StreamBytes, int64(1 << 20)},
		"replicas":        {c.NATS.Replicas, 3},
		"highest cost":    {c.Events.CheckCost("errors", 2), nil},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %v, expected %v", what, pair[0], pair[1])
		}
	}
}

// routeOf is the channel of a category.
func routeOf(s Settings, category string) string {
	channel, _, _ := s.Slack.Routes.Find(category)
	return channel
}

// TestRedisForms are go-redis's own forms of a URL.
func TestRedisForms(t *testing.T) {
	for url, want := range map[string]func(redis.UniversalClient) bool{
		"redis://127.0.0.1:6379/0": func(client redis.UniversalClient) bool {
			one, ok := client.(*redis.Client)
			return ok && one.Options().TLSConfig == nil
		},
		"rediss://me:secret@cache.example:6380/3": func(client redis.UniversalClient) bool {
			one, ok := client.(*redis.Client)
			return ok && one.Options().TLSConfig.ServerName == "cache.example" && one.Options().DB == 3 && one.Options().Password == "secret"
		},
		"redis://one:7000?addr=two:7000&addr=three:7000": func(client redis.UniversalClient) bool {
			cluster, ok := client.(*redis.ClusterClient)
			return ok && slices.Equal(cluster.Options().Addrs, []string{"one:7000", "two:7000", "three:7000"})
		},
		"redis://sentinel:26379?master_name=main&db=2": func(client redis.UniversalClient) bool {
			one, ok := client.(*redis.Client)
			return ok && one.Options().Addr == "FailoverClient" && one.Options().DB == 2
		},
	} {
		t.Run(url, func(t *testing.T) {
			setenv(t, map[string]string{"REDIS_URL": url})
			c, err := loaded(t)
			kit.Check(t, err)
			if !want(c.Store.Redis) {
				t.Errorf("%T, expected another client, or other options", c.Store.Redis)
			}
		})
	}
}

// TestNATSServers may be several, with or without a scheme, with users and TLS.
func TestNATSServers(t *testing.T) {
	for _, list := range []string{
		"nats://one:4222", "one:4222", "one", "nats://one:4222,nats://two:4222", "tls://one, tls://two:4443",
		"nats://me:p%40ss@one:4222", "nats://token@one", "ws://one:80", "wss://one,wss://two:443/path", "nats://[::1]:4222",
	} {
		t.Run(list, func(t *testing.T) {
			setenv(t, map[string]string{"NATS_URL": list})
			c, err := loaded(t)
			if err != nil || c.NATS.URL != list {
				t.Errorf("%q and %v, expected the list as it is", c.NATS.URL, err)
			}
		})
	}
}
