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
		"NOTIFIER_LOG_LEVL": "LOG_LEVEL", "LIMIT_FOR_TUESDAYS": "", "NATS_MODE": "", "SLACK_LINK_HOSTS": "",
		"SLACK_APP_TOKEN": "SLACK_BOT_TOKEN", "ADMIN_HOSTS": "", "EVENT_X": "", "REDIS_HOST": "", "ADMIN_PORT": "",
		"SEND_TO": "", "SHUTDOWN_GRACE": "", "DEDUPE_STORE": "", "DEAD_LETTER": "", "DROPPED_EVENTS": "",
	} {
		if nearest, similar := nearestSetting(name, Variables()); !similar || nearest != want {
			t.Errorf("%s: %q %t, expected %q", name, nearest, similar, want)
		}
	}
}

// Variables of other programs and of the deployment cause no warning. Operators would learn to ignore
// warnings.
func TestForeignVariables(t *testing.T) {
	t.Parallel()
	names := []string{
		"HOME", "LOGNAME", "DATABASE_URL", "LOG_FILE", "BATCH_ID", "REDISCLI_AUTH",
		"NATS_WORKER_PASSWORD", "NATS_PUBLISHER_PASSWORD",
		"NATS_OPERATOR_PASSWORD", "NATS_PORT", "REDIS_PASSWORD", "NOTIFIER_PORT_8080_TCP", "NOTIFIER_REPLICAS",
		"OTEL_EXPORTER_OTLP_ENDPOINT", "", "=", strings.Repeat("LIMIT_", 1000),
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

// Kubernetes and Docker set variables for services with names such as redis, slack-gateway and admin.
func TestInjectedVariables(t *testing.T) {
	setenv(t, map[string]string{
		"REDIS_SERVICE_HOST": "10.0.0.1", "REDIS_SERVICE_PORT": "6379", "REDIS_SERVICE_PORT_REDIS": "6379",
		"REDIS_PORT": "tcp://10.0.0.1:6379", "REDIS_PORT_6379_TCP": "tcp://10.0.0.1:6379",
		"REDIS_PORT_6379_TCP_ADDR": "10.0.0.1", "REDIS_PORT_6379_TCP_PORT": "6379",
		"REDIS_PORT_6379_TCP_PROTO": "tcp",
		"NATS_SERVICE_PORT_CLIENT":  "4222", "NATS_PORT_53_UDP_PROTO": "udp",
		"REDIS_ENV_REDIS_URL":        "redis://10.0.0.1",
		"SLACK_GATEWAY_SERVICE_HOST": "10.0.0.2", "SLACK_GATEWAY_PORT": "udp://10.0.0.2:1",
		"ADMIN_PORT": "8080",
	})
	s, err := loaded(t)
	kit.Check(t, err)
	if want := []string{"ADMIN_PORT: is not a setting of notifier, and has no effect"}; !slices.Equal(s.Unknown, want) {
		t.Errorf("%q, expected %q", s.Unknown, want)
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
