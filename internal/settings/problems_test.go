package settings

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"
	"github.com/redis/go-redis/v9"

	"notifier/test/kit"
)

const (
	noNATS    = "is not a NATS URL, expected nats://[user:password@]host:port or tls://host:port, several separated by commas"
	noRedis   = "is not a Redis URL, expected redis://[user:password@]host:port/db, rediss:// for TLS, unix:///path?db=0 for a socket, addr= parameters for Cluster, or master_name= for Sentinel; then user:password@ is for the Sentinels, and username= and password= are for the server"
	escapes   = "; in a password # / ? @ and % are written %23 %2F %3F %40 and %25"
	noName    = `, expected a name without white space and . * > / \, of at most 200 bytes`
	noSubject = ", expected a subject such as notify-dead, without wildcards and white space, of at most 200 bytes"
	noToken   = "is too short or too long, or contains white space or a character that no header can have; expected 16 to 512 printable ASCII characters, such as those of: openssl rand -hex 32"
	hidden    = "looks like a secret or a URL, so it is not shown; a bot token is for SLACK_BOT_TOKEN, a webhook for SLACK_WEBHOOK_URL"
	noChannel = "looks like a secret or a URL; expected a channel such as C0123 or #alerts"
	aPerson   = " names a person, expected a channel ID such as C0123 or a name such as #alerts"
	aPath     = "looks like a secret or a URL itself, and not like a path; expected a readable "
	noFile    = "stat /missing: no such file or directory; expected a readable "
)

