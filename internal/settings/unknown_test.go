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

func TestNearestSetting(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"LIMIT_GLOBL": "LIMIT_GLOBAL", "LIMIT_OVERIDES": "LIMIT_OVERRIDES", "NATS_STREEM": "NATS_STREAM", "NATS_STREAM_NAME": "NATS_STREAM",
		"NATS_URLS": "NATS_URL", "NATS_CREDS": "NATS_CREDS_FILE", "REDIS_NAMESPCE_FILE": "REDIS_NAMESPACE_FILE", "REDIS_URI": "REDIS_URL",
		"SLACK_BOT_TOKN": "SLACK_BOT_TOKEN", "SLACK_TOKEN": "SLACK_BOT_TOKEN", "SLACK_TOKEN_FILE": "SLACK_BOT_TOKEN_FILE",
		"SLACK_WEBHOOK": "SLACK_WEBHOOK_URL", "SLACK_CHANNEL_ID": "SLACK_CHANNEL", "slack_channel": "SLACK_CHANNEL",
		"EVENT_MAX_AGES": "EVENT_MAX_AGE", "LOG_LVL": "LOG_LEVEL", "ADMIN_ADDRESS": "ADMIN_ADDR", "SHUTDOWN_TIMOUT": "SHUTDOWN_TIMEOUT",
		"NOTIFIER_LIMIT_GLOBAL": "LIMIT_GLOBAL", "NOTIFIER_LOG_LEVL": "LOG_LEVEL", "DEAD_LETTER_SUBJET": "DEAD_LETTER_SUBJECT",
		"LIMIT_FOR_TUESDAYS": "", "DIGEST_ME_OFTEN_PLEASE": "", "NATS_MODE": "-",
	} {
		nearest, similar := nearestSetting(name, Variables())
		if want == "-" && !similar || similar && nearest == want {
			continue
		}
		t.Errorf("%s: %q %t, expected %q", name, nearest, similar, want)
	}
}

// A foreign variable gets no warning, however near it is to a setting: users would learn to ignore warnings.
func TestForeignVariables(t *testing.T) {
	t.Parallel()
	names := []string{
		"HOME", "PATH", "TERM", "HOSTNAME", "LOGNAME", "BASE_URL", "DATABASE_URL",
		"REDIS_PORT", "REDIS_HOST", "REDIS_DB", "REDIS_USER", "REDIS_PASSWORD", "REDIS_VERSION", "REDIS_DOWNLOAD_URL", "REDIS_SERVICE_HOST",
		"REDIS_SERVICE_PORT", "REDIS_SERVICE_PORT_REDIS", "REDIS_PORT_6379_TCP", "REDIS_PORT_6379_TCP_ADDR", "REDIS_ENV_REDIS_URL",
		"NATS_PORT", "NATS_HOST", "NATS_USER", "NATS_PASSWORD", "NATS_SERVER", "NATS_SERVICE_HOST", "NATS_SERVICE_PORT_CLIENT", "NATS_PORT_4222_TCP",
		"NATS_CONTEXT", "SLACK_APP_TOKEN", "SLACK_USER_TOKEN", "SLACK_SIGNING_SECRET", "SLACK_CLIENT_ID", "SLACK_TEAM_ID", "SLACK_APP_TOKEN_FILE",
		"LOG_DIR", "LOG_FILE", "LOG_PATH", "LOG_LINES", "ADMIN_USER", "ADMIN_PASSWORD", "ADMIN_EMAIL", "ADMIN_NAME", "ADMIN_PORT", "EVENT_NAME",
		"EVENT_TYPE", "SEND_GRID_KEY", "BATCH_ID", "NOTIFIER_PORT", "NOTIFIER_PORT_8080_TCP", "NOTIFIER_VERSION", "NOTIFIER_REPLICAS",
		"NOTIFIER_NATS_PORT", "KUBERNETES_SERVICE_HOST", "OTEL_EXPORTER_OTLP_ENDPOINT", "GOMEMLIMIT", "HTTPS_PROXY", "NO_COLOR", "SSL_CERT_FILE",
		"COMPOSE_FILE", "", "=", strings.Repeat("LIMIT_", 1000),
	}
	for _, v := range Variables() {
		names = append(names, v.Name, v.Name+"_FILE")
	}
	for _, name := range names {
		if nearest, similar := nearestSetting(name, Variables()); similar {
			t.Errorf("%s is taken for %q", name, nearest)
		}
	}
}

// The workers inherit all variables of docker-compose.yml and .env.example.
func TestOwnFilesHaveNoUnknownVariables(t *testing.T) {
	t.Parallel()
	found := 0
	for _, file := range []string{"../../docker-compose.yml", "../../.env.example"} {
		text, err := os.ReadFile(file)
		kit.Check(t, err)
		for _, match := range regexp.MustCompile(`(?m)^#?([A-Z][A-Z0-9_]+)=|\$\{([A-Z][A-Z0-9_]+)|^ +([A-Z][A-Z0-9_]+): `).FindAllStringSubmatch(string(text), -1) {
			found++
			if nearest, similar := nearestSetting(match[1]+match[2]+match[3], Variables()); similar {
				t.Errorf("%s: %q is taken for %q", file, match[0], nearest)
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d variables are found", found)
	}
}

// Empty variables count as unset, no value is shown, and warnings stand below the problems, which they may explain.
func TestUnknownVariables(t *testing.T) {
	setenv(t, map[string]string{"LIMIT_GLOBL": "hunter2", "NATS_STREEM": "", "LIMIT_\x1b[1m": "x"})
	s, err := loaded(t)
	kit.Check(t, err)
	want := []string{
		"LIMIT_?[1m: is not a setting of notifier, and has no effect",
		"LIMIT_GLOBL: is not a setting of notifier, and has no effect; LIMIT_GLOBAL is one",
	}
	if !slices.Equal(s.Unknown, want) {
		t.Errorf("%q, expected %q", s.Unknown, want)
	}
	t.Setenv("SLACK_CHANNEL", "@alice")
	_, err = loaded(t)
	if got := lines(t, err); len(got) != 3 || !slices.Equal(got[1:], want) {
		t.Errorf("%q, expected a problem and the warnings", got)
	}
	if _, err := loaded(t, GroupLimits); err != nil {
		t.Errorf("a command is told of %v", err)
	}
	for i := range 5000 {
		t.Setenv(fmt.Sprintf("LIMIT_%d", i), "x")
	}
	t.Setenv("SLACK_CHANNEL", "#alerts")
	if s, err := loaded(t); err != nil || len(s.Unknown) != maxUnknown {
		t.Errorf("%d warnings and %v, expected %d", len(s.Unknown), err, maxUnknown)
	}
}
