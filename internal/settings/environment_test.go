package settings

import (
	"os"
	"reflect"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the tests without the settings of whoever runs them, and lets none leave a Redis client open.
func TestMain(m *testing.M) {
	for _, name := range settingNames() {
		_ = os.Unsetenv(name)
		_ = os.Unsetenv(name + "_FILE")
	}
	goleak.VerifyTestMain(m)
}

// settingNames are the variables that notifier reads.
func settingNames() []string {
	var names []string
	for _, variable := range Variables() {
		names = append(names, variable.Name)
	}
	return names
}

// byName returns the values by the names of their variables.
func byName(env Environment) map[string]string {
	values := map[string]string{}
	for i, name := range settingNames() {
		values[name] = reflect.ValueOf(env).Field(i).String()
	}
	return values
}