// badSettings has at least one bad value for each variable. If want is empty, the previous one applies.
var badSettings = []struct{ variable, text, want string }{
	{"NATS_URL", "http://one", "server 1 of 1 " + noNATS},
	{"NATS_URL", "nats://one:99999", ""},
	{"NATS_URL", "nats://one,", "server 2 of 2 " + noNATS},
	{"NATS_URL", "nats://me:hunter2#1@nats:4222", "server 1 of 1 " + noNATS + escapes},
	{"NATS_URL", "nats://one,ws://two", "mixes ws:// or wss:// with other servers, expected one kind"},
	{"NATS_SUBJECT", "notify", `subject "notify" has no wildcard, expected > or * as a whole token to take the category from`},
	{"NATS_SUBJECT", "*.*.>", `"*.*.>" takes every subject, also those of dead letters; expected a prefix, such as notify.>`},
	{"NATS_SUBJECT", "notify.>,alerts.>", `"notify.>,alerts.>" looks like several subjects, expected one`},
	{"NATS_STREAM", "NOTIFY.NEW", `"NOTIFY.NEW"` + noName},
	{"NATS_STREAM", "$X", "DEAD_LETTER_SUBJECT: \"$x-dead\"" + noSubject},
	{"NATS_CONSUMER", "a b", `"a b"` + noName},
	{"NATS_STREAM_MAX_BYTES", "1GiB", `"1GiB", expected a whole number from 0 to 1125899906842624`},
	{"NATS_REPLICAS", "6", `"6", expected a whole number from 0 to 5`},
	{"NATS_CREDS_FILE", "/missing", noFile + "credentials file with a user's JWT and seed"},
	{"NATS_CREDS_FILE", "eyJ0eXAi.hunter2.x", aPath + "credentials file with a user's JWT and seed"},
	{"NATS_NKEY_FILE", "/missing", noFile + "file with a user's seed"},
	{"NATS_TLS_CA", "/missing", noFile + "file with PEM certificates"},
	{"NATS_TLS_CERT", "/missing", noFile + "file with a PEM certificate"},
	{"NATS_TLS_KEY", "/missing", noFile + "file with a PEM key"},
	{"REDIS_URL", "127.0.0.1:6379", noRedis},
	{"REDIS_URL", "redis://one?master_name=main&route_by_latency=true", ""},
	{"REDIS_URL", "redis://me:hunter2/1@redis:6379/0", noRedis + escapes},
	{"REDIS_URL", "redis://one:6379,two:6379/0", "has several servers before its first parameter, expected one"},
	{"REDIS_URL", "redis://one:6379/3?addr=two:6379", "names a database and, with addr=, a Cluster, which has database 0 alone; expected no database"},
	{"REDIS_NAMESPACE", "{notifier}", `namespace "{notifier}", expected a name without braces and whitespace`},
	{"REDIS_TLS_CA", "/missing", noFile + "file with PEM certificates"},
	{"REDIS_TLS_CERT", "/missing", noFile + "file with a PEM certificate"},
	{"REDIS_TLS_KEY", "/missing", noFile + "file with a PEM key"},
	{"LIMIT_GLOBAL", "100", `"100", expected COUNT/DURATION such as 10/30m or 10/30m+1/5s`},
	{"LIMIT_GLOBAL", strings.Repeat("hunter2X", 5), hidden},
	{"LIMIT_CATEGORY", "10/1d", `duration "1d", expected 1ms to 744h (31 days) in h, m, s or ms, such as 30m, 1h30m or 500ms`},
	{"LIMIT_OVERRIDES", "errors", `"errors", expected CATEGORY=LIMIT such as errors=20/30m+2/10s, separated by commas`},
	{"LIMIT_OVERRIDES", "notify.errors=1/1h", `notify.errors repeats the prefix of NATS_SUBJECT "notify.>"; expected errors`},
	{"LIMIT_GROUP", "none", `"none", expected COUNT/DURATION such as 10/30m or 10/30m+1/5s`},
	{"LIMIT_GROUP_OVERRIDES", "a=1/1h,a=1/1h", "a is listed twice, expected each group once"},
	{"LIMIT_RESERVE", "payments=0", `payments: slots "0", expected a whole number from 1 to 1000000`},
	{"LIMIT_RESERVE", "notify.errors=1", `notify.errors repeats the prefix of NATS_SUBJECT "notify.>"; expected errors`},
	{"LIMIT_RESERVE", "a=60,b=40", "100 slots are reserved, and the global limit 100/30m has 100; expected fewer reserved slots than that"},
	{"DEDUPE_WINDOW", "0", `"0", expected a duration from 1s to 744h in h, m, s or ms`},
	{"EVENT_MAX_AGE", "-1s", `"-1s", expected 0 or a duration from 1s to 744h in h, m, s or ms`},
	{"EVENT_MAX_BYTES", "64k", `"64k", expected a whole number from 1 to 67108864`},
	{"SLACK_BOT_TOKEN", "", "is not set, nor is SLACK_WEBHOOK_URL; expected one of them: a bot token (xoxb-...) or an incoming webhook"},
	{"SLACK_BOT_TOKEN", "xoxb-hunter2 ", "contains white space or a character that no token has; expected a bot token (xoxb-...)"},
	{"SLACK_BOT_TOKEN", "xapp-1-hunter2", "is an app-level token (xapp-); expected the bot token (xoxb-...) of the app's page OAuth & Permissions"},
	{"SLACK_BOT_TOKEN", "https://hooks.slack.com/services/T/B/hunter2", "is a webhook; expected a bot token (xoxb-...), a webhook is for SLACK_WEBHOOK_URL"},
	{"SLACK_BOT_TOKEN", "xoxe-1-hunter2", "is no bot token; expected one that begins with xoxb-"},
	{"SLACK_WEBHOOK_URL", "https://hooks.slack.com/services/hunter2", "is set, and so is SLACK_BOT_TOKEN; expected only one of them"},
	{"SLACK_CHANNEL", "", "is not set; expected the default channel, which a bot token needs"},
	{"SLACK_CHANNEL", "@alice", `"@alice"` + aPerson},
	{"SLACK_CHANNEL", "U012AB3CD", `"U012AB3CD"` + aPerson},
	{"SLACK_CHANNEL", "#alerts #ops", `"#alerts #ops", expected one channel such as C0123 or #alerts, without white space`},
	{"SLACK_ROUTES", "errors=,a.=C1", "errors: no channel, expected one such as C0123 or #alerts\n" +
		`SLACK_ROUTES: "a." has an empty token, expected text between all dots`},
	{"SLACK_ROUTES", "notify.errors=C1", `notify.errors repeats the prefix of NATS_SUBJECT "notify.>"; expected errors`},
	{"SLACK_API_URL", "slack.com/api/hunter2", "is not an http or https URL; expected one such as https://slack.com/api/, or nothing"},
	{"SLACK_MARKUP", "yes", `"yes", expected escape or allow`},
	{"SLACK_TIMEOUT", "10", `"10", expected a duration from 100ms to 5m in h, m, s or ms`},
	{"SLACK_PACE", "10/10s:1s", `"10/10s:1s", expected COUNT/DURATION such as 10/10s, or off, without the PRECISION or fixed of a limit`},
	{"SEND_CONCURRENCY", "257", `"257", expected a whole number from 1 to 256`},
	{"BATCH_SIZE", "1e3", `"1e3", expected a whole number from 1 to 1000`},
	{"DEAD_LETTER_SUBJECT", "dead.*", `"dead.*"` + noSubject},
	{"DEAD_LETTER_SUBJECT", "notify.dead", `"notify.dead" would be read again through NATS_SUBJECT "notify.>"; expected a subject outside it`},
	{"DEAD_LETTER_MAX_BYTES", "256MiB", `"256MiB", expected a whole number from 1048576 to 1099511627776`},
	{"DROPPED_SUBJECT", "dropped.>", `"dropped.>"` + noSubject},
	{"DROPPED_SUBJECT", "notify.dropped", `"notify.dropped" would be read again through NATS_SUBJECT "notify.>"; expected a subject outside it`},
	{"DROPPED_SUBJECT", "notify-dead", `"notify-dead" would put dropped events among the dead letters; expected a subject outside DEAD_LETTER_SUBJECT "notify-dead"`},
	{"DIGEST_INTERVAL", "25h", `"25h", expected 0 or a duration from 1m to 24h in h, m, s or ms`},
	{"DIGEST_CHANNEL", "@alice", `"@alice"` + aPerson},
	{"ADMIN_ADDR", "8080", `"8080", expected host:port such as 127.0.0.1:8080, or nothing for no admin server`},
	{"ADMIN_TOKEN", "hunter2", noToken},
	{"ADMIN_TOKEN", "hunter2 hunter2 hunter2", ""},
	{"ADMIN_TOKEN", "hünter2hünter2hünter2", ""},
	{"SHUTDOWN_TIMEOUT", "500ms", `"500ms", expected a duration from 1s to 1h in h, m, s or ms`},
	{"LOG_LEVEL", "INFO", `"INFO", expected debug, info, warn or error`},
	{"LOG_FORMAT", "a\nb", `"a\nb", expected json or console`},
}

