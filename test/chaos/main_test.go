package chaos

import (
	"os"
	"testing"

	"github.com/rs/zerolog"

	"notifier/test/kit"
)

// folder holds the programs that the tests build.
var folder string

// TestMain skips the check for leaked goroutines that other packages make. Toxiproxy leaks one for each
// client that dies while data for it is pending.
func TestMain(m *testing.M) {
	kit.Overlap(6) // scenarios mostly wait
	kit.QuietRedis()
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxiproxy logs each connection that a test cuts
	os.Exit(kit.InFolder(m, &folder))
}

// Builds of notifier under test.
var (
	plain    = &kit.Program{}
	crashing = &kit.Program{Tags: "crashpoints"}
)
