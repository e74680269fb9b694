package settings

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"notifier/internal/testkit"
)

// Sentences of several mistakes.
const (
	quoted   = "begins and ends with a quotation mark; expected none: docker run --env-file, systemd's and other files keep them as part of the value"
	lineEnd  = "ends with a line end, as those of files that were written on Windows do; expected none: convert the file with dos2unix"
	units    = "units are h, m, s and ms: a day is 24h, five minutes are 5m"
	escapes  = "in a password # / ? @ and % are written %23 %2F %3F %40 and %25"
	anyRedis = "is not a Redis URL, expected redis://[user:password@]host:port/db, rediss:// for TLS, addr= parameters for Cluster or master_name= for Sentinel"
)

// mistakes are values as people write them, and how the line about each ends: with what helps. What is wrong in general, and for
// each variable, is in badSettings.
var mistakes = []struct{ variable, value, want string }{
	{"LIMIT_GLOBAL", "\"10/30m\"", quoted},
	{"LIMIT_GLOBAL", "'10/30m'", quoted},
	{"LIMIT_GLOBAL", "\u201c10/30m\u201d", "'“' only looks like a character of ASCII: type it again"},
	{"LIMIT_GLOBAL", "10/30m\r", lineEnd},
	{"LIMIT_GLOBAL", "\ufeff10/30m", "begins with a byte order mark, which cannot be seen; expected none: save the file as UTF-8 without it"},
	{"LIMIT_GLOBAL", "10/30min", units},
	{"LIMIT_GLOBAL", "10/30", "30 has no unit: 30s are seconds, 30m minutes, 30h hours"},
	{"LIMIT_GLOBAL", "10 / 30m", "it has white space inside: write it without, such as 10/30m"},
	{"LIMIT_GLOBAL", "10per30m", "COUNT and DURATION have a / between them, such as 10/30m"},
	{"LIMIT_GLOBAL", "10 per 30m", "COUNT and DURATION have a / between them, such as 10/30m"},
	{"LIMIT_GLOBAL", "10 every hour", "COUNT and DURATION have a / between them, such as 10/30m"},
	{"LIMIT_GLOBAL", "30m/50", "COUNT and DURATION are swapped; write 50/30m"},
	{"LIMIT_CATEGORY", "1h30m / 50+10s/2", "COUNT and DURATION are swapped; write 50/1h30m+2/10s"},
	{"LIMIT_OVERRIDES", "deploys=5/1h,errors=30m/50", "COUNT and DURATION are swapped; write 50/30m"},
	{"SLACK_PACE", "10s/10", "COUNT and DURATION are swapped; write 10/10s"},
	{"LIMIT_GLOBAL", "50%/30m", "a share in percent is not possible: COUNT is a number of messages"},
	{"LIMIT_GLOBAL", "0/30m", "0 would send nothing at all; notifier mute silences a category for a while"},
	{"LIMIT_GLOBAL", "unlimited", "a limit cannot be switched off; one that practically never refuses is 1000000/1m:1m"},
	{"LIMIT_GLOBAL", "off", "a limit cannot be switched off; one that practically never refuses is 1000000/1m:1m"},
	{"LIMIT_GLOBAL", "1,000/30m", "COUNT is written in digits alone, such as 1000"},
	{"LIMIT_GLOBAL", "1k/30m", "COUNT is written in digits alone, such as 1000"},
	{"LIMIT_GLOBAL", "\uff11\uff10/30m", "'１' only looks like a character of ASCII: type it again"},
	{"LIMIT_GLOBAL", "100/30m,5/1s", "tiers are joined with +, such as 10/30m+1/5s"},
	{"LIMIT_GLOBAL", "100/30m;5/1s", "tiers are joined with +, such as 10/30m+1/5s"},
	{"LIMIT_GLOBAL", "100/1d", units},
	{"LIMIT_GLOBAL", "100/2 weeks", units},
	{"LIMIT_GLOBAL", "10/30M", units},
	{"LIMIT_CATEGORY", "10", `"10", expected COUNT/DURATION such as 10/30m`},
	{"LIMIT_CATEGORY", "10:30m", "COUNT and DURATION have a / between them, such as 10/30m"},
	{"LIMIT_CATEGORY", "10/30m+1/5", "5 has no unit: 5s are seconds, 5m minutes, 5h hours"},
	{"LIMIT_OVERRIDES", "errors=20/30m;deploys=5/1h", "entries are separated by commas, not by semicolons"},
	{"LIMIT_OVERRIDES", "errors=20/30m,2/10s", "tiers of one limit are joined with +, such as errors=20/30m+2/10s"},
	{"LIMIT_OVERRIDES", "errors:20/30m", "name and value have a = between them, not a colon"},
	{"LIMIT_OVERRIDES", "{\"errors\":\"20/30m\"}", "it is not JSON: entries are NAME=VALUE, separated by commas"},
	{"LIMIT_OVERRIDES", "errors=20/30m,", "there is a comma too many at its end"},
	{"LIMIT_OVERRIDES", "errors=20/30", "30 has no unit: 30s are seconds, 30m minutes, 30h hours"},
	{"LIMIT_OVERRIDES", "errors=0/1h", "0 would send nothing at all; notifier mute silences a category for a while"},
	{"LIMIT_RESERVE", "payments=5/1h", "it is a number of slots of LIMIT_GLOBAL, such as payments=5"},
	{"LIMIT_RESERVE", "payments=10%", "it is a number of slots of LIMIT_GLOBAL, such as payments=5"},
	{"LIMIT_GROUP", "40/1day", units},
	{"DEDUPE_WINDOW", "1d", units},
	{"DEDUPE_WINDOW", "86400", "86400 has no unit: 86400s are seconds, 86400m minutes, 86400h hours"},
	{"EVENT_MAX_AGE", "300", "300 has no unit: 300s are seconds, 300m minutes, 300h hours"},
	{"EVENT_MAX_AGE", "never", "it is not a switch; 0 is never"},
	{"EVENT_MAX_AGE", "5 minutes", units},
	{"DIGEST_INTERVAL", "true", "it is not a switch; 0 is never"},
	{"SLACK_TIMEOUT", "10sec", units},
	{"SHUTDOWN_TIMEOUT", "25 ", "25 has no unit: 25s are seconds, 25m minutes, 25h hours"},
	{"EVENT_MAX_BYTES", "64k", "it is written in digits alone, without a unit: 65536 for 64 KiB"},
	{"EVENT_MAX_BYTES", "64 KiB", "it is written in digits alone, without a unit: 65536 for 64 KiB"},
	{"SEND_CONCURRENCY", "8.0", "it is written in digits alone"},
	{"BATCH_SIZE", "1,000", "it is written in digits alone"},
	{"NATS_REPLICAS", "three", `"three", expected a whole number from 0 to 5`},
	{"DEAD_LETTER_MAX_BYTES", "256MB", "it is written in digits alone, without a unit: 65536 for 64 KiB"},
	{"LOG_LEVEL", "warning", "that is warn here"},
	{"LOG_LEVEL", "INFO", "that is info, in small letters"},
	{"LOG_LEVEL", "trace", "that is debug here"},
	{"LOG_LEVEL", "true", "it is not a switch"},
	{"LOG_FORMAT", "text", "that is console here"},
	{"LOG_FORMAT", "JSON", "that is json, in small letters"},
	{"SLACK_MARKUP", "true", "it is not a switch"},
	{"ADMIN_ADDR", "8080", "a port alone is written 127.0.0.1:8080, or 0.0.0.0:8080 for all addresses"},
	{"ADMIN_ADDR", "http://127.0.0.1:8080", "write it without scheme and path"},
	{"ADMIN_ADDR", "localhost", "the port is missing"},
	{"ADMIN_ADDR", "off", "set it to nothing: ADMIN_ADDR="},
	{"NATS_SUBJECT", "notify", "with categories below it that is notify.>"},
	{"NATS_SUBJECT", "notify.", "with categories below it that is notify.>"},
	{"NATS_SUBJECT", "notify.>.errors", "* is for one token in the middle"},
	{"NATS_SUBJECT", "notify.*>", "a wildcard is a token by itself, such as in notify.> or notify.*"},
	{"NATS_SUBJECT", "notify/>", "tokens are separated by dots"},
	{"NATS_SUBJECT", "notify.>,alerts.>", "it is one subject; a common first token such as notify.> has all others below it"},
	{"NATS_STREAM", "notify.events", `"notify.events", expected a name without white space and . * > / \, of at most 200 bytes`},
	{"NATS_STREAM", "\"NOTIFY\"", quoted},
	{"NATS_URL", "http://nats:4222", "NATS does not speak HTTP: it is nats:// or tls://, and the port is mostly 4222"},
	{"NATS_URL", "redis://nats:4222", "it begins like a URL of Redis"},
	{"NATS_URL", "nats://a:4222;nats://b:4222", "several servers are separated by commas"},
	{"NATS_URL", "nats://a:4222 nats://b:4222", "several servers are separated by commas"},
	{"NATS_URL", "nats://a:4222,", "there is a comma too many at its end"},
	{"NATS_URL", "nats://me:s3cret#1@nats:4222", escapes},
	{"NATS_URL", "nats://me:s3cret/1@nats:4222", escapes},
	{"NATS_URL", "nats://me:s3cret%@nats:4222", escapes},
	{"REDIS_URL", "localhost:6379", "its scheme is missing: redis:// before it"},
	{"REDIS_URL", "redis", "its scheme is missing: redis:// before it"},
	{"REDIS_URL", "http://redis:6379", "Redis does not speak HTTP: it is redis:// or rediss://, and the port is mostly 6379"},
	{"REDIS_URL", "nats://redis:6379", "it begins like a URL of NATS"},
	{"REDIS_URL", "redis-cli -h redis -a s3cret", "it is a URL, not a command"},
	{"REDIS_URL", "redis://me:s3cret#1@redis:6379/0", escapes},
	{"REDIS_URL", "redis://me:s3cret/1@redis:6379/0", escapes},
	{"REDIS_URL", "redis://me:s3cret?1@redis:6379/0", escapes},
	{"REDIS_URL", "redis://one:6379,two:6379/0", "further servers are parameters: redis://one:6379?addr=two:6379"},
	{"REDIS_URL", "redis://one:6379/one", anyRedis},
	{"REDIS_URL", "redis://one:6379/3?addr=two:6379", "names a database and, with addr=, a Cluster, which has database 0 alone; expected no database"},
	{"REDIS_URL", "unix:///run/redis.sock", "sockets are not supported"},
	{"REDIS_URL", "\"redis://me:s3cret@redis:6379/0\"", quoted},
	{"REDIS_NAMESPACE", "my team", `namespace "my team", expected a name without braces and whitespace`},
	{"SLACK_BOT_TOKEN", "\"xoxb-s3cret\"", quoted},
	{"SLACK_BOT_TOKEN", "xapp-1-s3cret", "it is an app-level token (xapp-): take the bot token from the app's page OAuth & Permissions"},
	{"SLACK_BOT_TOKEN", "xoxe-1-s3cret", "it is a refresh or configuration token (xoxe-): take the bot token from the app's page OAuth & Permissions"},
	{"SLACK_BOT_TOKEN", "xoxc-s3cret", "it is a browser's token: take the bot token from the app's page OAuth & Permissions"},
	{"SLACK_BOT_TOKEN", "Bearer xoxb-s3cret", "it is a header: leave out what is before xoxb-"},
	{"SLACK_BOT_TOKEN", "https://hooks.slack.com/services/T/B/s3cret", "it is a URL: a webhook belongs into SLACK_WEBHOOK_URL"},
	{"SLACK_BOT_TOKEN", "xoxb-s3cret\r", lineEnd},
	{"SLACK_BOT_TOKEN", "xoxb\u2013s3cret", "it has a character that only looks like one of ASCII: type it again"},
	{"SLACK_BOT_TOKEN", "xoxb-s3cret ", "there is white space around it: remove that"},
	{"SLACK_CHANNEL", "#alerts #ops", `"#alerts #ops", expected one channel such as C0123 or #alerts, without white space`},
	{"SLACK_CHANNEL", "#alerts,#ops", `"#alerts,#ops", expected one channel such as C0123 or #alerts, without white space`},
	{"SLACK_CHANNEL", "#alerts ", "there is white space around it: remove that"},
	{"SLACK_CHANNEL", "\"#alerts\"", quoted},
	{"SLACK_ROUTES", "errors:C0123", "name and value have a = between them, not a colon"},
	{"SLACK_ROUTES", "errors=C0123;deploys=C4", "entries are separated by commas, not by semicolons"},
	{"SLACK_API_URL", "slack.com/api", "https:// is missing before it"},
	{"DEAD_LETTER_SUBJECT", "notify-dead.>", `"notify-dead.>", expected a subject without wildcards and white space, of at most 200 bytes, such as notify-dead`},
	{"DROPPED_SUBJECT", "notify.dropped", `"notify.dropped" would be read again through NATS_SUBJECT "notify.>"; expected a subject outside it`},
}

