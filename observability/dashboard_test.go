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
	kit.Check(t, json.Unmarshal([]byte(read(t, dashboardFile)), &d))
	if len(d.Panels) < 15 {
		t.Fatalf("%s has %d panels", dashboardFile, len(d.Panels))
	}
	return d
}

func TestDashboardPanels(t *testing.T) {
	t.Parallel()
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
