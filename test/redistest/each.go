package redistest

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/goleak"

	"notifier/test/kit"
)

// EachStore runs a test on a redis-server process and on the embedded store, because the scripts must behave
// alike on both. If NOTIFIER_TEST_REDIS chooses a kind of store, the test runs on that one alone. Each store
// is the test's own while it runs, so the test and its runs are parallel with all others: EachStore calls
// t.Parallel, and returns before the runs have ended. The redis-server is empty but shared with earlier and
// later tests. The test may store data, but must not change the server's configuration.
func EachStore(
	t *testing.T,
	onServer func(*testing.T, *Server),
	onEmbedded func(*testing.T, *miniredis.Miniredis),
) {
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
		if chosen == cluster {
			onServer(t, borrowCluster(t).server())
			return
		}
		where, why := findPlace(t)
		if why != "" {
			t.Skipf("%s; this test has run on the embedded store", why)
		}
		onServer(t, borrowServer(t, where))
	})
}

// Main runs the tests of a package, twelve parallel ones at a time, and then looks for goroutines that are
// left.
func Main(m *testing.M) {
	kit.Overlap(12) // they wait for servers more than they work
	serversOfTheBinary := goleak.IgnoreAnyFunction("notifier/test/redistest.hang.func1")
	goleak.VerifyTestMain(m, serversOfTheBinary)
}
