package observability_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Series that others export.
var foreign = map[string][]string{
	"up":                            {},
	"ALERTS":                        {"alertname", "alertstate", "severity", "category", "channel", "reason", "why"},
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

// named returns the faults of an expression: series that do not exist, and labels that its series do not
// have. It does not validate the syntax; promtool has parsed the expression before.
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
	t.Parallel()
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
