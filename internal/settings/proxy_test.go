package settings_test

import (
	"strings"
	"testing"

	"notifier/internal/settings"
)

// TestProxies: a proxy that Go ignores is an error, and no password is in its text.
func TestProxies(t *testing.T) {
	const password = "hunter2"
	clear := func(t *testing.T) {
		t.Helper()
		for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
			t.Setenv(name, "")
		}
		t.Setenv("SLACK_WEBHOOK_URL", "https://hooks.slack.com/services/T0/B0/x")
	}
	for _, valid := range []string{
		"http://proxy:3128", "https://me:hunter2@proxy.corp:443/", "socks5://127.0.0.1:1080", "proxy:3128", "proxy",
		"http://me:hunter%232@[::1]:3128", "me:hunter2@proxy:3128",
	} {
		clear(t)
		t.Setenv("HTTPS_PROXY", valid)
		if s, err := settings.Load(); err != nil {
			t.Errorf("%s: %v", valid, err)
		} else {
			_ = s.Store.Redis.Close()
		}
	}
	for _, invalid := range []string{
		"http://me:hunter2@proxy:port", "http://me:hunt#er2@proxy:3128", "http://me:hunter2@proxy:99999", "http:/proxy:3128",
		"ftp://me:hunter2@proxy:21", "://proxy", "http://", "http://proxy:3128:1", "http://me:hunter2@proxy:", "http://pro xy",
	} {
		for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
			clear(t)
			t.Setenv(name, invalid)
			_, err := settings.Load()
			if err == nil {
				t.Errorf("%s=%s is taken", name, invalid)
				continue
			}
			if !strings.HasPrefix(err.Error(), name+": is not the URL of a proxy that notifier can use;") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s=%s: %v", name, invalid, err)
			}
			if strings.Contains(err.Error(), password) {
				t.Errorf("%v", err)
			}
		}
	}
	clear(t)
	t.Setenv("HTTPS_PROXY", "http://proxy:3128")
	t.Setenv("https_proxy", "http://proxy:port") // Go does not read it
	if s, err := settings.Load(); err != nil {
		t.Errorf("%v", err)
	} else {
		_ = s.Store.Redis.Close()
	}
	t.Setenv("HTTPS_PROXY", "http://proxy:port") // concerns Slack alone
	if _, err := settings.Load(settings.GroupNATS); err != nil {
		t.Errorf("%v", err)
	}
}
