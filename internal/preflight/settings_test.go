package preflight

import (
	"strings"
	"testing"

	"notifier/internal/settings"
)

// TestSettingsThatDoNotFit: settings that are valid each by itself but not together.
func TestSettingsThatDoNotFit(t *testing.T) {
	t.Parallel()
	s := parsed(t, func(env *settings.Environment) {
		env.LimitGlobal, env.LimitCategory = "20/30m0s+5/1m", "20/30m+6/1m"
		env.LimitOverrides = "errors=30/10m,db=19/30m,tight=1000/1h+1/1s"
		env.DedupeWindow, env.ShutdownTimeout, env.AdminAddr = "10m", "5s", "0.0.0.0:8080"
		env.SlackMarkup, env.EventMaxAge = "allow", "1h"
	})
	limits := found(t, checkLimits, s)
	wantFinding(t, limits, OK, "20/30m+5/1m overall, 20/30m+6/1m per category")
	wantFinding(t, limits, Warn, "the category limit 20/30m+6/1m allows everything that the global limit 20/30m+5/1m allows")
	wantFinding(t, limits, Warn, "the limit of errors 30/10m allows everything")
	wantFinding(t, limits, OK, "19/30m for db")
	for _, finding := range limits {
		for _, never := range []string{"limit of db", "limit of tight", "EVENT_MAX_AGE is 0"} {
			if strings.Contains(finding.Text, never) {
				t.Errorf("unexpected: %s", line(finding))
			}
		}
	}
	alone := found(t, checkSettings, s)
	wantFinding(t, alone, Warn, "SHUTDOWN_TIMEOUT 5s is shorter than SLACK_TIMEOUT 10s")
	wantFinding(t, alone, Note, "ADMIN_ADDR 0.0.0.0:8080 can be reached from the network and asks for no token")
	wantFinding(t, alone, Note, "SLACK_MARKUP is allow")
	for _, findings := range [][]Finding{limits, alone} {
		wantNone(t, findings, Fail)
	}
}

// TestAnAdminServerWithAToken needs no note.
func TestAnAdminServerWithAToken(t *testing.T) {
	t.Parallel()
	findings := found(t, checkSettings, parsed(t, func(env *settings.Environment) {
		env.AdminAddr, env.AdminToken = "0.0.0.0:1", "correct-horse-battery"
	}))
	wantFinding(t, findings, OK, "ADMIN_ADDR 0.0.0.0:1 can be reached from the network and asks for ADMIN_TOKEN")
	wantNone(t, findings, Note)
	for _, finding := range findings {
		if strings.Contains(line(finding), "correct-horse") {
			t.Errorf("the token is shown: %s", line(finding))
		}
	}
}

// TestUnencrypted: what is secret does not cross a network in plain text without a warning.
func TestUnencrypted(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]bool{
		"http://slack.example/api/": true, "https://slack.example/api/": false, "http://127.0.0.1:8090/api/": false, "http://localhost/": false, "": false,
	} {
		if got := unencrypted(url); got != want {
			t.Errorf("%q: %t, expected %t", url, got, want)
		}
	}
}

// TestExposedSecrets: a file that others may use is a warning that names it and what to do.
func TestExposedSecrets(t *testing.T) {
	t.Parallel()
	s := parsed(t, func(*settings.Environment) {})
	s.Exposed = []settings.ExposedFile{{Variable: "SLACK_BOT_TOKEN_FILE", Path: "/run/secrets/token", Mode: 0o644}}
	findings := found(t, checkSettings, s)
	wantFinding(t, findings, Warn, "SLACK_BOT_TOKEN_FILE: /run/secrets/token has mode 0644")
	wantFinding(t, findings, Warn, "chmod o-rwx")
}
