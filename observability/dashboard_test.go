package observability_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"notifier/test/kit"
)

type dashboard struct {
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
	ID         int
	Title      string
	Datasource *source
	Targets    []struct {
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
	kit.Check(t, json.Unmarshal([]byte(read(t, dashboardFile)), &d))
	if len(d.Panels) < 15 {
		t.Fatalf("%s has %d panels", dashboardFile, len(d.Panels))
	}
	return d
}

// Each panel and each variable queries the provisioned datasource.
func TestDashboardUsesTheProvisionedSource(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	match := regexp.MustCompile(`(?m)^ +uid: (\S+)`).FindStringSubmatch(read(t, sourceFile))
	if match == nil {
		t.Fatalf("%s gives no uid", sourceFile)
	}
	uses := func(what string, s *source) {
		if s == nil || s.UID != match[1] || s.Type != "prometheus" {
			t.Errorf("%s uses the datasource %+v, provisioned is %s", what, s, match[1])
		}
	}
	for _, variable := range d.Templating.List {
		uses("variable "+variable.Name, variable.Datasource)
	}
	for _, p := range d.Panels {
		uses(p.Title, p.Datasource)
		for _, target := range p.Targets {
			uses(p.Title+" "+target.RefID, target.Datasource)
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
	t.Parallel()
	text := "groups:\n"
	for where, expr := range queries(t) {
		expr = variables.Replace(expr)
		if strings.Contains(expr, "$") {
			t.Errorf("%s: an unknown variable in %s", where, expr)
		}
		text += fmt.Sprintf("- {name: %s, rules: [{record: q, expr: %s}]}\n", quoted(t, where), quoted(t, expr))
	}
	file := filepath.Join(t.TempDir(), "queries.yml")
	kit.Check(t, os.WriteFile(file, []byte(text), 0o600))
	if said, err := promtool(t, "check", "rules", file); err != nil {
		t.Error(said)
	}
}

// quoted is a text as YAML and JSON write it.
func quoted(t *testing.T, text string) string {
	t.Helper()
	quoted, err := json.Marshal(text)
	kit.Check(t, err)
	return string(quoted)
}
