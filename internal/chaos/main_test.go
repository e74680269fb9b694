package chaos

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"

	"github.com/rs/zerolog"

	"notifier/internal/testkit"
)

// folder keeps the programs that are under test.
var folder string

// TestMain does not look for leaked goroutines as other packages do: toxiproxy leaves one behind for each connection
// whose client died while there was something to be written to it.
func TestMain(m *testing.M) {
	testkit.Overlap(6) // scenarios wait more than they work
	testkit.QuietRedis()
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
	plain    = &testkit.Program{}
	crashing = &testkit.Program{Tags: "crashpoints"}
)

// steadyAddr is a free loopback address for a server that is stopped and started again. Its port is below those that
// the system gives to outgoing connections, one of which could take it in the meantime.
func steadyAddr(t *testing.T) string {
	t.Helper()
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))
		if listener, err := net.Listen("tcp", addr); err == nil {
			_ = listener.Close()
			return addr
		}
	}
	t.Fatal("no free port between 20000 and 32000")
	return ""
}
