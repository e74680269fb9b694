package settings

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"notifier/test/kit"
)

// Sentences of several mistakes.
const (
	quoted   = "begins and ends with a quotation mark; expected none: docker run --env-file, systemd's and other files keep them as part of the value"
	lineEnd  = "ends with a line end, as those of files that were written on Windows do; expected none: convert the file with dos2unix"
	windows  = "expected 1ms to 744h (31 days) in h, m, s or ms, such as 30m, 1h30m or 500ms"
	escapes  = "in a password # / ? @ and % are written %23 %2F %3F %40 and %25"
	notNATS  = "is not a NATS URL, expected nats://[user:password@]host:port or tls://host:port, several separated by commas"
	anyRedis = "is not a Redis URL, expected redis://[user:password@]host:port/db, rediss:// for TLS, addr= parameters for Cluster, or master_name= for Sentinel; then user:password@ is for the Sentinels, and username= and password= are for the server"
)

// mistakes lists common mistakes and the end of the line about each: the expected value, or a hint.
// badSettings covers the problems themselves.
var mistakes = []struct{ variable, value, want string }{
	{"LIMIT_GLOBAL", "\"10/30m\"", quoted},
	{"LIMIT_GLOBAL", "'10/30m'", quoted},
	{"LIMIT_GLOBAL", "\u201c10/30m\u201d", "'“' only looks like a character of ASCII: type it again"},
	{"LIMIT_GLOBAL", "10/30m\r", lineEnd},
	{"LIMIT_GLOBAL", "\ufeff10/30m", "begins with a byte order mark, which cannot be seen; expected none: save the file as UTF-8 without it"},
	{"LIMIT_GLOBAL", "10/30min", `duration "30min", ` + windows},
	{"LIMIT_GLOBAL", "10/30", `duration "30", ` + windows},
	{"LIMIT_GLOBAL", "10 / 30m", `count "10 ", expected a whole number from 1 to 1000000`},
	{"LIMIT_GLOBAL", "10per30m", `"10per30m", expected COUNT/DURATION such as 10/30m or 10/30m+1/5s`},
	{"LIMIT_GLOBAL", "10 per 30m", `"10 per 30m", expected COUNT/DURATION such as 10/30m or 10/30m+1/5s`},
	{"LIMIT_GLOBAL", "10 every hour", `"10 every hour", expected COUNT/DURATION such as 10/30m or 10/30m+1/5s`},
	{"LIMIT_GLOBAL", "30m/50", "COUNT and DURATION are swapped; write 50/30m"},
	{"LIMIT_CATEGORY", "1h30m / 50+10s/2", "COUNT and DURATION are swapped; write 50/1h30m"},
	{"LIMIT_OVERRIDES", "deploys=5/1h,errors=30m/50", "COUNT and DURATION are swapped; write 50/30m"},
	{"SLACK_PACE", "10s/10", "COUNT and DURATION are swapped; write 10/10s"},
	{"LIMIT_GLOBAL", "50%/30m", `count "50%", expected a whole number from 1 to 1000000`},
	{"LIMIT_GLOBAL", "0/30m", `count "0", expected a whole number from 1 to 1000000`},
	{"LIMIT_GLOBAL", "unlimited", `"unlimited", expected COUNT/DURATION such as 10/30m or 10/30m+1/5s`},
	{"LIMIT_GLOBAL", "off", `"off", expected COUNT/DURATION such as 10/30m or 10/30m+1/5s`},
	{"LIMIT_GLOBAL", "1,000/30m", `count "1,000", expected a whole number from 1 to 1000000`},
	{"LIMIT_GLOBAL", "1k/30m", `count "1k", expected a whole number from 1 to 1000000`},
	{"LIMIT_GLOBAL", "\uff11\uff10/30m", "'１' only looks like a character of ASCII: type it again"},
	{"LIMIT_GLOBAL", "100/30m,5/1s", `"100/30m,5/1s", expected COUNT/DURATION such as 10/30m or 10/30m+1/5s`},
	{"LIMIT_GLOBAL", "100/30m;5/1s", `"100/30m;5/1s", expected COUNT/DURATION such as 10/30m or 10/30m+1/5s`},
	{"LIMIT_GLOBAL", "100/1d", `duration "1d", ` + windows},
	{"LIMIT_GLOBAL", "100/2 weeks", `duration "2 weeks", ` + windows},
	{"LIMIT_GLOBAL", "10/30M", `duration "30M", ` + windows},
	{"LIMIT_CATEGORY", "10", `"10", expected COUNT/DURATION such as 10/30m or 10/30m+1/5s`},
	{"LIMIT_CATEGORY", "10:30m", `"10", expected COUNT/DURATION such as 10/30m or 10/30m+1/5s`},
	{"LIMIT_CATEGORY", "10/30m+1/5", `duration "5", ` + windows},
	{"LIMIT_OVERRIDES", "errors=20/30m;deploys=5/1h", `"errors=20/30m;deploys=5/1h", expected CATEGORY=LIMIT such as errors=20/30m+2/10s, separated by commas`},
	{"LIMIT_OVERRIDES", "errors=20/30m+deploys=5/1h", `"errors=20/30m+deploys=5/1h", expected CATEGORY=LIMIT such as errors=20/30m+2/10s, separated by commas`},
	{"LIMIT_OVERRIDES", "errors=20/30m,2/10s", `"2/10s", expected CATEGORY=LIMIT such as errors=20/30m+2/10s, separated by commas`},
	{"LIMIT_OVERRIDES", "errors:20/30m", `"errors:20/30m", expected CATEGORY=LIMIT such as errors=20/30m+2/10s, separated by commas`},
	{"LIMIT_OVERRIDES", "{\"errors\":\"20/30m\"}", `"{\"errors\":\"20/30m\"}", expected CATEGORY=LIMIT such as errors=20/30m+2/10s, separated by commas`},
	{"LIMIT_OVERRIDES", "errors=20/30m,", `"", expected CATEGORY=LIMIT such as errors=20/30m+2/10s, separated by commas`},
	{"LIMIT_OVERRIDES", "errors=20/30", `errors: duration "30", ` + windows},
	{"LIMIT_OVERRIDES", "errors=0/1h", `errors: count "0", expected a whole number from 1 to 1000000`},
	{"LIMIT_RESERVE", "payments=5/1h", `payments: slots "5/1h", expected a whole number from 1 to 1000000`},
	{"LIMIT_RESERVE", "payments=10%", `payments: slots "10%", expected a whole number from 1 to 1000000`},
	{"LIMIT_GROUP", "40/1day", `duration "1day", ` + windows},
	{"DEDUPE_WINDOW", "1d", `"1d", expected a duration from 1s to 744h in h, m, s or ms`},
	{"DEDUPE_WINDOW", "86400", `"86400", expected a duration from 1s to 744h in h, m, s or ms`},
	{"EVENT_MAX_AGE", "300", `"300", expected a duration from 0 to 744h in h, m, s or ms`},
	{"EVENT_MAX_AGE", "never", `"never", expected a duration from 0 to 744h in h, m, s or ms`},
	{"EVENT_MAX_AGE", "5 minutes", `"5 minutes", expected a duration from 0 to 744h in h, m, s or ms`},
	{"DIGEST_INTERVAL", "true", `"true", expected a duration from 0 to 24h in h, m, s or ms`},
	{"SLACK_TIMEOUT", "10sec", `"10sec", expected a duration from 100ms to 5m in h, m, s or ms`},
	{"SHUTDOWN_TIMEOUT", "25 ", "there is white space around it: remove that"},
	{"EVENT_MAX_BYTES", "64k", `"64k", expected a whole number from 1 to 67108864`},
	{"EVENT_MAX_BYTES", "64 KiB", `"64 KiB", expected a whole number from 1 to 67108864`},
	{"SEND_CONCURRENCY", "8.0", `"8.0", expected a whole number from 1 to 256`},
	{"BATCH_SIZE", "1,000", `"1,000", expected a whole number from 1 to 1000`},
	{"NATS_REPLICAS", "three", `"three", expected a whole number from 0 to 5`},
	{"DEAD_LETTER_MAX_BYTES", "256MB", `"256MB", expected a whole number from 1048576 to 1099511627776`},
	{"LOG_LEVEL", "warning", `"warning", expected debug, info, warn or error`},
	{"LOG_LEVEL", "INFO", `"INFO", expected debug, info, warn or error`},
	{"LOG_LEVEL", "trace", `"trace", expected debug, info, warn or error`},
	{"LOG_LEVEL", "true", `"true", expected debug, info, warn or error`},
	{"LOG_FORMAT", "text", `"text", expected json or console`},
	{"LOG_FORMAT", "JSON", `"JSON", expected json or console`},
	{"SLACK_MARKUP", "true", `"true", expected escape or allow`},
	{"ADMIN_ADDR", "8080", `"8080", expected host:port such as 127.0.0.1:8080, or nothing for no admin server`},
	{"ADMIN_ADDR", "http://127.0.0.1:8080", `"http://127.0.0.1:8080", expected host:port such as 127.0.0.1:8080, or nothing for no admin server`},
	{"ADMIN_ADDR", "localhost", `"localhost", expected host:port such as 127.0.0.1:8080, or nothing for no admin server`},
	{"ADMIN_ADDR", "off", `"off", expected host:port such as 127.0.0.1:8080, or nothing for no admin server`},
	{"NATS_SUBJECT", "notify", `subject "notify" has no wildcard, expected > or * as a whole token to take the category from`},
	{"NATS_SUBJECT", "notify.", `subject "notify." has an empty token, expected text between all dots`},
	{"NATS_SUBJECT", "notify.>.errors", `subject "notify.>.errors" has > before its end, expected > as the last token only`},
	{"NATS_SUBJECT", "notify.*>", `subject "notify.*>" has no wildcard, expected > or * as a whole token to take the category from`},
	{"NATS_SUBJECT", "notify/>", `subject "notify/>" has no wildcard, expected > or * as a whole token to take the category from`},
	{"NATS_SUBJECT", "notify.>,alerts.>", `"notify.>,alerts.>" looks like several subjects, expected one`},
	{"NATS_STREAM", "notify.events", `"notify.events", expected a name without white space and . * > / \, of at most 200 bytes`},
	{"NATS_STREAM", "\"NOTIFY\"", quoted},
	{"NATS_URL", "http://nats:4222", notNATS},
	{"NATS_URL", "redis://nats:4222", notNATS},
	{"NATS_URL", "nats://a:4222;nats://b:4222", notNATS},
	{"NATS_URL", "nats://a:4222 nats://b:4222", notNATS},
	{"NATS_URL", "nats://a:4222,", notNATS},
	{"NATS_URL", "nats://me:s3cret#1@nats:4222", escapes},
	{"NATS_URL", "nats://me:s3cret/1@nats:4222", escapes},
	{"NATS_URL", "nats://me:s3cret%@nats:4222", escapes},
	{"REDIS_URL", "localhost:6379", anyRedis},
	{"REDIS_URL", "redis", anyRedis},
	{"REDIS_URL", "http://redis:6379", anyRedis},
	{"REDIS_URL", "nats://redis:6379", anyRedis},
	{"REDIS_URL", "redis-cli -h redis -a s3cret", anyRedis},
	{"REDIS_URL", "redis://me:s3cret#1@redis:6379/0", escapes},
	{"REDIS_URL", "redis://me:s3cret/1@redis:6379/0", escapes},
	{"REDIS_URL", "redis://me:s3cret?1@redis:6379/0", escapes},
	{"REDIS_URL", "redis://one:6379,two:6379/0", "has several servers before its first parameter, expected one"},
	{"REDIS_URL", "redis://one:6379/one", anyRedis},
	{"REDIS_URL", "redis://one:6379/3?addr=two:6379", "names a database and, with addr=, a Cluster, which has database 0 alone; expected no database"},
	{"REDIS_URL", "unix:///run/redis.sock", anyRedis},
	{"REDIS_URL", "\"redis://me:s3cret@redis:6379/0\"", quoted},
	{"REDIS_NAMESPACE", "my team", `namespace "my team", expected a name without braces and whitespace`},
	{"SLACK_BOT_TOKEN", "\"xoxb-s3cret\"", quoted},
	{"SLACK_BOT_TOKEN", "xapp-1-s3cret", "it is an app-level token (xapp-): take the bot token from the app's page OAuth & Permissions"},
	{"SLACK_BOT_TOKEN", "xoxe-1-s3cret", "is no bot token; expected one that begins with xoxb-"},
	{"SLACK_BOT_TOKEN", "xoxc-s3cret", "is no bot token; expected one that begins with xoxb-"},
	{"SLACK_BOT_TOKEN", "Bearer xoxb-s3cret", "contains white space or a character that no token has; expected a bot token (xoxb-...)"},
	{"SLACK_BOT_TOKEN", "https://hooks.slack.com/services/T/B/s3cret", "is no bot token; expected one that begins with xoxb-; it is a webhook, which belongs into SLACK_WEBHOOK_URL"},
	{"SLACK_BOT_TOKEN", "xoxb-s3cret\r", lineEnd},
	{"SLACK_BOT_TOKEN", "xoxb\u2013s3cret", "it has a character that only looks like one of ASCII: type it again"},
	{"SLACK_BOT_TOKEN", "xoxb-s3cret ", "there is white space around it: remove that"},
	{"SLACK_CHANNEL", "#alerts #ops", `"#alerts #ops", expected one channel such as C0123 or #alerts, without white space`},
	{"SLACK_CHANNEL", "#alerts,#ops", `"#alerts,#ops", expected one channel such as C0123 or #alerts, without white space`},
	{"SLACK_CHANNEL", "#alerts ", "there is white space around it: remove that"},
	{"SLACK_CHANNEL", "\"#alerts\"", quoted},
	{"SLACK_ROUTES", "errors:C0123", `"errors:C0123", expected CATEGORY=CHANNEL such as errors=C0123, separated by commas`},
	{"SLACK_ROUTES", "errors=C0123;deploys=C4", `"errors=C0123;deploys=C4", expected CATEGORY=CHANNEL such as errors=C0123, separated by commas`},
	{"SLACK_ROUTES", "errors=C0123 deploys=C4", `"errors=C0123 deploys=C4", expected CATEGORY=CHANNEL such as errors=C0123, separated by commas`},
	{"SLACK_API_URL", "slack.com/api", "is not an http or https URL; expected one such as https://slack.com/api/, or nothing"},
	{"DEAD_LETTER_SUBJECT", "notify-dead.>", `"notify-dead.>", expected a subject without wildcards and white space, of at most 200 bytes, such as notify-dead`},
	{"NATS_SUBJECT", ">", `">" takes every subject, also those of dead letters; expected a prefix, such as notify.>`},
	{"DROPPED_SUBJECT", "notify.dropped", `"notify.dropped" would be read again through NATS_SUBJECT "notify.>"; expected a subject outside it`},
}

