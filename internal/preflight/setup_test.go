package preflight

import (
	"context"
	"strings"
	"testing"

	"notifier/internal/settings"
	"notifier/test/kit"
)

// secret is in every URL that a test logs in with, and never in a finding.
const secret = "hunter2marker"

// parsed are the settings of a worker that differ from the defaults as change says.
func parsed(t *testing.T, change func(env *settings.Environment)) settings.Settings {
	t.Helper()
	env := settings.Default()
	env.SlackBotToken, env.SlackChannel = "xoxb-"+secret, "C0123"
	change(&env)
	problems := &settings.Problems{}
	s := settings.Parse(env, problems)
	kit.Check(t, problems.Err())
	t.Cleanup(func() { _ = s.Store.Redis.Close() })
	return s
}

// found runs one examination and returns its findings.
func found(t *testing.T, examine func(context.Context, settings.Settings, *report), s settings.Settings) []Finding {
	t.Helper()
	r := &report{}
	examine(t.Context(), s, r)
	for _, finding := range r.findings {
		if strings.Contains(line(finding), secret) {
			t.Errorf("a secret is shown: %s", line(finding))
		}
	}
	return r.findings
}

// line is a finding as people see it.
func line(f Finding) string { return string(f.Level) + "  " + f.Text + "; " + f.Advice }

// wantFinding expects a finding of this level whose line contains the text.
func wantFinding(t *testing.T, findings []Finding, level Level, text string) {
	t.Helper()
	for _, finding := range findings {
		if finding.Level == level && strings.Contains(line(finding), text) {
			return
		}
	}
	t.Errorf("no finding %s with %q in %q", level, text, findings)
}

// wantNone expects no finding of this level.
func wantNone(t *testing.T, findings []Finding, level Level) {
	t.Helper()
	for _, finding := range findings {
		if finding.Level == level {
			t.Errorf("unexpected: %s", line(finding))
		}
	}
}
