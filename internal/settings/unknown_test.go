package settings

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"notifier/test/kit"
)

func TestNearestSetting(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"LIMIT_GLOBL": "LIMIT_GLOBAL", "NATS_STREAM_NAME": "NATS_STREAM", "NATS_URLS": "NATS_URL", "NATS_CREDS": "NATS_CREDS_FILE",
		"REDIS_NAMESPCE_FILE": "REDIS_NAMESPACE_FILE", "SLACK_TOKEN_FILE": "SLACK_BOT_TOKEN_FILE", "slack_channel": "SLACK_CHANNEL",
		"NOTIFIER_LOG_LEVL": "LOG_LEVEL", "LIMIT_FOR_TUESDAYS": "", "NATS_MODE": "-",
	} {
		nearest, similar := nearestSetting(name, Variables())
		if want == "-" && !similar || similar && nearest == want {
			continue
		}
		t.Errorf("%s: %q %t, expected %q", name, nearest, similar, want)
	}
}

// Variables of other programs cause no warning, even with names close to a setting. Operators would learn to
// ignore warnings.
func TestForeignVariables(t *testing.T) {
	t.Parallel()
	names := []string{
		"HOME", "LOGNAME", "DATABASE_URL", "REDIS_HOST", "REDIS_PASSWORD", "REDIS_DOWNLOAD_URL", "REDIS_SERVICE_PORT_REDIS",
		"REDIS_PORT_6379_TCP_ADDR", "REDIS_ENV_REDIS_URL", "NATS_SERVER", "NATS_SERVICE_PORT_CLIENT", "NATS_CONTEXT",
		"SLACK_APP_TOKEN_FILE", "SLACK_USER_TOKEN", "LOG_FILE", "ADMIN_PORT", "EVENT_NAME", "BATCH_ID", "NOTIFIER_PORT_8080_TCP",
		"NOTIFIER_REPLICAS", "NOTIFIER_NATS_PORT", "OTEL_EXPORTER_OTLP_ENDPOINT", "", "=", strings.Repeat("LIMIT_", 1000),
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

// Empty variables count as unset, and values are never shown. Warnings follow the problems, which they may
// explain.
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
