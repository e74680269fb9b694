package feed

import (
	"os"
	"testing"

	"notifier/test/kit"
)

func TestMain(m *testing.M) {
	kit.Overlap(8) // they wait for servers more than they work
	os.Exit(m.Run())
}
