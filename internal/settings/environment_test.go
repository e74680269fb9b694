package settings

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain clears the settings of the surrounding environment, and fails if a test leaves a Redis client
// open.
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