// TestMisconfigured: each mistake has one line, which ends with the sentence that helps, and shows no secret.
func TestMisconfigured(t *testing.T) {
	if len(mistakes) < 100 {
		t.Fatalf("%d mistakes, expected 100", len(mistakes))
	}
	for _, test := range mistakes {
		t.Run(test.variable+"="+test.value, func(t *testing.T) {
			setenv(t, map[string]string{test.variable: test.value})
			_, err := loaded(t)
			got := lines(t, err)
			if len(got) != 1 || !strings.HasPrefix(got[0], test.variable+": ") || !strings.HasSuffix(got[0], test.want) {
				t.Errorf("\n%s\nexpected one line that ends with\n%s", strings.Join(got, "\n"), test.want)
			}
			if strings.Contains(strings.Join(got, "\n"), "s3cret") {
				t.Errorf("a secret is shown: %q", got)
			}
		})
	}
}

// TestEveryMistakeAtOnce: all mistakes are listed together, each with what helps.
func TestEveryMistakeAtOnce(t *testing.T) {
	settings, want := map[string]string{}, map[string]string{}
	for _, test := range mistakes {
		_, has := settings[test.variable]
		ofAnother := test.variable == "NATS_STREAM" || test.variable == "DROPPED_SUBJECT" // judged by what is wrong here
		if !has && !ofAnother {
			settings[test.variable], want[test.variable] = test.value, test.want
		}
	}
	setenv(t, settings)
	_, err := loaded(t)
	got := lines(t, err)
	for variable, text := range want {
		if !slices.ContainsFunc(got, func(line string) bool {
			return strings.HasPrefix(line, variable+": ") && strings.HasSuffix(line, text)
		}) {
			t.Errorf("%s: no line with %q among\n%s", variable, text, strings.Join(got, "\n"))
		}
	}
}

