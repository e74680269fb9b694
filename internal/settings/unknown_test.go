package settings

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"notifier/test/kit"
)

func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"LIMIT_GLOBL": "LIMIT_GLOBAL", "LIMIT_CATAGORY": "LIMIT_CATEGORY", "LIMIT_OVERIDES": "LIMIT_OVERRIDES", "LIMITS_GLOBAL": "LIMIT_GLOBAL",
		"NATS_STREEM": "NATS_STREAM", "NATS_URLS": "NATS_URL", "NATS_SUBJECTS": "NATS_SUBJECT", "REDIS_NAMESPCE_FILE": "REDIS_NAMESPACE_FILE",
		"REDIES_URL": "REDIS_URL", "SLACK_BOT_TOKN": "SLACK_BOT_TOKEN", "SLACK_BOT_TOKEN_FIEL": "SLACK_BOT_TOKEN_FILE",
		"SLACK_CHANEL": "SLACK_CHANNEL", "SLACK_CHANNEL_ID": "SLACK_CHANNEL", "SLACK_TOKEN": "SLACK_BOT_TOKEN", "SLACK_TOKEN_FILE": "SLACK_BOT_TOKEN_FILE",
		"SLACK_WEBHOOK": "SLACK_WEBHOOK_URL", "slack_channel": "SLACK_CHANNEL", "Limit_Global": "LIMIT_GLOBAL", "DEDUP_WINDOW": "DEDUPE_WINDOW",
		"EVENT_MAX_AGES": "EVENT_MAX_AGE", "SEND_CONCURENCY": "SEND_CONCURRENCY", "BATCHSIZE": "BATCH_SIZE", "LOGLEVEL": "LOG_LEVEL",
		"LOG_LVL": "LOG_LEVEL", "ADMIN_ADDRESS": "ADMIN_ADDR", "ADMIN_PORT": "ADMIN_ADDR", "REDIS_URI": "REDIS_URL", "NATS_CREDS": "NATS_CREDS_FILE", "REDIS_HOST": "REDIS_URL", "NATS_HOST": "NATS_URL",
		"NOTIFIER_LIMIT_GLOBAL": "LIMIT_GLOBAL", "NOTIFIER_SLACK_BOT_TOKEN_FILE": "SLACK_BOT_TOKEN_FILE", "NOTIFIER_LOG_LEVL": "LOG_LEVEL",
		"SHUTDOWN_TIMOUT": "SHUTDOWN_TIMEOUT", "DEAD_LETTER_SUBJET": "DEAD_LETTER_SUBJECT", "DIGEST_INTERVALL": "DIGEST_INTERVAL",
		"GLOBAL_LIMIT": "LIMIT_GLOBAL", "CATEGORY_LIMIT": "LIMIT_CATEGORY", "GROUP_LIMIT": "LIMIT_GROUP", "GLOBAL_LIMIT_FILE": "LIMIT_GLOBAL_FILE",
		"LIMIT_GLOBAL ": "LIMIT_GLOBAL", "LIMIT_FOR_TUESDAYS": "-", "DIGEST_ME": "-", "LIMIT_GLOB\x1b": "LIMIT_GLOBAL",
	} {
		got := unknownVariables([]string{name}, nil)
		if len(got) != 1 || got[0].Nearest != strings.TrimPrefix(want, "-") {
			t.Errorf("%q: %v, expected %s", name, got, want)
		} else if text := got[0].String(); strings.ContainsAny(text, "\x1b\n") || !strings.Contains(text, strings.TrimPrefix(want, "-")) {
			t.Errorf("%q is shown as %q", name, text)
		}
	}
}

