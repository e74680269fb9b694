// Package observability_test checks what Prometheus and Grafana are given: the configuration, the alert rules with their
// unit tests, and the dashboard. Grafana itself is not needed.
package observability_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	configFile    = "prometheus.yml"
	rulesFile     = "rules/alerts.yml"
	rulesTestFile = "rules/alerts_test.yml"
	dashboardFile = "grafana/dashboards/notifier.json"
	sourceFile    = "grafana/provisioning/datasources/prometheus.yml"
	metricsFile   = "metrics.txt"
)

// promtool runs it, and gives what it says. Without promtool the test is skipped, or fails where
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
	for _, arguments := range [][]string{
		{"check", "config", configFile},
		{"check", "rules", rulesFile},
		{"test", "rules", rulesTestFile},
	} {
		t.Run(strings.Join(arguments, " "), func(t *testing.T) {
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

// rules reads alerts.yml, which is written in one way: each rule begins with "- alert:" or "- record:", and expr is one
// line or an indented block. promtool has checked the rest of its syntax.
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

// Each alert waits before it fires, says how bad it is and what to do, and is tested both ways.
func TestAlertsAreComplete(t *testing.T) {
	tests := commentLine.ReplaceAllString(read(t, rulesTestFile), "")
	// An empty expectation: no exp_samples, and the expression asks for every alert that fires.
	if strings.Count(tests, `- {expr: 'ALERTS{alertstate="firing"}', eval_time:`) < 20 {
		t.Errorf("%s hardly ever expects that nothing fires", rulesTestFile)
	}
	seen := map[string]bool{}
	for _, r := range rules(t) {
		if !r.alert {
			continue
		}
		if seen[r.name] {
			t.Errorf("there are two alerts %s", r.name)
		}
		seen[r.name] = true
		for what, pattern := range map[string]string{
			"for, of a minute or more": `(?m)^ +for: [1-9]\d*[mh]$`,
			"severity":                 `(?m)^ +severity: (critical|warning)$`,
			"summary":                  `(?m)^ +summary: ".{20,}"$`,
			"description":              `(?m)^ +description: >-\n +\S.{40,}`,
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

type dashboard struct {
	UID        string
	Panels     []panel
	Templating struct {
		List []struct {
			Name       string
			Datasource *source
			Definition string
		}
	}
}

type panel struct {
	ID          int
	Title, Type string
	Description string
	Datasource  *source
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct {
		RefID        string
		Expr         string
		LegendFormat string
		Datasource   *source
	}
}

type source struct{ Type, UID string }

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, dashboardFile)), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Panels) < 15 {
		t.Fatalf("%s has %d panels", dashboardFile, len(d.Panels))
	}
	return d
}

func TestDashboardPanels(t *testing.T) {
	d := readDashboard(t)
	match := regexp.MustCompile(`(?m)^ +uid: (\S+)`).FindStringSubmatch(read(t, sourceFile))
	if match == nil {
		t.Fatalf("%s gives no uid", sourceFile)
	}
	uid := match[1]
	usesSource := func(what string, s *source) {
		if s == nil || s.UID != uid || s.Type != "prometheus" {
			t.Errorf("%s uses the datasource %+v, provisioned is %s", what, s, uid)
		}
	}
	for _, variable := range d.Templating.List {
		usesSource("variable "+variable.Name, variable.Datasource)
	}
	const columns = 24
	taken := map[[2]int]string{}
	ids := map[int]string{}
	for _, p := range d.Panels {
		what := fmt.Sprintf("panel %d %q", p.ID, p.Title)
		if other, twice := ids[p.ID]; twice || p.ID < 1 {
			t.Errorf("%s: the id is bad or that of %q", what, other)
		}
		ids[p.ID] = p.Title
		if p.Title == "" || p.Description == "" {
			t.Errorf("%s has no title or no description", what)
		}
		usesSource(what, p.Datasource)
		if len(p.Targets) == 0 {
			t.Errorf("%s shows nothing", what)
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			usesSource(what+" "+target.RefID, target.Datasource)
			if target.RefID == "" || refs[target.RefID] {
				t.Errorf("%s: refId %q is empty or there twice", what, target.RefID)
			}
			refs[target.RefID] = true
		}
		g := p.GridPos
		if g.W < 1 || g.H < 1 || g.X < 0 || g.Y < 0 || g.X+g.W > columns {
			t.Errorf("%s lies outside of the grid: %+v", what, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other, overlap := taken[[2]int{x, y}]; overlap {
					t.Fatalf("%s overlaps %s", what, other)
				}
				taken[[2]int{x, y}] = what
			}
		}
	}
}

// queries are the dashboard's expressions, by panel.
func queries(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			all[fmt.Sprintf("panel %d %q %s", p.ID, p.Title, target.RefID)] = target.Expr
		}
	}
	return all
}

