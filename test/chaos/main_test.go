package chaos

import (
	"fmt"
	"os"
	"testing"

	"github.com/rs/zerolog"

	"notifier/test/kit"
)

// folder keeps the programs that are under test.
var folder string

// TestMain does not look for leaked goroutines as other packages do: toxiproxy leaves one behind for each connection
// whose client died while there was something to be written to it.
func TestMain(m *testing.M) {
	kit.Overlap(6) // scenarios wait more than they work
	kit.QuietRedis()
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxiproxy's about connections that a test has cut
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if folder, err = os.MkdirTemp("", "notifier-chaos-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(folder) }()
	return m.Run()
}

// The builds of notifier that are under test.
var (
	plain    = &kit.Program{}
	crashing = &kit.Program{Tags: "crashpoints"}
)
