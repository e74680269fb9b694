package observability_test

import (
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"notifier/test/kit"
)

// TestDashboardSchema: Grafana silently drops or misreads unknown fields, so a field outside the schema is a
// mistake.
func TestDashboardSchema(t *testing.T) {
	t.Parallel()
	schema, err := jsonschema.NewCompiler().Compile("testdata/dashboard.schema.json")
	kit.Check(t, err)
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(read(t, dashboardFile)))
	kit.Check(t, err)
	kit.Check(t, schema.Validate(document))
}
