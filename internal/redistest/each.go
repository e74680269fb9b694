package redistest

import (
	"os"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/goleak"

	"notifier/internal/testkit"
)

// EachStore runs a test on a redis-server process and on the embedded store: what the scripts promise holds on both.
// Where NOTIFIER_TEST_REDIS chooses a kind of store it runs on that one alone. Each store is the test's own, so the test and
// its runs are parallel with all others: it calls t.Parallel, and returns before the runs have ended.
func EachStore(t *testing.T, onServer func(*testing.T, *Server), onEmbedded func(*testing.T, *miniredis.Miniredis)) {
	t.Helper()
	t.Parallel()
	chosen := Chosen()
	if chosen == "" || chosen == inProcess {
		t.Run(inProcess, func(t *testing.T) {
			t.Parallel()
			onEmbedded(t, RunEmbedded(t))
		})
	}
	if chosen == inProcess {
		return
	}
	if chosen == "" {
		chosen = "redis-server"
	}
	t.Run(chosen, func(t *testing.T) {
		t.Parallel()
		server := Start(t)
		if server.Embedded {
			t.Skip("no redis-server in PATH; this test has run on the embedded store")
		}
		onServer(t, server)
	})
}

// Main runs the tests of a package, six parallel ones at a time, and then looks for goroutines that are left. A Cluster or a
// container ends with the test binary and not before, so with one of those this is not checked.
func Main(m *testing.M) {
	testkit.Overlap(6) // they wait for servers more than they work
	if kind := Chosen(); kind == "cluster" || strings.HasPrefix(kind, "image:") {
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m)
}