// However near to a setting, a foreign variable gets no warning: users would learn to ignore warnings.
func TestForeignVariables(t *testing.T) {
	t.Parallel()
	var names []string
	for _, variable := range Variables() {
		names = append(names, variable.Name, variable.Name+"_FILE")
	}
	names = append(names,
		"HOME", "PATH", "TERM", "LANG", "PWD", "SHLVL", "HOSTNAME", "USER", "LOGNAME", "TZ", "BASE_URL", "DATA_URL", "API_URL", "DATABASE_URL",
		"REDIS_PORT", "REDIS_DB", "REDIS_USER", "REDIS_PASSWORD", "REDIS_VERSION", "REDIS_DOWNLOAD_URL", "REDIS_SERVICE_HOST", "REDIS_SERVICE_PORT",
		"REDIS_SERVICE_PORT_REDIS", "REDIS_PORT_6379_TCP", "REDIS_PORT_6379_TCP_ADDR", "REDIS_PORT_6379_TCP_PORT", "REDIS_PORT_6379_TCP_PROTO", "REDIS_ENV_REDIS_URL",
		"NATS_PORT", "NATS_USER", "NATS_PASSWORD", "NATS_SERVICE_HOST", "NATS_SERVICE_PORT", "NATS_SERVICE_PORT_CLIENT", "NATS_PORT_4222_TCP", "NATS_CONTEXT",
		"SLACK_APP_TOKEN", "SLACK_USER_TOKEN", "SLACK_SIGNING_SECRET", "SLACK_CLIENT_ID", "SLACK_CLIENT_SECRET", "SLACK_TEAM_ID", "SLACK_APP_TOKEN_FILE",
		"LOG_DIR", "LOG_FILE", "LOG_PATH", "LOG_LINES", "ADMIN_USER", "ADMIN_PASSWORD", "ADMIN_EMAIL", "ADMIN_NAME", "EVENT_NAME", "EVENT_TYPE", "SEND_GRID_KEY",
		"BATCH_ID", "NOTIFIER_SERVICE_HOST", "NOTIFIER_PORT", "NOTIFIER_PORT_8080_TCP", "NOTIFIER_VERSION", "NOTIFIER_IMAGE", "NOTIFIER_NATS_PORT", "KUBERNETES_SERVICE_HOST", "KUBERNETES_PORT_443_TCP", "OTEL_EXPORTER_OTLP_ENDPOINT",
		"GOMEMLIMIT", "AUTOMEMLIMIT", "HTTPS_PROXY", "NO_PROXY", "NO_COLOR", "SSL_CERT_FILE", "COMPOSE_PROFILES", "COMPOSE_FILE", "", "=", strings.Repeat("LIMIT_", 1000))
	if got := unknownVariables(names, nil); len(got) > 0 {
		t.Errorf("taken for settings: %v", got)
	}
	set := map[string]bool{"REDIS_URL": true, "NATS_CREDS_FILE": true, "ADMIN_ADDR": true, "SLACK_BOT_TOKEN": true}
	if got := unknownVariables([]string{"REDIS_URI", "NATS_CREDS", "ADMIN_PORT", "SLACK_TOKEN"}, set); len(got) != 1 || got[0].Name != "SLACK_TOKEN" {
		t.Errorf("beside the settings that they mean: %v, expected SLACK_TOKEN alone", got)
	}
}

// The workers inherit all variables of docker-compose.yml and .env.example.
func TestOwnFilesHaveNoUnknownVariables(t *testing.T) {
	t.Parallel()
	var names []string
	for _, file := range []string{"../../docker-compose.yml", "../../.env.example"} {
		text, err := os.ReadFile(file)
		kit.Check(t, err)
		for _, found := range regexp.MustCompile(`(?m)^#?([A-Z][A-Z0-9_]+)=|\$\{([A-Z][A-Z0-9_]+)|^ +([A-Z][A-Z0-9_]+): `).FindAllStringSubmatch(string(text), -1) {
			names = append(names, found[1]+found[2]+found[3])
		}
	}
	if len(names) < 50 {
		t.Fatalf("only %d variables are found: %v", len(names), names)
	}
	// from files, beside NATS_HOST and REDIS_HOST of another service
	set := map[string]bool{"NATS_URL": true, "REDIS_URL": true}
	if got := unknownVariables(names, set); len(got) > 0 {
		t.Errorf("taken for mistakes: %v", got)
	}
}

// TestManyUnknownVariables: an environment of tens of thousands of them is read in no time, and few are
// listed.
func TestManyUnknownVariables(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 20_000 {
		names = append(names, fmt.Sprintf("LIMIT_%d", i), fmt.Sprintf("SLACK_%d_TOKEN_OF_SOMEBODY", i))
	}
	if got := unknownVariables(names, nil); len(got) != mostUnknown || got[0].Name != "LIMIT_0" {
		t.Errorf("%d variables are listed, expected %d", len(got), mostUnknown)
	}
}

// TestUnknownVariablesOfTheEnvironment: an empty one is not set, and no value is shown.
func TestUnknownVariablesOfTheEnvironment(t *testing.T) {
	setenv(t, map[string]string{"LIMIT_GLOBL": "secret", "NATS_STREEM": "", "REDIS_URL": "redis://one", "REDIS_URI": "redis://one"})
	s, err := loaded(t)
	kit.Check(t, err)
	if got, want := fmt.Sprint(s.Unknown), "[LIMIT_GLOBL: is not a setting of notifier, and has no effect; LIMIT_GLOBAL is one]"; got != want {
		t.Errorf("%s, expected %s", got, want)
	}
}

// TestUnknownVariablesBesideProblems: one of them may be why another variable is missing.
func TestUnknownVariablesBesideProblems(t *testing.T) {
	setenv(t, map[string]string{"SLACK_BOT_TOKEN": "", "SLACK_TOKEN": "xoxb-s3cret", "NOTIFIER_LIMIT_GLOBAL": "5/1m"})
	_, err := loaded(t)
	got := lines(t, err)
	want := []string{
		"NOTIFIER_LIMIT_GLOBAL: is not a setting of notifier, and has no effect; LIMIT_GLOBAL is one",
		"SLACK_TOKEN: is not a setting of notifier, and has no effect; SLACK_BOT_TOKEN is one",
	}
	if len(got) != 3 || !strings.HasPrefix(got[0], "SLACK_BOT_TOKEN: is not set") || !slices.Equal(got[1:], want) {
		t.Errorf("%q, expected the missing token and then %q", got, want)
	}
}