// TestMisconfigured: each mistake has one line, which ends with the sentence that helps, and shows no secret.
func TestMisconfigured(t *testing.T) {
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

// TestEveryMistakeAtOnce sets all mistakes together and expects a helpful line for each.
func TestEveryMistakeAtOnce(t *testing.T) {
	settings, want := map[string]string{}, map[string]string{}
	for _, test := range mistakes {
		_, has := settings[test.variable]
		// judged by what is wrong here
		ofAnother := test.variable == "NATS_STREAM" || test.variable == "DROPPED_SUBJECT"
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

// TestMistakesInFiles covers secrets in files.
func TestMistakesInFiles(t *testing.T) {
	folder := t.TempDir()
	file := func(name, content string, mode fs.FileMode) string {
		path := filepath.Join(folder, name)
		kit.Check(t, os.WriteFile(path, []byte(content), mode))
		return path
	}
	unreadable := file("unreadable", "xoxb-s3cret", 0)
	for name, test := range map[string]problemsOf{
		"absent":     {map[string]string{"SLACK_BOT_TOKEN_FILE": folder + "/absent"}, "SLACK_BOT_TOKEN_FILE: stat " + folder + "/absent: no such file or directory; expected a readable file with the value of SLACK_BOT_TOKEN"},
		"directory":  {map[string]string{"SLACK_BOT_TOKEN_FILE": folder}, "SLACK_BOT_TOKEN_FILE: " + folder + " is not a regular file of at most 1048576 bytes; expected a readable file with the value of SLACK_BOT_TOKEN"},
		"empty":      {map[string]string{"SLACK_BOT_TOKEN_FILE": file("empty", "\r\n", 0o600)}, "SLACK_BOT_TOKEN_FILE: " + folder + "/empty is empty; expected a readable file with the value of SLACK_BOT_TOKEN"},
		"unreadable": {map[string]string{"SLACK_BOT_TOKEN_FILE": unreadable}, "SLACK_BOT_TOKEN_FILE: open " + unreadable + ": permission denied; expected a readable file with the value of SLACK_BOT_TOKEN"},
		"both":       {map[string]string{"SLACK_BOT_TOKEN": "xoxb-s3cret", "SLACK_BOT_TOKEN_FILE": file("both", "xoxb-s3cret", 0o600)}, "SLACK_BOT_TOKEN: is set, and so is SLACK_BOT_TOKEN_FILE; expected only one of them (an empty one is not set)"},
		"quoted":     {map[string]string{"SLACK_BOT_TOKEN_FILE": file("quoted", "\"xoxb-s3cret\"\n", 0o600)}, "SLACK_BOT_TOKEN: " + quoted},
		"marked":     {map[string]string{"SLACK_BOT_TOKEN_FILE": file("marked", "\ufeffxoxb-s3cret\r\n", 0o600)}, "SLACK_BOT_TOKEN: begins with a byte order mark, which cannot be seen; expected none: save the file as UTF-8 without it"},
		"app token":  {map[string]string{"SLACK_BOT_TOKEN_FILE": file("app", "xapp-s3cret\n", 0o600)}, "SLACK_BOT_TOKEN: is no bot token; expected one that begins with xoxb-; it is an app-level token (xapp-): take the bot token from the app's page OAuth & Permissions"},
		"assignment": {map[string]string{"SLACK_BOT_TOKEN_FILE": file("env", "SLACK_BOT_TOKEN=xoxb-s3cret\n", 0o600)}, "SLACK_BOT_TOKEN: is no bot token; expected one that begins with xoxb-"},
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
