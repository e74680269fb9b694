package settings

import (
	"strings"
	"testing"
)

// Texts of several problems.
const (
	server    = "NATS_URL: server 1 of 1 is not a NATS URL, expected nats://[user:password@]host:port or tls://host:port, several separated by commas"
	noRedis   = "REDIS_URL: is not a Redis URL, expected redis://[user:password@]host:port/db, rediss:// for TLS, addr= parameters for Cluster, or master_name= for Sentinel; then user:password@ is for the Sentinels, and username= and password= are for the server"
	noPath    = "looks like a secret or a URL itself, and not like a path; expected a readable file with "
	noChannel = "looks like a token or a URL, expected a channel such as C0123 or #alerts; " +
		"a bot token is for SLACK_BOT_TOKEN, a webhook for SLACK_WEBHOOK_URL"
	missing = ": stat /missing: no such file or directory; expected a readable file with "
)

var long = strings.Repeat("x", 201)

// badSetting is a value, and the problem with it.
type badSetting struct{ variable, value, want string }

// badSettings has at least one for each variable.
var badSettings = []badSetting{
	{"NATS_URL", "http://one", server},
	{"NATS_URL", "nats://", server},
	{"NATS_URL", "nats://one:99999", server},
	{"NATS_URL", "nats://one:0", server},
	{"NATS_URL", "nats://me:secret@one:port", server},
	{"NATS_URL", "nats://one,", strings.Replace(server, "1 of 1", "2 of 2", 1)},
	{"NATS_URL", "nats://one,ws://two", "NATS_URL: mixes ws:// or wss:// with other servers, expected one kind"},
	{"NATS_MODE", "core", `NATS_MODE: "core": events are read through JetStream alone, because core loses what a worker holds that dies; expected no such variable`},
	{"NATS_SUBJECT", "notify", `NATS_SUBJECT: subject "notify" has no wildcard, expected > or * as a whole token to take the category from`},
	{"NATS_SUBJECT", "notify.>.x", `NATS_SUBJECT: subject "notify.>.x" has > before its end, expected > as the last token only`},
	{"NATS_SUBJECT", ">", `NATS_SUBJECT: ">" takes every subject, also those of dead letters; expected a prefix, such as notify.>`},
	{"NATS_SUBJECT", "*.*.>", `NATS_SUBJECT: "*.*.>" takes every subject, also those of dead letters; expected a prefix, such as notify.>`},
	{"NATS_STREAM", "NOTIFY.NEW", `NATS_STREAM: "NOTIFY.NEW", expected a name without white space and . * > / \, of at most 200 bytes`},
	{"NATS_STREAM", long, `NATS_STREAM: "` + long + `", expected a name without white space and . * > / \, of at most 200 bytes`},
	{"NATS_CONSUMER", "a b", `NATS_CONSUMER: "a b", expected a name without white space and . * > / \, of at most 200 bytes`},
	{"NATS_STREAM_MAX_BYTES", "-1", `NATS_STREAM_MAX_BYTES: "-1", expected a whole number from 0 to 1125899906842624`},
	{"NATS_STREAM_MAX_BYTES", "1GiB", `NATS_STREAM_MAX_BYTES: "1GiB", expected a whole number from 0 to 1125899906842624`},
	{"NATS_REPLICAS", "6", `NATS_REPLICAS: "6", expected a whole number from 0 to 5`},
	{"NATS_REPLICAS", "-1", `NATS_REPLICAS: "-1", expected a whole number from 0 to 5`},
	{"NATS_CREDS_FILE", "/missing", strings.Replace("NATS_CREDS_FILE"+missing, "readable file", "readable credentials file", 1) + "a user's JWT and seed"},
	{"NATS_NKEY_FILE", "/missing", "NATS_NKEY_FILE" + missing + "a user's seed"},
	{"NATS_TLS_CA", "/missing", "NATS_TLS_CA" + missing + "PEM certificates"},
	{"NATS_TLS_CERT", "/missing", "NATS_TLS_KEY: is not set, but NATS_TLS_CERT is; expected both or neither"},
	{"NATS_TLS_KEY", "/missing", "NATS_TLS_CERT: is not set, but NATS_TLS_KEY is; expected both or neither"},
	{"REDIS_URL", "127.0.0.1:6379", noRedis},
	{"REDIS_URL", "http://127.0.0.1:6379", noRedis},
	{"REDIS_URL", "redis://me:secret@one/zero", noRedis},
	{"REDIS_URL", "redis://one?no_such_parameter=1", noRedis},
	{"REDIS_URL", "redis://one?master_name=main&route_by_latency=true", noRedis},
	{"REDIS_URL", "redis://one:99999/0", noRedis},
	{"REDIS_NAMESPACE", "{notifier}", `REDIS_NAMESPACE: namespace "{notifier}", expected a name without braces and whitespace`},
	{"REDIS_TLS_CA", "/missing", "REDIS_TLS_CA" + missing + "PEM certificates\nREDIS_URL: TLS files are set, expected a rediss:// URL"},
	{"REDIS_TLS_CERT", "/missing", "REDIS_TLS_KEY: is not set, but REDIS_TLS_CERT is; expected both or neither\nREDIS_URL: TLS files are set, expected a rediss:// URL"},
	{"REDIS_TLS_KEY", "/missing", "REDIS_TLS_CERT: is not set, but REDIS_TLS_KEY is; expected both or neither\nREDIS_URL: TLS files are set, expected a rediss:// URL"},
	{"LIMIT_GLOBAL", "100", `LIMIT_GLOBAL: "100", expected COUNT/DURATION such as 10/30m or 10/30m+1/5s`},
	{"LIMIT_GLOBAL", "0/30m", `LIMIT_GLOBAL: count "0", expected a whole number from 1 to 1000000`},
	{"LIMIT_GLOBAL", "1000001/30m", `LIMIT_GLOBAL: count "1000001", expected a whole number from 1 to 1000000`},
	{"LIMIT_CATEGORY", "10/30", `LIMIT_CATEGORY: duration "30", expected 1ms to 744h (31 days) in h, m, s or ms, such as 30m, 1h30m or 500ms`},
	{"LIMIT_CATEGORY", "10/745h", `LIMIT_CATEGORY: duration "745h", expected 1ms to 744h (31 days) in h, m, s or ms, such as 30m, 1h30m or 500ms`},
	{"LIMIT_CATEGORY", strings.Repeat("1/1s+", 8) + "1/2s", "LIMIT_CATEGORY: 9 tiers, expected at most 8"},
	{"LIMIT_OVERRIDES", "errors", `LIMIT_OVERRIDES: "errors", expected CATEGORY=LIMIT such as errors=20/30m+2/10s, separated by commas`},
	{"LIMIT_OVERRIDES", "errors=1/1h,errors=2/1h", "LIMIT_OVERRIDES: errors is listed twice, expected each category once"},
	{"LIMIT_OVERRIDES", "errors=many", `LIMIT_OVERRIDES: errors: "many", expected COUNT/DURATION such as 10/30m or 10/30m+1/5s`},
	{"LIMIT_OVERRIDES", "team.>.x=1/1h", `LIMIT_OVERRIDES: "team.>.x" has > before its end, expected > as the last token only`},
	{"LIMIT_OVERRIDES", "te*=1/1h", `LIMIT_OVERRIDES: "te*" has a wildcard inside of the token "te*", expected * or > as a whole token`},
	{"LIMIT_OVERRIDES", long + "=1/1h", `LIMIT_OVERRIDES: "` + long + `" has 201 bytes, expected at most 128: no longer category is ever sent`},
	{"LIMIT_OVERRIDES", "a..b=0/1h,,c=1/1h,c=2/1h", `LIMIT_OVERRIDES: "a..b" has an empty token, expected text between all dots` + "\n" +
		`LIMIT_OVERRIDES: a..b: count "0", expected a whole number from 1 to 1000000` + "\n" +
		`LIMIT_OVERRIDES: "", expected CATEGORY=LIMIT such as errors=20/30m+2/10s, separated by commas` + "\n" +
		"LIMIT_OVERRIDES: c is listed twice, expected each category once"},
	{"LIMIT_OVERRIDES", "notify.errors=1/1h", `LIMIT_OVERRIDES: notify.errors repeats the prefix of NATS_SUBJECT "notify.>"; expected errors`},
	{"LIMIT_OVERRIDES", "notify.>=1/1h", `LIMIT_OVERRIDES: notify.> repeats the prefix of NATS_SUBJECT "notify.>"; expected >`},
	{"LIMIT_RESERVE", "notify.errors=1", `LIMIT_RESERVE: notify.errors repeats the prefix of NATS_SUBJECT "notify.>"; expected errors`},
	{"SLACK_ROUTES", "notify.errors=C1", `SLACK_ROUTES: notify.errors repeats the prefix of NATS_SUBJECT "notify.>"; expected errors`},
	{"SLACK_ROUTES", "errors=@alice", `SLACK_ROUTES: errors: "@alice" names a person, expected a channel ID such as C0123 or a name such as #alerts`},
	{"SLACK_CHANNEL", "@alice", `SLACK_CHANNEL: "@alice" names a person, expected a channel ID such as C0123 or a name such as #alerts`},
	{"SLACK_CHANNEL", "U012AB3CD", `SLACK_CHANNEL: "U012AB3CD" names a person, expected a channel ID such as C0123 or a name such as #alerts`},
	{"DIGEST_CHANNEL", "@alice", `DIGEST_CHANNEL: "@alice" names a person, expected a channel ID such as C0123 or a name such as #alerts`},
	{"LIMIT_CATEGORY", "10/30m:", `LIMIT_CATEGORY: precision "", expected a duration such as 1m, or fixed`},
	{"LIMIT_CATEGORY", "10/30m:1h", `LIMIT_CATEGORY: precision "1h", expected 1ms to the window of 30m, in whole microseconds`},
	{"LIMIT_CATEGORY", "10/30m:1s", `LIMIT_CATEGORY: precision "1s" divides the window of 30m into more than 1440 parts, expected 1.25s or longer`},
	{"LIMIT_GROUP", "40", `LIMIT_GROUP: "40", expected COUNT/DURATION such as 10/30m or 10/30m+1/5s`},
	{"LIMIT_GROUP", "none", `LIMIT_GROUP: "none", expected COUNT/DURATION such as 10/30m or 10/30m+1/5s`},
	{"LIMIT_GROUP_OVERRIDES", "team-a", `LIMIT_GROUP_OVERRIDES: "team-a", expected GROUP=LIMIT such as team-a=40/30m, separated by commas`},
	{"LIMIT_GROUP_OVERRIDES", "team-a.x=1/1h,*=2/1h", `LIMIT_GROUP_OVERRIDES: "team-a.x" is not a group, expected the first token of a category, such as team-a, without dots and wildcards` + "\n" +
		`LIMIT_GROUP_OVERRIDES: "*" is not a group, expected the first token of a category, such as team-a, without dots and wildcards`},
	{"LIMIT_GROUP_OVERRIDES", "a=1/1h,a=1/1h", "LIMIT_GROUP_OVERRIDES: a is listed twice, expected each group once"},
	{"LIMIT_GROUP_OVERRIDES", "a b=1/1h", `LIMIT_GROUP_OVERRIDES: "a b" has white space or a control character, expected none: no category has one`},
	{"LIMIT_RESERVE", "payments", `LIMIT_RESERVE: "payments", expected CATEGORY=SLOTS such as payments=5, separated by commas`},
	{"LIMIT_RESERVE", "payments=0", `LIMIT_RESERVE: payments: slots "0", expected a whole number from 1 to 1000000`},
	{"LIMIT_RESERVE", "payments=5/1h", `LIMIT_RESERVE: payments: slots "5/1h", expected a whole number from 1 to 1000000`},
	{"LIMIT_RESERVE", "payments=1,payments=1", "LIMIT_RESERVE: payments is listed twice, expected each category once"},
	{"LIMIT_RESERVE", "team-a.>=5", `LIMIT_RESERVE: "team-a.>" is a pattern, expected the name of one category, such as payments, for which the slots are kept`},
	{"LIMIT_RESERVE", "a=60,b=40", "LIMIT_RESERVE: 100 slots are reserved, and the global limit 100/30m has 100; expected fewer reserved slots than that"},
	{"DEDUPE_WINDOW", "0", `DEDUPE_WINDOW: "0", expected a duration from 1s to 744h in h, m, s or ms`},
	{"EVENT_MAX_AGE", "-1s", `EVENT_MAX_AGE: "-1s", expected a duration from 0 to 744h in h, m, s or ms`},
	{"EVENT_MAX_BYTES", "64k", `EVENT_MAX_BYTES: "64k", expected a whole number from 1 to 67108864`},
	{"SLACK_BOT_TOKEN", "", "SLACK_BOT_TOKEN: is not set, nor is SLACK_WEBHOOK_URL; expected one of them: a bot token (xoxb-...) or an incoming webhook"},
	{"SLACK_BOT_TOKEN", "xoxb-1 ", "SLACK_BOT_TOKEN: contains white space or a character that no token has; expected a bot token (xoxb-...)"},
	{"SLACK_WEBHOOK_URL", "https://hooks.slack.com/services/secret", "SLACK_WEBHOOK_URL: is set, and so is SLACK_BOT_TOKEN; expected only one of them"},
	{"SLACK_CHANNEL", "", "SLACK_CHANNEL: is not set; expected the default channel, which a bot token needs"},
	{"SLACK_ROUTES", "errors", `SLACK_ROUTES: "errors", expected CATEGORY=CHANNEL such as errors=C0123, separated by commas`},
	{"SLACK_ROUTES", "errors=C1,=C2", `SLACK_ROUTES: "=C2", expected CATEGORY=CHANNEL such as errors=C0123, separated by commas`},
	{"SLACK_ROUTES", "errors=C1,errors=C2", "SLACK_ROUTES: errors is listed twice, expected each category once"},
	{"SLACK_ROUTES", "errors=,a.=C1", "SLACK_ROUTES: errors: no channel, expected one such as C0123 or #alerts\n" +
		`SLACK_ROUTES: "a." has an empty token, expected text between all dots`},
	{"SLACK_API_URL", "slack.com/api/", "SLACK_API_URL: is not an http or https URL; expected one such as https://slack.com/api/, or nothing"},
	{"SLACK_MARKUP", "yes", `SLACK_MARKUP: "yes", expected escape or allow`},
	{"SLACK_TIMEOUT", "10", `SLACK_TIMEOUT: "10", expected a duration from 100ms to 5m in h, m, s or ms`},
	{"SLACK_PACE", "10", `SLACK_PACE: "10", expected COUNT/DURATION such as 10/10s, or off`},
	{"SLACK_PACE", "10/10s:1s", `SLACK_PACE: "10/10s:1s", expected COUNT/DURATION such as 10/10s, or off, without the PRECISION or fixed of a limit`},
	{"SLACK_PACE", "10/10s:fixed", `SLACK_PACE: "10/10s:fixed", expected COUNT/DURATION such as 10/10s, or off, without the PRECISION or fixed of a limit`},
	{"SLACK_PACE", "10/10s+1/1s", `SLACK_PACE: "10/10s+1/1s", expected COUNT/DURATION such as 10/10s, or off`},
	{"SLACK_PACE", "0/10s", `SLACK_PACE: count "0", expected a whole number from 1 to 1000`},
	{"SLACK_PACE", "1001/10s", `SLACK_PACE: count "1001", expected a whole number from 1 to 1000`},
	{"SLACK_PACE", "10/99ms", `SLACK_PACE: duration "99ms", expected 100ms to 1h in h, m, s or ms, such as 10s`},
	{"SLACK_PACE", "10/61m", `SLACK_PACE: duration "61m", expected 100ms to 1h in h, m, s or ms, such as 10s`},
	{"SEND_CONCURRENCY", "257", `SEND_CONCURRENCY: "257", expected a whole number from 1 to 256`},
	{"BATCH_SIZE", "1e3", `BATCH_SIZE: "1e3", expected a whole number from 1 to 1000`},
	{"DEAD_LETTER_SUBJECT", "dead.*", `DEAD_LETTER_SUBJECT: "dead.*", expected a subject without wildcards and white space, of at most 200 bytes, such as notify-dead`},
	{"DEAD_LETTER_SUBJECT", "notify.dead", `DEAD_LETTER_SUBJECT: "notify.dead" would be read again through NATS_SUBJECT "notify.>"; expected a subject outside it`},
	{"DEAD_LETTER_MAX_BYTES", "1048575", `DEAD_LETTER_MAX_BYTES: "1048575", expected a whole number from 1048576 to 1099511627776`},
	{"DEAD_LETTER_MAX_BYTES", "1099511627777", `DEAD_LETTER_MAX_BYTES: "1099511627777", expected a whole number from 1048576 to 1099511627776`},
	{"DEAD_LETTER_MAX_BYTES", "256MiB", `DEAD_LETTER_MAX_BYTES: "256MiB", expected a whole number from 1048576 to 1099511627776`},
	{"DROPPED_SUBJECT", "dropped.>", `DROPPED_SUBJECT: "dropped.>", expected a subject without wildcards and white space, of at most 200 bytes, such as notify-dropped`},
	{"DROPPED_SUBJECT", "notify.dropped", `DROPPED_SUBJECT: "notify.dropped" would be read again through NATS_SUBJECT "notify.>"; expected a subject outside it`},
	{"DROPPED_SUBJECT", "notify-dead", `DROPPED_SUBJECT: "notify-dead" would put dropped events among the dead letters; expected a subject outside DEAD_LETTER_SUBJECT "notify-dead"`},
	{"DIGEST_INTERVAL", "25h", `DIGEST_INTERVAL: "25h", expected a duration from 0 to 24h in h, m, s or ms`},
	{"DIGEST_INTERVAL", "30s", `DIGEST_INTERVAL: "30s", expected 0 (none) or 1m to 24h`},
	{"DIGEST_CHANNEL", "#a #b", `DIGEST_CHANNEL: "#a #b", expected one channel such as C0123 or #alerts, without white space`},
	{"SLACK_CHANNEL", "xoxb-hunter2", "SLACK_CHANNEL: " + noChannel},
	{"SLACK_CHANNEL", "https://hooks.slack.com/services/hunter2", "SLACK_CHANNEL: " + noChannel},
	{"SLACK_ROUTES", "errors=https://hooks.slack.com/services/hunter2", "SLACK_ROUTES: " + noChannel},
	{"SLACK_ROUTES", "xoxb-hunter2", "SLACK_ROUTES: " + noChannel},
	{"NATS_CREDS_FILE", "eyJ0eXAi.hunter2.x", "NATS_CREDS_FILE: looks like a secret or a URL itself, and not like a path; expected a readable credentials file with a user's JWT and seed"},
	{"DIGEST_CHANNEL", "xoxb-hunter2", "DIGEST_CHANNEL: " + noChannel},
	{"ADMIN_TOKEN_FILE", "0123456789abcdef0123456789abcdef", "ADMIN_TOKEN_FILE: " + noPath + "the value of ADMIN_TOKEN"},
	{"NATS_URL_FILE", "nats://u:hunter2@n:4222", "NATS_URL_FILE: " + noPath + "the value of NATS_URL"},
	{"NATS_NKEY_FILE", "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY", "NATS_NKEY_FILE: " + noPath + "a user's seed"},
	{"NATS_TLS_CA", "-----BEGIN CERTIFICATE-----", "NATS_TLS_CA: " + noPath + "PEM certificates"},
	{"ADMIN_ADDR", "127.0.0.1", `ADMIN_ADDR: "127.0.0.1", expected host:port such as 127.0.0.1:8080, or nothing for no admin server`},
	{"ADMIN_ADDR", ":65536", `ADMIN_ADDR: ":65536", expected host:port such as 127.0.0.1:8080, or nothing for no admin server`},
	{"ADMIN_TOKEN", "hunter2", adminTokenProblem},
	{"ADMIN_TOKEN", "hunter2 hunter2 hunter2", adminTokenProblem},
	{"ADMIN_TOKEN", "hünter2hünter2hünter2", adminTokenProblem},
	{"ADMIN_TOKEN", strings.Repeat("x", 513), adminTokenProblem},
	{"SHUTDOWN_TIMEOUT", "500ms", `SHUTDOWN_TIMEOUT: "500ms", expected a duration from 1s to 1h in h, m, s or ms`},
	{"LOG_LEVEL", "INFO", `LOG_LEVEL: "INFO", expected debug, info, warn or error`},
	{"LOG_FORMAT", "text", `LOG_FORMAT: "text", expected json or console`},
	{"LOG_FORMAT", "a\nb", `LOG_FORMAT: "a\nb", expected json or console`},
}

