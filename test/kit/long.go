package kit

import (
	"os"
	"testing"
)

// longVariable lets the tests run that are too long for everyday use.
const longVariable = "NOTIFIER_TEST_LONG"

// Long skips a test that takes too long for everyday use, unless NOTIFIER_TEST_LONG is set, as "make nightly"
// does.
func Long(t testing.TB) {
	t.Helper()
	if os.Getenv(longVariable) == "" {
		t.Skipf("a long test: run it with %s=1, or with the others of its kind by make nightly", longVariable)
	}
}
