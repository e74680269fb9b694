package chaos

import (
	"os"
	"testing"

	"github.com/rs/zerolog"

	"notifier/test/kit"
)

// folder keeps the programs that are under test.
var folder string

// TestMain does not look for leaked goroutines as other packages do: toxiproxy leaves one behind for each
// connection whose client died while there was something to be written to it.
func TestMain(m *testing.M) {
	kit.Overlap(6) // scenarios wait more than they work
	kit.QuietRedis()
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxiproxy's about connections that a test has cut
	os.Exit(kit.InFolder(m, &folder))
}

// The builds of notifier that are under test.
var (
	plain    = &kit.Program{}
	crashing = &kit.Program{Tags: "crashpoints"}
)
