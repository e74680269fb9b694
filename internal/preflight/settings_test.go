package preflight

import (
	"strings"
	"testing"

	"notifier/internal/settings"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change change
		text   string // of the warning. If empty, there are no warnings
	}{
		"defaults":           {func(*settings.Environment) {}, ""},
		"short shutdown":     {func(env *settings.Environment) { env.ShutdownTimeout = "5s" }, "SHUTDOWN_TIMEOUT 5s is below SLACK_TIMEOUT 10s"},
		"user token":         {func(env *settings.Environment) { env.SlackBotToken = "xoxp-" + secret }, "SLACK_BOT_TOKEN is a user token"},
		"API without TLS":    {func(env *settings.Environment) { env.SlackAPIURL = "http://slack.example/api/" }, "SLACK_API_URL is http"},
		"API with TLS":       {func(env *settings.Environment) { env.SlackAPIURL = "https://slack.example/api/" }, ""},
		"API on this host":   {func(env *settings.Environment) { env.SlackAPIURL = "http://localhost:8090/api/" }, ""},
		"open admin server":  {func(env *settings.Environment) { env.AdminAddr = ":8080" }, "ADMIN_ADDR :8080 is reachable from the network without a token"},
		"admin with a token": {func(env *settings.Environment) { env.AdminAddr, env.AdminToken = "0.0.0.0:8080", secret+secret }, ""},
		"no admin server":    {func(env *settings.Environment) { env.AdminAddr = "" }, ""},
		"webhook without TLS": {func(env *settings.Environment) {
			env.SlackBotToken, env.SlackChannel, env.SlackWebhookURL = "", "", "http://h.example/"+secret
		}, "SLACK_WEBHOOK_URL is http"},
		"admin with ephemeral": {func(env *settings.Environment) { env.AdminAddr = "127.0.0.1:0" }, ""},
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
	s.Exposed = []settings.ExposedFile{{Variable: "SLACK_BOT_TOKEN_FILE", Path: "/run/secrets/token", Mode: 0o644}}
	s.Unknown = []settings.UnknownVariable{{Name: "LIMIT_GLOBL", Nearest: "LIMIT_GLOBAL"}}
	rows := found(t, settingsGroup(s))
	want(t, rows, "settings", Warn, "SLACK_BOT_TOKEN_FILE: /run/secrets/token has mode 0644")
	want(t, rows, "settings", Warn, "LIMIT_GLOBL: is not a setting of notifier, and has no effect; LIMIT_GLOBAL is one")
}

func TestTracingVariables(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:"+secret+"@host/%zz")
	rows := found(t, settingsGroup(parsed(t)))
	want(t, rows, "settings", Warn, "no traces are exported: OTEL_EXPORTER_OTLP_PROTOCOL: ")
	want(t, rows, "settings", Warn, "no traces are exported: OTEL_EXPORTER_OTLP_ENDPOINT: ")
}

func TestReserveAboveALimit(t *testing.T) {
	t.Parallel()
	rows := found(t, settingsGroup(parsed(t, func(env *settings.Environment) {
		env.LimitGlobal, env.LimitReserve = "100/1h", "payments=21,errors=20"
	})))
	want(t, rows, "limits", Warn, "LIMIT_RESERVE keeps 21 slots for payments, although its limit 10/30m allows only 20 in 1h")
	if strings.Contains(strings.Join(states(rows), " "), "warn warn") {
		t.Errorf("%+v", rows)
	}
}