const adminTokenProblem = "ADMIN_TOKEN: is too short or too long, or contains white space or a character that no header can have; " +
	"expected 16 to 512 printable ASCII characters, such as those of: openssl rand -hex 32"

// TestProblems covers each bad setting by itself.
func TestProblems(t *testing.T) {
	covered := map[string]bool{}
	for _, test := range badSettings {
		covered[test.variable] = true
		t.Run(test.variable+"="+test.value, func(t *testing.T) {
			setenv(t, map[string]string{test.variable: test.value})
			_, err := loaded(t)
			got := strings.Join(lines(t, err), "\n")
			if likely := hint(test.variable, test.value); likely != "" { // misconfigured_test.go looks at these
				got = strings.Replace(got, "; "+likely, "", 1)
			}
			if got != test.want {
				t.Errorf("\n%s\nexpected\n%s", got, test.want)
			}
		})
	}
	for _, name := range settingNames() {
		if !covered[name] {
			t.Errorf("%s: no problem of it is in the table", name)
		}
	}
}

// TestProblemsOfSeveral covers settings that contradict each other.
func TestProblemsOfSeveral(t *testing.T) {
	checkProblems(t, map[string]problemsOf{
		"a webhook has one channel": {
			map[string]string{"SLACK_BOT_TOKEN": "", "SLACK_WEBHOOK_URL": "https://hooks.slack.com/services/x", "SLACK_ROUTES": "errors=C1"},
			"SLACK_ROUTES: is set together with SLACK_WEBHOOK_URL; expected a bot token: a webhook posts to one fixed channel",
		},
		"a webhook needs no channel": {
			map[string]string{"SLACK_BOT_TOKEN": "", "SLACK_WEBHOOK_URL": "hooks.slack.com", "SLACK_CHANNEL": ""},
			"SLACK_WEBHOOK_URL: is not a webhook URL; expected https://hooks.slack.com/services/...",
		},
		"a token in the place of a webhook": {
			map[string]string{"SLACK_BOT_TOKEN": "", "SLACK_WEBHOOK_URL": "xoxb-secret", "SLACK_CHANNEL": ""},
			"SLACK_WEBHOOK_URL: is not a webhook URL; expected https://hooks.slack.com/services/...; it is a token: that of a bot belongs into SLACK_BOT_TOKEN",
		},
		"one way to say who we are": {
			map[string]string{"NATS_CREDS_FILE": "/dev/null", "NATS_NKEY_FILE": "/dev/null"},
			"NATS_NKEY_FILE: is set, and so is NATS_CREDS_FILE; expected only one of them\n" +
				"NATS_CREDS_FILE: /dev/null is not a regular file of at most 1048576 bytes; expected a readable credentials file with a user's JWT and seed\n" +
				"NATS_NKEY_FILE: /dev/null is not a regular file of at most 1048576 bytes; expected a readable file with a user's seed",
		},
		// The category errors.dead of the subject team.errors.errors.dead would go to team.errors.dead.
		"dead letters under some of the subjects": {
			map[string]string{"NATS_SUBJECT": "team.errors.>", "DEAD_LETTER_SUBJECT": "team"},
			`DEAD_LETTER_SUBJECT: "team" would be read again through NATS_SUBJECT "team.errors.>"; expected a subject outside it`,
		},
		"a stream whose name is too long for the default": {
			map[string]string{"NATS_STREAM": long[:196]},
			`DEAD_LETTER_SUBJECT: "` + long[:196] + `-dead", expected a subject without wildcards and white space, of at most 200 bytes, such as notify-dead`,
		},
		"a stream whose name is no subject": {
			map[string]string{"NATS_STREAM": "$X"},
			`DEAD_LETTER_SUBJECT: "$x-dead", expected a subject without wildcards and white space, of at most 200 bytes, such as notify-dead`,
		},
		"dead letters that a star matches": {
			map[string]string{"NATS_SUBJECT": "*.*.alerts", "DEAD_LETTER_SUBJECT": "dead"},
			`DEAD_LETTER_SUBJECT: "dead" would be read again through NATS_SUBJECT "*.*.alerts"; expected a subject outside it`,
		},
		"a webhook has one channel, for digests too": {
			map[string]string{"SLACK_BOT_TOKEN": "", "SLACK_WEBHOOK_URL": "https://hooks.slack.com/services/secret", "DIGEST_CHANNEL": "C1"},
			"DIGEST_CHANNEL: is set together with SLACK_WEBHOOK_URL; expected a bot token: a webhook posts to one fixed channel",
		},
		"a file that cannot be read beside an empty variable": {
			map[string]string{"NATS_SUBJECT": "", "NATS_SUBJECT_FILE": "/missing"},
			"NATS_SUBJECT_FILE: stat /missing: no such file or directory; expected a readable file with the value of NATS_SUBJECT",
		},
		"a file name of two lines is one line": {
			map[string]string{"NATS_TLS_CA": "/a\nNATS_URL: forged"},
			"NATS_TLS_CA: stat /a?NATS_URL: forged: no such file or directory; expected a readable file with PEM certificates",
		},
	})
}

