package observability_test

import (
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"notifier/test/kit"
)

const schemaFile = "testdata/dashboard.schema.json"

// against gives what the schema finds wrong with a dashboard.
func against(t *testing.T, text string) error {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile(schemaFile)
	kit.Check(t, err)
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	kit.Check(t, err)
	return schema.Validate(document)
}

// TestDashboardSchema: Grafana drops or misreads in silence what it does not know, so what is not in the schema is a mistake.
func TestDashboardSchema(t *testing.T) {
	t.Parallel()
	text := read(t, dashboardFile)
	if err := against(t, text); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"an old model":               {`"schemaVersion": 39`, `"schemaVersion": 16`},
		"no model":                   {`"schemaVersion": 39,`, ``},
		"a panel of an old kind":     {`"type": "timeseries"`, `"type": "graph"`},
		"a panel without a place":    {`"gridPos": {`, `"gridpos": {`},
		"a panel beside the grid":    {`"w": 4`, `"w": 25`},
		"a size as a text":           {`"h": 4`, `"h": "4"`},
		"a mistyped expression":      {`"expr": `, `"expression": `},
		"a query without a letter":   {`"refId": "A"`, `"refId": ""`},
		"a datasource by its name":   {"\"datasource\": {\n        \"type\": \"prometheus\",\n        \"uid\": \"notifier-prometheus\"\n      }", `"datasource": "Prometheus"`},
		"another kind of datasource": {`"type": "prometheus"`, `"type": "loki"`},
		"a query that asks nothing":  {`"range": true`, `"range": false`},
		"an unknown unit":            {`"unit": "short"`, `"unit": "shorts"`},
		"an option of another kind":  {`"graphMode": "area"`, `"showHeader": true`},
		"a colour without a step":    {`"value": null`, `"value": 0`},
		"a variable without a name":  {`"name": "service"`, `"name": ""`},
		"a variable that asks wrong": {`"query": "label_values(`, `"query": "label_value(`},
		"a time that is none":        {`"from": "now-1h"`, `"from": "yesterday"`},
		"a refresh that is none":     {`"refresh": "10s"`, `"refresh": "10"`},
	} {
		changed := strings.Replace(text, change[0], change[1], 1)
		if changed == text {
			t.Errorf("%s: the dashboard has no %s to change", name, change[0])
		} else if against(t, changed) == nil {
			t.Errorf("%s is accepted: %s instead of %s", name, change[1], change[0])
		}
	}
}
