package settings

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"notifier/internal/ratelimit"
	"notifier/internal/status/digest"
	"notifier/internal/streams"
	"notifier/test/kit"
)

// TestMain removes all settings from the environment, and fails if a test leaves a Redis client open.
func TestMain(m *testing.M) {
	for _, v := range Variables() {
		_ = os.Unsetenv(v.Name)
		_ = os.Unsetenv(v.Name + "_FILE")
	}
	goleak.VerifyTestMain(m)
}

// setenv sets the environment of one test: the settings that a worker requires, then texts.
func setenv(t *testing.T, texts map[string]string) {
	t.Helper()
	t.Setenv("SLACK_BOT_TOKEN", "xoxb-1")
	t.Setenv("SLACK_CHANNEL", "#alerts")
	for name, text := range texts {
		t.Setenv(name, text)
	}
}

// loaded calls Load and closes the Redis client after the test.
func loaded(t *testing.T, needs ...string) (Settings, error) {
	t.Helper()
	s, err := Load(needs...)
	if s.Store.Redis != nil {
		t.Cleanup(func() { _ = s.Store.Redis.Close() })
	}
	return s, err
}

// from calls From with texts on top of the settings that a worker requires. It closes the Redis client after
// the test.
func from(t *testing.T, texts map[string]string) (Settings, error) {
	t.Helper()
	all := map[string]string{"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_CHANNEL": "#alerts"}
	maps.Copy(all, texts)
	s, err := From(all)
	if s.Store.Redis != nil {
		t.Cleanup(func() { _ = s.Store.Redis.Close() })
	}
	return s, err
}

// lines returns the problems in err, one per line. It fails the test if err holds none.
func lines(t *testing.T, err error) []string {
	t.Helper()
	var problems *Problems
	if err == nil || !errors.As(err, &problems) {
		t.Fatalf("%v, expected problems", err)
	}
	return problems.Lines()
}

// Struct tags are written by hand, and a misspelt one would disable a check.
func TestTags(t *testing.T) {
	t.Parallel()
	groups := []string{GroupNATS, GroupRedis, GroupLimits, GroupSlack, GroupWorker, GroupAdmin}
	holdsSecret := regexp.MustCompile(`_URL$|_TOKEN$|_KEY$|_(CREDS|NKEY)_FILE$`)
	for _, v := range variablesIn(&Settings{}) {
		if v.Default != "" {
			if err := v.parse(v.Default); err != nil {
				t.Errorf("%s: the default %s", v.Name, err)
			}
		}
		kind := v.tag.Get("kind")
		if _, isText := v.field.Interface().(string); isText && kinds[kind] == nil && files[kind].expected == "" {
			t.Errorf("%s: kind %q has no check", v.Name, kind)
		}
		if !slices.Contains(groups, v.tag.Get("group")) {
			t.Errorf("%s: group %q", v.Name, v.tag.Get("group"))
		}
		rule := v.tag.Get("secret")
		if (rule != "") != holdsSecret.MatchString(v.Name) || !slices.Contains([]string{"", "never", "servers", "redis", "url", "file"}, rule) {
			t.Errorf("%s: secret %q", v.Name, rule)
		}
		if hash, tagged := v.tag.Lookup("hash"); tagged && hash != "true" {
			t.Errorf("%s: hash %q", v.Name, hash)
		}
		switch v.field.Interface().(type) {
		case bool:
			if len(v.words()) != 2 {
				t.Errorf("%s: enum %q", v.Name, v.words())
			}
		case int, int64, time.Duration:
			if !regexp.MustCompile(`^(0\|)?\w+\.\.\w+$`).MatchString(v.tag.Get("range")) {
				t.Errorf("%s: range %q", v.Name, v.tag.Get("range"))
			}
		}
	}
}

// The range tags repeat bounds of the packages that use the values.
func TestRangesAreThoseOfTheirUsers(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"BATCH_SIZE":      fmt.Sprint("1..", ratelimit.MaxBatch),
		"NATS_REPLICAS":   fmt.Sprint("0..", streams.MostReplicas),
		"EVENT_MAX_BYTES": fmt.Sprint("1..", LargestEvent),
		"DIGEST_INTERVAL": fmt.Sprintf("0|1m..%dh", int(digest.MaxInterval.Hours())),
	}
	for _, v := range variablesIn(&Settings{}) {
		if text, found := want[v.Name]; found && v.tag.Get("range") != text {
			t.Errorf("%s: range %s, expected %s", v.Name, v.tag.Get("range"), text)
		}
	}
}

