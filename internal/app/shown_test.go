package app

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/settings"
	"notifier/internal/status"
	"notifier/test/kit"
)

// parsed returns the settings of a worker with a changed environment.
func parsed(t *testing.T, env map[string]string, change func(env map[string]string)) settings.Settings {
	t.Helper()
	env = maps.Clone(env)
	change(env)
	s, err := settings.From(env)
	kit.Check(t, err)
	t.Cleanup(func() { _ = s.Store.Redis.Close() }) // a worker has closed it already
	return s
}

// TestTwoWorkersWithDifferentSettings reads the status with a third configuration: the limits of the newest
// worker count, and a condition reports the difference.
func TestTwoWorkersWithDifferentSettings(t *testing.T) {
	t.Parallel()
	var env map[string]string
	first := servers(t, func(e map[string]string) { e["LIMIT_GLOBAL"] = "7/1h"; env = e })
	second := parsed(t, env, func(e map[string]string) { e["LIMIT_GLOBAL"] = "9/1h" })
	reader := parsed(t, env, func(e map[string]string) { e["LIMIT_GLOBAL"] = "100/1h" })
	store, err := OpenStore(reader.Store, reader.Deciding())
	kit.Check(t, err)
	limitNow := func() string {
		now := store.Status.Read(t.Context())
		kit.Check(t, now.Unreadable())
		return now.Limits[0].Limit
	}
	if limit := limitNow(); limit != "100/1h" {
		t.Errorf("the limit is %s before any worker, expected the reader's own", limit)
	}
	logs, stopFirst := startWorker(t, first)
	kit.Eventually(t, "the status has the first worker's limit", func() bool { return limitNow() == "7/1h" })
	_, stopSecond := startWorker(t, second)
	kit.Eventually(t, "the status has the newest worker's limit", func() bool { return limitNow() == "9/1h" })
	differs := func() bool {
		return slices.ContainsFunc(store.Status.Read(t.Context()).Conditions, func(c status.Condition) bool {
			return c.Type == "settings" && c.State == status.Warn
		})
	}
	if !differs() {
		t.Errorf("no condition settings: %+v", store.Status.Read(t.Context()).Conditions)
	}
	different := func(n int) bool {
		return strings.Contains(scraped(t, logs), fmt.Sprintf("\nnotifier_settings_different %d\n", n))
	}
	kit.Eventually(t, "the metrics of the first have it", func() bool { return different(2) })
	stopSecond()
	kit.Eventually(t, "it is over", func() bool {
		return !differs() && limitNow() == "7/1h" && different(1)
	})
	stopFirst()
	if limit := limitNow(); limit != "100/1h" {
		t.Errorf("the limit is %s after the last worker, expected the reader's own", limit)
	}
}

// TestNothingSecretIsShown: not even where the settings have secrets in every place that can have one.
func TestNothingSecretIsShown(t *testing.T) {
	const secret = "hunter2marker"
	s := servers(t, func(e map[string]string) {
		e["SLACK_BOT_TOKEN"], e["ADMIN_TOKEN"] = "xoxb-"+secret, secret+secret+secret
		e["NATS_URL"] = strings.Replace(e["NATS_URL"], "//", "//user:"+secret+"@", 1)
		e["REDIS_URL"] = strings.Replace(e["REDIS_URL"], "//", "//user:"+secret+"@", 1)
		e["SLACK_API_URL"] = strings.Replace(e["SLACK_API_URL"], "//", "//user:"+secret+"@", 1)
	})
	t.Cleanup(func() { _ = s.Store.Redis.Close() })
	text, err := json.Marshal(s.Snapshot())
	kit.Check(t, err)
	if strings.Contains(string(text), secret) || strings.Contains(string(text), "://") {
		t.Errorf("%s", text)
	}
	other := s
	other.AdminToken, other.Slack.Token, other.AdminAddr = "x", "y", "z"
	if diff := cmp.Diff(s.Snapshot(), other.Snapshot()); diff != "" {
		t.Errorf("the hash depends on what each worker may have otherwise (-one +other):\n%s", diff)
	}
}