func TestProblems(t *testing.T) {
	covered := map[string]bool{}
	want := ""
	for _, test := range badSettings {
		covered[test.variable] = true
		if test.want != "" {
			want = test.want
		}
		line := test.variable + ": " + want
		if strings.HasPrefix(want, "DEAD_LETTER_SUBJECT: ") {
			line = want
		}
		t.Run(test.variable+"="+test.text, func(t *testing.T) {
			setenv(t, map[string]string{test.variable: test.text})
			_, err := loaded(t)
			if got := strings.Join(lines(t, err), "\n"); got != line {
				t.Errorf("\n%s\nexpected\n%s", got, line)
			}
		})
	}
	for _, v := range Variables() {
		if !covered[v.Name] {
			t.Errorf("%s: the table has no problem with it", v.Name)
		}
	}
}

func TestQuotesAndMarks(t *testing.T) {
	const (
		quoted = "begins and ends with a quotation mark; remove both, as env files of docker and systemd may keep them"
		mark   = "begins with a byte order mark, which is invisible; save the file as UTF-8 without it"
		crlf   = "ends with a line end, as in files from Windows; convert the file with dos2unix"
	)
	for text, want := range map[string]string{
		"'10/30m'": quoted, "`10/30m`": quoted,
		"\ufeff\"10/30m\"\r\n": mark + "\nLIMIT_GLOBAL: " + crlf + "\nLIMIT_GLOBAL: " + quoted,
		`"ten"`:                quoted + "\nLIMIT_GLOBAL: \"ten\", expected COUNT/DURATION such as 10/30m or 10/30m+1/5s",
	} {
		setenv(t, map[string]string{"LIMIT_GLOBAL": text})
		_, err := loaded(t)
		if got := strings.Join(lines(t, err), "\n"); got != "LIMIT_GLOBAL: "+want {
			t.Errorf("%q:\n%s\nexpected\n%s", text, got, want)
		}
	}
}