// TestMistakesInFiles are those of secrets in files.
func TestMistakesInFiles(t *testing.T) {
	folder := t.TempDir()
	file := func(name, content string, mode fs.FileMode) string {
		path := filepath.Join(folder, name)
		testkit.Check(t, os.WriteFile(path, []byte(content), mode))
		return path
	}
	unreadable := file("unreadable", "xoxb-s3cret", 0)
	for name, test := range map[string]problemsOf{
		"absent":     {map[string]string{"SLACK_BOT_TOKEN_FILE": folder + "/absent"}, "SLACK_BOT_TOKEN_FILE: stat " + folder + "/absent: no such file or directory; expected a readable file with the value of SLACK_BOT_TOKEN"},
		"directory":  {map[string]string{"SLACK_BOT_TOKEN_FILE": folder}, "SLACK_BOT_TOKEN_FILE: " + folder + " is not a regular file of at most 1048576 bytes; expected a readable file with the value of SLACK_BOT_TOKEN"},
		"empty":      {map[string]string{"SLACK_BOT_TOKEN_FILE": file("empty", "\r\n", 0o600)}, "SLACK_BOT_TOKEN_FILE: " + folder + "/empty is empty, expected a file with the value of SLACK_BOT_TOKEN"},
		"unreadable": {map[string]string{"SLACK_BOT_TOKEN_FILE": unreadable}, "SLACK_BOT_TOKEN_FILE: open " + unreadable + ": permission denied; expected a readable file with the value of SLACK_BOT_TOKEN"},
		"both":       {map[string]string{"SLACK_BOT_TOKEN": "xoxb-s3cret", "SLACK_BOT_TOKEN_FILE": file("both", "xoxb-s3cret", 0o600)}, "SLACK_BOT_TOKEN: is set, and so is SLACK_BOT_TOKEN_FILE; expected only one of them (an empty one is not set)"},
		"quoted":     {map[string]string{"SLACK_BOT_TOKEN_FILE": file("quoted", "\"xoxb-s3cret\"\n", 0o600)}, "SLACK_BOT_TOKEN: " + quoted},
		"marked":     {map[string]string{"SLACK_BOT_TOKEN_FILE": file("marked", "\ufeffxoxb-s3cret\r\n", 0o600)}, "SLACK_BOT_TOKEN: begins with a byte order mark, which cannot be seen; expected none: save the file as UTF-8 without it"},
		"app token":  {map[string]string{"SLACK_BOT_TOKEN_FILE": file("app", "xapp-s3cret\n", 0o600)}, "SLACK_BOT_TOKEN: is no bot token; expected one that begins with xoxb-; it is an app-level token (xapp-): take the bot token from the app's page OAuth & Permissions"},
		"assignment": {map[string]string{"SLACK_BOT_TOKEN_FILE": file("env", "SLACK_BOT_TOKEN=xoxb-s3cret\n", 0o600)}, "SLACK_BOT_TOKEN: is no bot token; expected one that begins with xoxb-; it is an assignment: leave out what is before xoxb-"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := os.ReadFile(unreadable); name == "unreadable" && !errors.Is(err, fs.ErrPermission) {
				t.Skip("this user may read everything")
			}
			t.Setenv("SLACK_BOT_TOKEN", "")
			t.Setenv("SLACK_CHANNEL", "#alerts")
			for variable, value := range test.settings {
				t.Setenv(variable, value)
			}
			_, err := loaded(t)
			if got := strings.Join(lines(t, err), "\n"); got != test.want {
				t.Errorf("\n%s\nexpected\n%s", got, test.want)
			}
		})
	}
}
