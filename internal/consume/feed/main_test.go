package feed

import (
	"os"
	"testing"

	"notifier/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.Overlap(8) // they wait for servers more than they work
	os.Exit(m.Run())
}