// variables stands for Grafana's and the dashboard's own in an expression.
var variables = strings.NewReplacer("$__rate_interval", "1m", "$__interval", "1m", "$__range", "1h", "$service", "notifier")

// Each expression parses: promtool checks it as a recording rule.
func TestDashboardQueriesParse(t *testing.T) {
	for where, expr := range queries(t) {
		expr = variables.Replace(expr)
		if strings.Contains(expr, "$") {
			t.Errorf("%s: an unknown variable in %s", where, expr)
		}
		quoted, err := json.Marshal(expr) // a JSON string is a YAML one
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "query.yml")
		text := fmt.Sprintf("groups: [{name: q, rules: [{record: q, expr: %s}]}]\n", quoted)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if said, err := promtool(t, "check", "rules", file); err != nil {
			t.Errorf("%s: %s\n%s", where, expr, said)
		}
	}
}

// Series that others export.
var foreign = map[string][]string{
	"up":                            {},
	"ALERTS":                        {"alertname", "alertstate", "severity", "category", "reason", "why"},
	"process_start_time_seconds":    {},
	"process_cpu_seconds_total":     {},
	"process_resident_memory_bytes": {},
}

// everySeries has the labels of target discovery; prometheus.yml makes the label service.
var everySeries = []string{"job", "instance", "service"}

// series gives all series that there are, with their labels.
func series(t *testing.T) map[string][]string {
	t.Helper()
	all := maps.Clone(foreign)
	for _, line := range strings.Split(commentLine.ReplaceAllString(read(t, metricsFile), ""), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		name, kind, labels := fields[0], fields[1], fields[2:]
		switch kind {
		case "counter", "gauge":
			all[name] = labels
		case "histogram":
			all[name+"_sum"], all[name+"_count"] = labels, labels
			all[name+"_bucket"] = append(slices.Clone(labels), "le")
		default:
			t.Fatalf("%s: a %s named %s", metricsFile, kind, name)
		}
		if counter := strings.HasSuffix(name, "_total"); counter != (kind == "counter") {
			t.Errorf("%s: %s is a %s", metricsFile, name, kind)
		}
	}
	for _, r := range rules(t) {
		if !r.alert {
			all[r.name] = r.labels
		}
	}
	return all
}