func TestProblemsOfSeveral(t *testing.T) {
	never := ` never matches, because the categories of NATS_SUBJECT "svc.*.alerts" are one token; expected a name or pattern without dots`
	oneChannel := " is set together with SLACK_WEBHOOK_URL; expected a bot token: a webhook posts to one fixed channel"
	for name, test := range map[string]struct {
		texts map[string]string
		want  string
	}{
		"a webhook has one channel": {
			map[string]string{"SLACK_BOT_TOKEN": "", "SLACK_WEBHOOK_URL": "https://hooks.slack.com/services/x", "SLACK_ROUTES": "errors=C1", "DIGEST_CHANNEL": "C1"},
			"SLACK_ROUTES:" + oneChannel + "\nDIGEST_CHANNEL:" + oneChannel,
		},

		"a token in the place of a webhook": {
			map[string]string{"SLACK_BOT_TOKEN": "", "SLACK_WEBHOOK_URL": "xoxb-hunter2", "SLACK_CHANNEL": ""},
			"SLACK_WEBHOOK_URL: is a token; expected a webhook URL, a bot token is for SLACK_BOT_TOKEN",
		},

		"one way to authenticate": {
			map[string]string{"NATS_CREDS_FILE": "/missing", "NATS_NKEY_FILE": "/missing"},
			"NATS_CREDS_FILE: " + noFile + "credentials file with a user's JWT and seed\n" +
				"NATS_NKEY_FILE: " + noFile + "file with a user's seed\n" +
				"NATS_NKEY_FILE: is set, and so is NATS_CREDS_FILE; expected only one of them",
		},
		// Dead letters of the category errors.dead would go to team.errors.dead, which NATS_SUBJECT matches.
		"dead letters under some of the subjects": {
			map[string]string{"NATS_SUBJECT": "team.errors.>", "DEAD_LETTER_SUBJECT": "team"},
			`DEAD_LETTER_SUBJECT: "team" would be read again through NATS_SUBJECT "team.errors.>"; expected a subject outside it`,
		},

		"dead letters among the outcomes": {
			map[string]string{"NATS_STREAM": "ALERTS", "DEAD_LETTER_SUBJECT": "alerts-events"},
			`DEAD_LETTER_SUBJECT: "alerts-events" would put events among the outcomes of NATS_STREAM "ALERTS"; expected a subject outside "alerts-events"`,
		},

		"dropped events among the outcomes": {
			map[string]string{"DROPPED_SUBJECT": "notify-events.dropped"},
			`DROPPED_SUBJECT: "notify-events.dropped" would put events among the outcomes of NATS_STREAM "NOTIFY"; expected a subject outside "notify-events"`,
		},

		"dead letters that a star matches": {
			map[string]string{"NATS_SUBJECT": "*.*.alerts", "DEAD_LETTER_SUBJECT": "dead"},
			`DEAD_LETTER_SUBJECT: "dead" would be read again through NATS_SUBJECT "*.*.alerts"; expected a subject outside it`,
		},

		"names that one token never matches": {
			map[string]string{
				"NATS_SUBJECT": "svc.*.alerts", "DEAD_LETTER_SUBJECT": "dead", "LIMIT_OVERRIDES": "a=1/1h,*=1/1h,>=1/1h,*.>=1/1h,a.b=1/1h",
				"LIMIT_RESERVE": "c.d=1,c=1", "LIMIT_GROUP_OVERRIDES": "a=1/1h", "SLACK_ROUTES": "e.>=C1,e=C2",
			},
			"LIMIT_OVERRIDES: a.b" + never + "\nLIMIT_OVERRIDES: *.>" + never + "\nLIMIT_RESERVE: c.d" + never + "\nSLACK_ROUTES: e.>" + never,
		},
		"only the longest global tier has to reserve": {
			map[string]string{"LIMIT_GLOBAL": "10/30m+20/1h", "LIMIT_RESERVE": "a=20"},
			"LIMIT_RESERVE: 20 slots are reserved, and the global limit 20/1h has 20; expected fewer reserved slots than that",
		},
		"nothing is known of a global limit that is wrong": {
			map[string]string{"LIMIT_GLOBAL": "many", "LIMIT_RESERVE": "a=2000"},
			`LIMIT_GLOBAL: "many", expected COUNT/DURATION such as 10/30m or 10/30m+1/5s`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			setenv(t, test.texts)
			_, err := loaded(t)
			if got := strings.Join(lines(t, err), "\n"); got != test.want {
				t.Errorf("\n%s\nexpected\n%s", got, test.want)
			}
		})
	}
}

