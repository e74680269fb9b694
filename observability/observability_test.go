// Package observability_test checks the files for Prometheus and Grafana: the configuration, the alert rules
// with their unit tests, and the dashboard. Grafana itself is not needed.
package observability_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"notifier/test/kit"
)

const (
	configFile    = "prometheus.yml"
	rulesFile     = "rules/alerts.yml"
	rulesTestFile = "rules/alerts_test.yml"
	dashboardFile = "grafana/dashboards/notifier.json"
	sourceFile    = "grafana/provisioning/datasources/prometheus.yml"
	metricsFile   = "metrics.txt"
)

// promtool runs promtool and returns its output. Without promtool the test is skipped, or fails if
// NOTIFIER_TEST_PROMTOOL=require.
func promtool(t *testing.T, arguments ...string) (said string, err error) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		const why = "NOT CHECKED: there is no promtool in PATH (Debian's package prometheus has it)"
		if os.Getenv("NOTIFIER_TEST_PROMTOOL") == "require" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "promtool", arguments...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	return out.String(), err
}

func TestPromtoolAccepts(t *testing.T) {
	t.Parallel()
	for _, arguments := range [][]string{
		{"check", "config", configFile},
		{"check", "rules", rulesFile},
		{"test", "rules", rulesTestFile},
	} {
		t.Run(strings.Join(arguments, " "), func(t *testing.T) {
			t.Parallel()
			if said, err := promtool(t, arguments...); err != nil {
				t.Errorf("%v\n%s", err, said)
			}
		})
	}
}

// A rule as alerts.yml has it.
type rule struct {
	name   string // of an alert or a recorded series
	alert  bool
	text   string // the whole rule
	expr   string
	labels []string // of the series that a recording rule makes
}

var (
	ruleStart   = regexp.MustCompile(`(?m)^ +- (alert|record): (\S+)\n`)
	exprLine    = regexp.MustCompile(`(?m)^( +)expr: (.*)\n`)
	commentLine = regexp.MustCompile(`(?m)^ *#.*\n`)
)

// rules reads alerts.yml, which is written in one way: each rule begins with "- alert:" or "- record:", and
// expr is one line or an indented block. promtool has checked the rest of its syntax.
func rules(t *testing.T) []rule {
	t.Helper()
	text := commentLine.ReplaceAllString(read(t, rulesFile), "")
	starts := ruleStart.FindAllStringSubmatchIndex(text, -1)
	var all []rule
	for i, at := range starts {
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		r := rule{alert: text[at[2]:at[3]] == "alert", name: text[at[4]:at[5]], text: text[at[0]:end]}
		match := exprLine.FindStringSubmatchIndex(r.text)
		if match == nil {
			t.Fatalf("%s has no expr", r.name)
		}
		indent := r.text[match[2]:match[3]]
		r.expr = r.text[match[4]:match[5]]
		if r.expr == "|" {
			r.expr = ""
			for _, line := range strings.SplitAfter(r.text[match[1]:], "\n") {
				if !strings.HasPrefix(line, indent+" ") {
					break
				}
				r.expr += line
			}
		}
		if !r.alert {
			by := grouping.FindStringSubmatch(r.expr)
			if by == nil {
				t.Fatalf("%s: a recording rule should say by which labels it sums", r.name)
			}
			r.labels = names.FindAllString(by[1], -1)
		}
		all = append(all, r)
	}
	if len(all) < 10 {
		t.Fatalf("found only %d rules in %s", len(all), rulesFile)
	}
	return all
}

// Each alert waits before it fires, says how bad it is, and is tested to fire.
func TestAlertsAreComplete(t *testing.T) {
	t.Parallel()
	tests := commentLine.ReplaceAllString(read(t, rulesTestFile), "")
	for _, r := range rules(t) {
		if !r.alert {
			continue
		}
		for what, pattern := range map[string]string{
			"for, of a minute or more": `(?m)^ +for: [1-9]\d*[mh]$`, "severity": `(?m)^ +severity: (critical|warning)$`,
		} {
			if !regexp.MustCompile(pattern).MatchString(r.text) {
				t.Errorf("%s has no %s", r.name, what)
			}
		}
		if !strings.Contains(tests, `ALERTS{alertname="`+r.name+`", alertstate="firing"`) {
			t.Errorf("no test in %s expects %s to fire", rulesTestFile, r.name)
		}
	}
}

// prometheus.yml scrapes services of docker-compose.yml, on the port of their ADMIN_ADDR.
func TestTargetsAreServices(t *testing.T) {
	t.Parallel()
	config, compose := read(t, configFile), read(t, "../docker-compose.yml")
	services := regexp.MustCompile(`(?m)^ +- names: \[([^\]]+)\]$`).FindStringSubmatch(config)
	port := regexp.MustCompile(`(?m)^ +port: (\d+)\b`).FindStringSubmatch(config)
	if services == nil || port == nil {
		t.Fatalf("%s has no names or no port", configFile)
	}
	for _, service := range strings.Split(services[1], ", ") {
		block := regexp.MustCompile(`(?m)^  ` + service + `:\n(?:(?:    .*)?\n)+`).FindString(compose)
		if !strings.Contains(block, "ADMIN_ADDR: 0.0.0.0:"+port[1]) {
			t.Errorf("docker-compose.yml has no service %s that listens on port %s", service, port[1])
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(file))
	kit.Check(t, err)
	return string(text)
}

// The runbook has a row for each alert, and for no other.
func TestAlertsAreInTheRunbook(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(read(t, "../docs/runbook.md"), "\n## Alerts\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var rows, alerts []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(Notifier\\w+)`").FindAllStringSubmatch(section, -1) {
		rows = append(rows, row[1])
	}
	for _, r := range rules(t) {
		if r.alert {
			alerts = append(alerts, r.name)
		}
	}
	slices.Sort(rows)
	slices.Sort(alerts)
	if !slices.Equal(rows, alerts) {
		t.Errorf("docs/runbook.md explains %q, expected %q", rows, alerts)
	}
}
