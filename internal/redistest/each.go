package redistest

import (
	"os"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/goleak"
)

// EachStore runs a test on a redis-server process and on the embedded store: what the scripts promise holds on both.
// Where NOTIFIER_TEST_REDIS chooses a kind of store it runs on that one alone.
func EachStore(t *testing.T, onServer func(*testing.T, *Server), onEmbedded func(*testing.T, *miniredis.Miniredis)) {
	t.Helper()
	chosen := Chosen()
	if chosen == "" || chosen == inProcess {
		t.Run(inProcess, func(t *testing.T) { onEmbedded(t, RunEmbedded(t)) })
	}
	if chosen == inProcess {
		return
	}
	if chosen == "" {
		chosen = "redis-server"
	}
	t.Run(chosen, func(t *testing.T) {
		server := Start(t)
		if server.Embedded {
			t.Skip("no redis-server in PATH; the embedded store's run of this test is beside this one")
		}
		onServer(t, server)
	})
}

// Main runs the tests of a package and then looks for goroutines that are left. A Cluster or a container ends with the test
// binary and not before, so with one of those nobody looks.
func Main(m *testing.M) {
	if kind := Chosen(); kind == "cluster" || strings.HasPrefix(kind, "image:") {
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m)
}