// TestProblemsOfLimits covers limits that contradict each other.
func TestProblemsOfLimits(t *testing.T) {
	checkProblems(t, map[string]problemsOf{
		"names that one token never matches": {
			map[string]string{
				"NATS_SUBJECT": "svc.*.alerts", "DEAD_LETTER_SUBJECT": "dead", "LIMIT_OVERRIDES": "a=1/1h,*=1/1h,>=1/1h,*.>=1/1h,a.b=1/1h",
				"LIMIT_RESERVE": "c.d=1,c=1", "LIMIT_GROUP_OVERRIDES": "a=1/1h", "SLACK_ROUTES": "e.>=C1,e=C2",
			},
			`LIMIT_OVERRIDES: a.b never matches, because the categories of NATS_SUBJECT "svc.*.alerts" are one token; expected a name or pattern without dots` + "\n" +
				`LIMIT_OVERRIDES: *.> never matches, because the categories of NATS_SUBJECT "svc.*.alerts" are one token; expected a name or pattern without dots` + "\n" +
				`LIMIT_RESERVE: c.d never matches, because the categories of NATS_SUBJECT "svc.*.alerts" are one token; expected a name or pattern without dots` + "\n" +
				`SLACK_ROUTES: e.> never matches, because the categories of NATS_SUBJECT "svc.*.alerts" are one token; expected a name or pattern without dots`,
		},
		"the subject of a category of one token": {
			map[string]string{"NATS_SUBJECT": "notify.*", "SLACK_ROUTES": "notify.errors=C1"},
			`SLACK_ROUTES: notify.errors repeats the prefix of NATS_SUBJECT "notify.*"; expected errors`,
		},
		"only the longest global tier has to reserve": {
			map[string]string{"LIMIT_GLOBAL": "10/30m+20/1h", "LIMIT_RESERVE": "a=20"},
			"LIMIT_RESERVE: 20 slots are reserved, and the global limit 20/1h has 20; expected fewer reserved slots than that",
		},
		"nothing is known of a global limit that is wrong": {
			map[string]string{"LIMIT_GLOBAL": "many", "LIMIT_RESERVE": "a=2000"},
			`LIMIT_GLOBAL: "many", expected COUNT/DURATION such as 10/30m or 10/30m+1/5s`,
		},
		"nor of one that cannot be read": {
			map[string]string{"LIMIT_GLOBAL_FILE": "/missing", "LIMIT_RESERVE": "a=2000"},
			"LIMIT_GLOBAL_FILE: stat /missing: no such file or directory; expected a readable file with the value of LIMIT_GLOBAL",
		},
	})
}

// problemsOf are the problems with settings, a line each.
type problemsOf struct {
	settings map[string]string
	want     string
}

func checkProblems(t *testing.T, cases map[string]problemsOf) {
	t.Helper()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			setenv(t, test.settings)
			_, err := loaded(t)
			if got := strings.Join(lines(t, err), "\n"); got != test.want {
				t.Errorf("\n%s\nexpected\n%s", got, test.want)
			}
		})
	}
}
