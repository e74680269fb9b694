package preflight

import (
	"strings"
	"testing"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change change
		text   string // of the warning. If empty, there are no warnings
	}{
		"defaults":                   {func(map[string]string) {}, ""},
		"short shutdown":             {func(env map[string]string) { env["SHUTDOWN_TIMEOUT"] = "5s" }, "SHUTDOWN_TIMEOUT 5s is below SLACK_TIMEOUT 10s"},
		"user token":                 {func(env map[string]string) { env["SLACK_BOT_TOKEN"] = "xoxp-" + secret }, "SLACK_BOT_TOKEN is a user token"},
		"API without TLS":            {func(env map[string]string) { env["SLACK_API_URL"] = "http://slack.example/api/" }, "SLACK_API_URL is http"},
		"API on this host":           {func(env map[string]string) { env["SLACK_API_URL"] = "http://localhost:8090/api/" }, ""},
		"open admin server":          {func(env map[string]string) { env["ADMIN_ADDR"] = ":8080" }, "ADMIN_ADDR :8080 is reachable from the network without a token"},
		"admin with a token":         {func(env map[string]string) { env["ADMIN_ADDR"], env["ADMIN_TOKEN"] = "0.0.0.0:8080", secret+secret }, ""},
		"digest without an interval": {func(env map[string]string) { env["DIGEST_CHANNEL"] = "#digest" }, "DIGEST_CHANNEL has no effect"},
		"channel of a webhook": {func(env map[string]string) {
			env["SLACK_BOT_TOKEN"], env["SLACK_WEBHOOK_URL"] = "", "https://h.example/"+secret
		}, "SLACK_CHANNEL is C0123, although SLACK_WEBHOOK_URL"},
		"webhook without TLS": {func(env map[string]string) {
			env["SLACK_BOT_TOKEN"], env["SLACK_CHANNEL"], env["SLACK_WEBHOOK_URL"] = "", "", "http://h.example/"+secret
		}, "SLACK_WEBHOOK_URL is http"},
	} {
		rows := found(t, settingsGroup(parsed(t, test.change)))
		if test.text == "" {
			wantOnly(t, rows, Warn)
			want(t, rows, "settings", OK, "valid")
			continue
		}
		want(t, rows, "settings", Warn, test.text)
		if count := strings.Count(strings.Join(states(rows), " "), "warn"); count != 1 {
			t.Errorf("%s: %d warnings: %+v", name, count, rows)
		}
	}
}

func states(rows []Row) (all []string) {
	for _, row := range rows {
		all = append(all, string(row.State))
	}
	return all
}

func TestUnknownVariablesAndExposedFiles(t *testing.T) {
	t.Parallel()
	s := parsed(t)
	s.Exposed = []string{"SLACK_BOT_TOKEN_FILE: /run/secrets/token has mode 0644, so other users may read or write it"}
	s.Unknown = []string{"LIMIT_GLOBL: is not a setting of notifier, and has no effect; LIMIT_GLOBAL is one"}
	rows := found(t, settingsGroup(s))
	want(t, rows, "settings", Warn, "SLACK_BOT_TOKEN_FILE: /run/secrets/token has mode 0644")
	want(t, rows, "settings", Warn, "LIMIT_GLOBL: is not a setting of notifier, and has no effect; LIMIT_GLOBAL is one")
}

func TestUnusableRoots(t *testing.T) {
	t.Setenv("SSL_CERT_FILE", "/missing.pem")
	want(t, found(t, settingsGroup(parsed(t))), "settings", Warn,
		"SSL_CERT_FILE cannot be read: open /missing.pem: no such file or directory; Go ignores it")
}

func TestTracingVariables(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:"+secret+"@host/%zz")
	rows := found(t, settingsGroup(parsed(t)))
	want(t, rows, "settings", Warn, "no traces are exported: OTEL_EXPORTER_OTLP_ENDPOINT: ")
}

func TestReserveAboveALimit(t *testing.T) {
	t.Parallel()
	rows := found(t, settingsGroup(parsed(t, func(env map[string]string) {
		env["LIMIT_GLOBAL"], env["LIMIT_RESERVE"] = "100/1h", "payments=21,errors=20"
	})))
	want(t, rows, "limits", Warn, "LIMIT_RESERVE keeps 21 slots for payments, although its limit 10/30m allows only 20 in 1h")
	if strings.Contains(strings.Join(states(rows), " "), "warn warn") {
		t.Errorf("%+v", rows)
	}
}