func written(t *testing.T, path string, content []byte) string {
	t.Helper()
	kit.Check(t, os.WriteFile(path, content, 0o600))
	return path
}

func TestCertificates(t *testing.T) {
	cert, key := kit.Certificate(t)
	_, otherKey := kit.Certificate(t)
	text := written(t, filepath.Join(t.TempDir(), "text"), []byte("hunter2\n"))
	for _, server := range []string{"NATS", "REDIS"} {
		for name, test := range map[string]struct{ ca, cert, key, want string }{
			"all right":                     {cert, cert, key, ""},
			"an authority that is none":     {text, "", "", "_CA: " + text + " contains no PEM certificate; expected a readable file with PEM certificates"},
			"a certificate without its key": {"", cert, "", "_KEY: is not set, but PREFIX_CERT is; expected both or neither"},
			"a key without its certificate": {"", "", key, "_CERT: is not set, but PREFIX_KEY is; expected both or neither"},
			"another's key":                 {"", cert, otherKey, "_CERT: tls: private key does not match public key; expected a PEM certificate and its key in PREFIX_KEY"},
		} {
			prefix := server + "_TLS"
			s, err := from(t, map[string]string{
				"REDIS_URL": "rediss://127.0.0.1:6380/0", prefix + "_CA": test.ca, prefix + "_CERT": test.cert, prefix + "_KEY": test.key,
			})
			if test.want == "" {
				kit.Check(t, err)
				if s.NATS.HasCertificate() != (server == "NATS") {
					t.Errorf("%s: HasCertificate is %t", server, s.NATS.HasCertificate())
				}
				config := s.Store.Redis.(*redis.Client).Options().TLSConfig
				has := len(config.Certificates) == 1 && config.RootCAs != nil
				if has != (server == "REDIS") || config.MinVersion < tls.VersionTLS12 {
					t.Errorf("%s: the client of Redis has the certificates: %t", server, has)
				}
				continue
			}
			if got, want := strings.Join(lines(t, err), "\n"), prefix+strings.ReplaceAll(test.want, "PREFIX", prefix); got != want {
				t.Errorf("%s, %s:\n%s\nexpected\n%s", server, name, got, want)
			}
		}
	}
	_, err := from(t, map[string]string{"REDIS_TLS_CA": cert})
	if got := lines(t, err); len(got) != 1 || got[0] != "REDIS_URL: TLS files are set, expected a rediss:// URL" {
		t.Errorf("without rediss://: %q", got)
	}
}

func TestCredentials(t *testing.T) {
	folder := t.TempDir()
	seed := func(name string, create func() (nkeys.KeyPair, error)) string {
		pair, err := create()
		kit.Check(t, err)
		content, err := pair.Seed()
		kit.Check(t, err)
		return written(t, filepath.Join(folder, name), content)
	}
	user, account := seed("user", nkeys.CreateUser), seed("account", nkeys.CreateAccount)
	text := written(t, filepath.Join(folder, "text"), []byte("hunter2\n"))
	for _, test := range []struct{ variable, file, want string }{
		{"NATS_NKEY_FILE", user, ""},
		{"NATS_NKEY_FILE", account, " contains no user seed; expected a readable file with a user's seed"},
		{"NATS_NKEY_FILE", text, " contains no user seed; expected a readable file with a user's seed"},
		{"NATS_CREDS_FILE", text, " contains no credentials; expected a readable credentials file with a user's JWT and seed"},
		{"NATS_CREDS_FILE", user, " contains no credentials; expected a readable credentials file with a user's JWT and seed"},
	} {
		_, err := from(t, map[string]string{test.variable: test.file})
		if test.want == "" {
			kit.Check(t, err)
			continue
		}
		if got := lines(t, err); len(got) != 1 || got[0] != test.variable+": "+test.file+test.want {
			t.Errorf("%s=%s: %q, expected %q", test.variable, test.file, got, test.want)
		}
	}
}
