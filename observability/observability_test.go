// Package observability_test checks the files for Prometheus and Grafana, which are not started.
package observability_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/test/kit"
)

const (
	rulesFile     = "rules/alerts.yml"
	dashboardFile = "grafana/dashboards/notifier.json"
)

// promtool fails the test if promtool does, and skips the test without promtool, unless
// NOTIFIER_TEST_PROMTOOL=require.
func promtool(t *testing.T, arguments ...string) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		const why = "NOT CHECKED: there is no promtool in PATH (Debian's package prometheus has it)"
		if os.Getenv("NOTIFIER_TEST_PROMTOOL") == "require" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "promtool", arguments...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(arguments, " "), err, bytes.TrimSpace(out))
	}
}

func TestPrometheusFiles(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "config", "prometheus.yml") // with the rules
	promtool(t, "test", "rules", "rules/alerts_test.yml")
}

// queries returns the dashboard's expressions by panel, with values for Grafana's variables.
func queries(t *testing.T) map[string][]string {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	kit.Check(t, json.Unmarshal([]byte(read(t, dashboardFile)), &dashboard))
	variables := strings.NewReplacer("$__rate_interval", "1m", "$service", "notifier")
	all := map[string][]string{}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			all[panel.Title] = append(all[panel.Title], variables.Replace(target.Expr))
		}
	}
	return all
}

// TestDashboardQueries parses the expressions as rules.
func TestDashboardQueries(t *testing.T) {
	t.Parallel()
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for panel, expressions := range queries(t) {
		for i, expr := range expressions {
			fmt.Fprintf(&rules, "  - {record: q, expr: %q, labels: {panel: %q}}\n", expr, fmt.Sprint(panel, i))
		}
	}
	file := filepath.Join(t.TempDir(), "queries.yml")
	kit.Check(t, os.WriteFile(file, []byte(rules.String()), 0o600))
	promtool(t, "check", "rules", file)
}

var ownMetric = regexp.MustCompile(`\bnotifier[_:][\w:]+`)

// TestMetricsExist compares the names in the rules and the dashboard with metrics.txt, which a test in
// internal/telemetry compares with the registry. Each panel has a metric of notifier.
func TestMetricsExist(t *testing.T) {
	t.Parallel()
	listed := read(t, "metrics.txt")
	exists := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^(notifier_\w+) +(\w+)`).FindAllStringSubmatch(listed, -1) {
		exists[found[1]] = found[2] != "histogram"
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			exists[found[1]+suffix] = found[2] == "histogram"
		}
	}
	// Comments and texts of the rules may name metrics, too; their names have to exist as well.
	rules := read(t, rulesFile)
	for _, found := range regexp.MustCompile(`(?m)- record: (\S+)$`).FindAllStringSubmatch(rules, -1) {
		exists[found[1]] = true
	}
	places := queries(t)
	if len(places) == 0 {
		t.Fatalf("%s has no panels", dashboardFile)
	}
	places[rulesFile] = []string{rules}
	for place, texts := range places {
		names := ownMetric.FindAllString(strings.Join(texts, "\n"), -1)
		if len(names) == 0 {
			t.Errorf("%s names no metric of notifier", place)
		}
		for _, name := range names {
			if !exists[name] {
				t.Errorf("%s: there is no metric %s", place, name)
			}
		}
	}
}

// TestAlertsAreInTheRunbook: each alert has a section, and a test that expects it.
func TestAlertsAreInTheRunbook(t *testing.T) {
	t.Parallel()
	alert := regexp.MustCompile(`(?m)^ +- alert: (\S+)$`)
	section := regexp.MustCompile(`(?m)^### (Notifier\w+)$`)
	expected := regexp.MustCompile(`\{labels: '\{alertname="(\w+)", alertstate="firing"`)
	alerts := found(alert, read(t, rulesFile))
	if diff := cmp.Diff(alerts, found(section, read(t, "../docs/runbook.md"))); diff != "" {
		t.Errorf("the sections of docs/runbook.md (+) are not those of the alerts (-):\n%s", diff)
	}
	if diff := cmp.Diff(alerts, found(expected, read(t, "rules/alerts_test.yml"))); diff != "" {
		t.Errorf("the alerts expected by the tests (+) are not all of them (-):\n%s", diff)
	}
}

// found returns the names that a pattern finds, sorted, each once.
func found(pattern *regexp.Regexp, text string) []string {
	var names []string
	for _, match := range pattern.FindAllStringSubmatch(text, -1) {
		names = append(names, match[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(file))
	kit.Check(t, err)
	return string(text)
}