func TestValuesReachTheirFields(t *testing.T) {
	s, err := from(t, map[string]string{
		"LIMIT_GLOBAL": "100/30m0s", "LIMIT_CATEGORY": "10/1h0m0s+1/5000ms",
		"LIMIT_OVERRIDES": "errors=20/30m+2/10s, deploys = 5/90m,team-a.>=7/60m:60s,team-a.job1=7/60m",
		"LIMIT_GROUP":     "40/60m:fixed", "LIMIT_GROUP_OVERRIDES": "team-a = 50/3600s:120s", "LIMIT_RESERVE": "errors=3, team-a.job1 = 2",
		"SLACK_ROUTES": "errors=C0123, deploys = #deploys,team-a.*=#team-a", "SLACK_MARKUP": "allow", "EVENT_MAX_AGE": "1h",
		"LOG_LEVEL": "warn", "LOG_FORMAT": "console", "ADMIN_ADDR": "", "SLACK_TIMEOUT": "1500ms",
		"ADMIN_TOKEN": "correct-horse-battery", "NATS_REPLICAS": "3", "DIGEST_INTERVAL": "1h", "DIGEST_CHANNEL": "#digest",
		"DEAD_LETTER_MAX_BYTES": "1099511627776", "NATS_STREAM_MAX_BYTES": "1048576",
	})
	kit.Check(t, err)
	route, _, _ := s.Slack.Routes.Find("team-a.job1")
	for what, pair := range map[string][2]any{
		"global limit":    {s.Store.Limits.Global.String(), "100/30m"},
		"override":        {s.Store.Limits.LimitFor("errors").String(), "20/30m+2/10s"},
		"pattern":         {s.Store.Limits.LimitFor("team-a.b.c").String(), "7/1h:1m"},
		"group limit":     {s.Store.Limits.GroupLimit("errors").String(), "40/1h:fixed"},
		"reserve":         {fmt.Sprint(s.Store.Limits.Reserve), "map[errors:3 team-a.job1:2]"},
		"pace":            {s.Store.Limits.Pace.String(), "10/10s"},
		"route":           {route, "#team-a"},
		"channels":        {fmt.Sprint(s.Channels()), "[#alerts #deploys #digest #team-a C0123]"},
		"markup":          {s.Slack.AllowMarkup, true},
		"level":           {s.LogLevel.String(), "warn"},
		"console":         {s.LogConsole, true},
		"admin server":    {s.AdminAddr, ""},
		"admin token":     {s.AdminToken, "correct-horse-battery"},
		"time for a post": {s.Slack.Timeout, 1500 * time.Millisecond},
		"digest":          {s.Digest, time.Hour},
		"default channel": {s.Events.ChannelAllowed("#alerts"), true},
		"routed channel":  {s.Events.ChannelAllowed("C0123"), true},
		"other channel":   {s.Events.ChannelAllowed("#ceo"), false},
		"dead letters":    {s.DeadLetterBytes, int64(1 << 40)},
		"cost":            {s.Events.CheckCost("errors", 2), nil},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %v, expected %v", what, pair[0], pair[1])
		}
	}
	if s.Events.CheckCost("errors", 3) == nil {
		t.Error("a cost above a tier is allowed")
	}
	s, err = from(t, nil)
	if err != nil || s.DigestChannel != "#alerts" || s.LogConsole || s.Slack.AllowMarkup || len(s.Channels()) != 1 {
		t.Errorf("defaults: %v, %q", err, s.DigestChannel)
	}
}

// Streams must not overlap in subjects, so each stream has its own default subject for dead letters.
func TestDeadLettersOfTwoStreams(t *testing.T) {
	for _, test := range []struct{ stream, subject, want string }{
		{"NOTIFY", "", "notify-dead"}, {"NOTIFY_B", "", "notify_b-dead"}, {"NOTIFY_B", "mine", "mine"},
		{strings.Repeat("X", 195), "", strings.Repeat("x", 195) + "-dead"},
	} {
		s, err := from(t, map[string]string{"NATS_STREAM": test.stream, "DEAD_LETTER_SUBJECT": test.subject})
		if err != nil || s.DeadLetter != test.want {
			t.Errorf("stream %q and subject %q: %q and %v, expected %q", test.stream, test.subject, s.DeadLetter, err, test.want)
		}
	}
}

// The URL selects the kind of client. Its pool holds at least SEND_CONCURRENCY connections, whatever the URL
// says: that many posts may wait for a distant Redis at once.
func TestRedisForms(t *testing.T) {
	for url, want := range map[string]func(redis.UniversalClient) bool{
		"redis://127.0.0.1:6379/0?pool_size=10&max_active_conns=20": func(client redis.UniversalClient) bool {
			one, ok := client.(*redis.Client)
			if !ok {
				return false
			}
			options := one.Options()
			return options.TLSConfig == nil && options.PoolSize >= 128 && options.MaxActiveConns >= 128
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
			s, err := from(t, map[string]string{"REDIS_URL": url, "SEND_CONCURRENCY": "128"})
			kit.Check(t, err)
			if !want(s.Store.Redis) {
				t.Errorf("%T, expected another client, or other options", s.Store.Redis)
			}
		})
	}
}

func TestShown(t *testing.T) {
	t.Parallel()
	const marker = "hunter2"
	for _, test := range []struct{ rule, value, want string }{
		{"never", "xoxb-" + marker, "set"},
		{"never", "", "(none)"},
		{"servers", "nats://me:" + marker + "@one:4222, " + marker + "@two", "nats://one:4222, nats://two"},
		{"redis", "redis://me:" + marker + "@one:6379/3?password=" + marker + "&addr=" + marker + "@two:6379&master_name=m", "redis://one:6379/3?master_name=m&addr=two:6379"},
		{"redis", "::" + marker, "?"},
		{"url", "https://me:" + marker + "@slack.example/" + marker + "?" + marker, "https://slack.example/..."},
		{"url", "%" + marker, "?"},
		{"", "a\nb", "a?b"},
		{"misspelt", "xoxb-" + marker, "set"},
	} {
		if got := (Origin{secret: test.rule, value: test.value}).Shown(); got != test.want {
			t.Errorf("%s %q is shown as %q, expected %q", test.rule, test.value, got, test.want)
		}
	}
}

// A string setting without a known kind is rejected, not taken for a path.
func TestUnknownKind(t *testing.T) {
	t.Parallel()
	text := ""
	v := variable{tag: `kind:"misspelt"`, field: reflect.ValueOf(&text).Elem()}
	if err := v.parse("a"); err == nil || err.Error() != `has no check for kind "misspelt"` {
		t.Errorf("%v", err)
	}
}

func TestFromKnowsItsNames(t *testing.T) {
	_, err := from(t, map[string]string{"LIMIT_GLOBL": "5/1m"})
	if got := lines(t, err); len(got) != 1 || got[0] != "LIMIT_GLOBL: is not a setting" {
		t.Errorf("%q", got)
	}
}