var (
	names    = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
	grouping = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right) *\(([^)]*)\)`)
	quotes   = regexp.MustCompile(`"[^"]*"`)
	matchers = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}`)
	matcher  = regexp.MustCompile(`([a-zA-Z_]\w*) *(?:=~|!~|!=|=)`)
	ranges   = regexp.MustCompile(`\[[^\]]*\]`)
	offset   = regexp.MustCompile(`\boffset \w+`)
	numbers  = regexp.MustCompile(`\b\d[\w.]*`)
	call     = regexp.MustCompile(`[a-zA-Z_][a-zA-Z0-9_]* *\(`)
	legend   = regexp.MustCompile(`\{\{ *(\w+) *\}\}`)
)

// named gives the faults of an expression: series that do not exist, and labels that its series do not have.
// It is no parser; what it takes apart has been parsed by promtool.
func named(expr string, all map[string][]string) (faults []string) {
	expr = variables.Replace(expr)
	plain := quotes.ReplaceAllString(expr, `""`)
	known := slices.Clone(everySeries) // labels of any series in the expression
	rest := grouping.ReplaceAllString(plain, " ")
	rest = matchers.ReplaceAllString(rest, "$1 ")
	rest = ranges.ReplaceAllString(rest, " ")
	rest = offset.ReplaceAllString(rest, " ")
	rest = numbers.ReplaceAllString(rest, " ")
	rest = call.ReplaceAllString(rest, "(")
	for _, name := range names.FindAllString(rest, -1) {
		if slices.Contains([]string{"and", "or", "unless", "bool", "by", "on"}, name) {
			continue
		}
		labels, exists := all[name]
		if !exists {
			faults = append(faults, "no metric is named "+name)
		}
		known = append(known, labels...)
	}
	for _, group := range grouping.FindAllStringSubmatch(plain, -1) {
		for _, label := range names.FindAllString(group[1], -1) {
			if !slices.Contains(known, label) {
				faults = append(faults, "no series has the label "+label)
			}
		}
	}
	for _, selector := range matchers.FindAllStringSubmatch(plain, -1) {
		for _, label := range matcher.FindAllStringSubmatch(selector[2], -1) {
			if !slices.Contains(all[selector[1]], label[1]) && !slices.Contains(everySeries, label[1]) {
				faults = append(faults, selector[1]+" has no label "+label[1])
			}
		}
	}
	return faults
}

// The dashboard and the rules name nothing that does not exist.
func TestNamesExist(t *testing.T) {
	all := series(t)
	used := map[string]bool{}
	check := func(where, expr string) {
		for _, fault := range named(expr, all) {
			t.Errorf("%s: %s", where, fault)
		}
		for _, name := range names.FindAllString(expr, -1) {
			used[name] = true
		}
	}
	for where, expr := range queries(t) {
		check(where, expr)
	}
	for _, r := range rules(t) {
		check(r.name, r.expr)
	}
	for _, variable := range readDashboard(t).Templating.List {
		inner := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(variable.Definition)
		if inner == nil {
			t.Fatalf("variable %s: %s", variable.Name, variable.Definition)
		}
		check("variable "+variable.Name, inner[1])
		check("variable "+variable.Name, "count by ("+inner[2]+") ("+inner[1]+")")
	}
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			by := slices.Clone(everySeries)
			for _, group := range grouping.FindAllStringSubmatch(target.Expr, -1) {
				by = append(by, names.FindAllString(group[1], -1)...)
			}
			for _, label := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !slices.Contains(by, label[1]) {
					t.Errorf("panel %d %q: the legend has {{%s}}, which %s does not keep", p.ID, p.Title, label[1], target.Expr)
				}
			}
		}
	}
	for name := range all {
		if !used[name] && strings.HasPrefix(name, "notifier") && !strings.HasSuffix(name, "_sum") && !strings.HasSuffix(name, "_count") {
			t.Errorf("neither the dashboard nor an alert shows %s", name)
		}
	}
}

// The check of names can fail.
func TestNamesAreLookedAt(t *testing.T) {
	all := series(t)
	for expr, want := range map[string]string{
		`sum(rate(notifier_event_total[5m]))`:                              "no metric is named notifier_event_total",
		`notifier_held_events{reason="nats"}`:                              "notifier_held_events has no label reason",
		`sum by (why) (notifier_events_total{outcome="sent"})`:             "no series has the label why",
		`sum by (le) (rate(notifier_decision_seconds_buckets[5m]))`:        "no metric is named notifier_decision_seconds_buckets",
		`sum by (scope) (notifier:events:increase5m)`:                      "no metric is named notifier:events:increase5m",
		`notifier_consumer_pending > 0 unless notifier_pending offset 15m`: "no metric is named notifier_pending",
		`sum(rate(notifier_slack_post_seconds_count{le="1"}[5m])) or up`:   "notifier_slack_post_seconds_count has no label le",
	} {
		if got := named(expr, all); !slices.Contains(got, want) {
			t.Errorf("%s: %q, expected %q", expr, got, want)
		}
	}
	for _, expr := range []string{
		`histogram_quantile(0.99, sum by (le, result) (rate(notifier_slack_post_seconds_bucket{service="$service"}[$__rate_interval])))`,
		`max by (service) (up == 1) < quantile_over_time(0.5, count by (service) (up)[1h:1m]) or vector(0)`,
		`notifier_held_events > 1e9`,
	} {
		if got := named(expr, all); got != nil {
			t.Errorf("%s: %q, expected no fault", expr, got)
		}
	}
}

// What prometheus.yml scrapes are services of docker-compose.yml, on the port of their ADMIN_ADDR.
func TestTargetsAreServices(t *testing.T) {
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
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
