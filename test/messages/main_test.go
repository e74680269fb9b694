package messages

import (
	"os"
	"testing"

	"notifier/test/kit"
)

// folder keeps the program under test.
var folder string

var program = &kit.Program{}

func TestMain(m *testing.M) {
	kit.Overlap(len(trials)) // they wait more than they work
	kit.QuietRedis()
	os.Exit(kit.InFolder(m, &folder))
}
