package feed

import (
	"os"
	"testing"

	"notifier/test/kit"
)

func TestMain(m *testing.M) {
	kit.Overlap(8) // tests mostly wait for servers
	os.Exit(m.Run())
}
