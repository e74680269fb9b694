// Package redistest gives tests and benchmarks a Redis of their own, and breaks it for them.
//
// It is a real redis-server process on a free loopback port wherever one is installed, because the embedded
// store is not Redis. Where none is installed tests run on the embedded store and log that.
// NOTIFIER_TEST_REDIS chooses otherwise:
//
//	require          the default, but a missing redis-server is a failure
//	process          a redis-server process, and no embedded store in addition
//	embedded         the embedded store
//	cluster          a Redis Cluster of three redis-server processes
//	image:NAME       server processes in a container of that image, such as image:valkey/valkey:8-alpine
//
// A test that needs more than its kind of store offers is skipped with the reason. Every server ends with the
// test. Servers that take seconds to start end with the test binary, even if it is killed.
//
// StartCluster and StartSentinels start whole installations for the tests of failures, and Proxy is put in
// front of a server to lose replies, to delay them and to cut it off. StartTLSServer, StartTLSCluster and
// StartTLSSentinel start servers with TLS.
package redistest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"notifier/internal/devstack/embedded"
	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// startDeadline bounds the start of a server, or of a group of servers, up to its first reply.
const startDeadline = 30 * time.Second

const (
	variable    = "NOTIFIER_TEST_REDIS"
	require     = "require"
	local       = "process"
	inProcess   = "embedded"
	cluster     = "cluster"
	imagePrefix = "image:"
)

// Chosen returns the kind of store set by NOTIFIER_TEST_REDIS, or "" if any kind will do.
func Chosen() string {
	if kind := os.Getenv(variable); kind != require {
		return kind
	}
	return ""
}

// Server is a Redis for one test.
type Server struct {
	Addr     string // host:port; of a Cluster, one of its nodes
	Embedded bool   // it is the embedded store, not a redis-server
	cluster  *Cluster
	place    place
	process  process
	mode     mode
	bus      int // port of the Cluster's bus
	dir      string
	extra    []string
}

// URL returns the server's REDIS_URL.
func (s *Server) URL() string {
	if s.cluster != nil {
		return s.cluster.URL()
	}
	return "redis://" + s.Addr + "/0"
}

// Start gives a fresh, empty store that ends with the test. extra are further redis-server arguments.
func Start(tb testing.TB, extra ...string) *Server {
	tb.Helper()
	if Chosen() == cluster {
		if len(extra) > 0 {
			tb.Skipf("%s=%s: this test needs a server with settings of its own: %q", variable, cluster, extra)
		}
		return borrowCluster(tb).server()
	}
	where, why := findPlace(tb)
	if why != "" {
		if Chosen() != inProcess {
			tb.Logf("WARNING: %s; this test runs on the embedded store, which is not Redis", why)
		}
		return &Server{Addr: RunEmbedded(tb).Addr(), Embedded: true}
	}
	return startServer(tb, where, standalone, extra)
}

// RunEmbedded starts an embedded store that ends with the test.
func RunEmbedded(tb testing.TB) *miniredis.Miniredis {
	tb.Helper()
	store := embedded.NewStore()
	if err := store.Start(); err != nil {
		tb.Fatalf("embedded store: %v", err)
	}
	tb.Cleanup(store.Close)
	return store
}

// SetUser replaces a user of the server, with a password and with rules in the syntax of ACL SETUSER.
func (s *Server) SetUser(tb testing.TB, password, name string, rules ...string) {
	tb.Helper()
	arguments := []any{"ACL", "SETUSER", name, "reset", "on", ">" + password}
	for _, rule := range rules {
		arguments = append(arguments, rule)
	}
	if err := s.Client(tb).Do(tb.Context(), arguments...).Err(); err != nil {
		tb.Fatalf("user %s: %v", name, err)
	}
}

// StartProcess is Start for tests that need a process to stop and start again; it skips loudly where there is
// none.
func StartProcess(tb testing.TB, extra ...string) *Server {
	tb.Helper()
	return startServer(tb, needPlace(tb), standalone, extra)
}

// needPlace skips where this test cannot have server processes of its own.
func needPlace(tb testing.TB) place {
	tb.Helper()
	if Chosen() == cluster {
		tb.Skipf("%s=%s: this test starts servers of its own, and runs where that is not set", variable, cluster)
	}
	where, why := findPlace(tb)
	if why != "" {
		tb.Skipf("needs a redis-server process: %s", why)
	}
	return where
}

// findPlace returns where servers run, or why they cannot.
func findPlace(tb testing.TB) (where place, why string) {
	tb.Helper()
	kind := os.Getenv(variable)
	if image, found := strings.CutPrefix(kind, imagePrefix); found {
		return sharedContainer(tb, image), ""
	}
	switch kind {
	case "", require, local, cluster:
		binary, err := exec.LookPath("redis-server")
		switch {
		case err == nil:
			return place{binary: binary}, ""
		case kind == "":
			return place{}, "there is no redis-server in PATH"
		}
		tb.Fatalf("%s=%s, and there is no redis-server in PATH", variable, kind)
	case inProcess:
		return place{}, fmt.Sprintf("%s=%s", variable, kind)
	default:
		tb.Fatalf(
			"%s=%s, expected %s, %s, %s, %s or %sNAME",
			variable,
			kind,
			require,
			local,
			inProcess,
			cluster,
			imagePrefix,
		)
	}
	return place{}, ""
}

// empty forgets all keys and scripts.
func (s *Server) empty() error {
	if _, err := s.try("FLUSHALL"); err != nil {
		return err
	}
	_, err := s.try("SCRIPT", "FLUSH")
	return err
}

// Stop kills the server process, as a crash would. Data not yet on disk is lost.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	s.process.kill()
}

// Restart starts the stopped server again on the same port and folder.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	kit.Check(tb, s.launch())
}

// Client is a client of the server that is closed with the test; a test that can run on a
// Cluster takes ClientFor.
func (s *Server) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	if s.cluster != nil {
		tb.Skipf("%s=%s: this test talks to one server", variable, cluster)
	}
	return s.client(tb)
}

// ClientFor is a client of the one server that keeps the key: on a Cluster, of the master of its slot.
func (s *Server) ClientFor(tb testing.TB, key string) *redis.Client {
	tb.Helper()
	if s.cluster != nil {
		return s.cluster.Owner(tb, key).client(tb)
	}
	return s.client(tb)
}

func (s *Server) client(tb testing.TB) *redis.Client {
	tb.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// Commands counts the commands that the server has run, including calls by scripts.
func (s *Server) Commands(tb testing.TB) (calls int) {
	tb.Helper()
	info, err := s.Client(tb).Info(context.Background(), "commandstats").Result()
	kit.Check(tb, err)
	for line := range strings.Lines(info) {
		if _, rest, found := strings.Cut(line, ":calls="); found {
			count, _, _ := strings.Cut(rest, ",")
			n, err := strconv.Atoi(count)
			kit.Check(tb, err)
			calls += n
		}
	}
	return calls
}

// field is one line of INFO.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Healed lets workers decide at once on this new store, which has no earlier state to recover. See
// ratelimit.MarkHealed.
func (s *Server) Healed(tb testing.TB, namespace string) *Server {
	tb.Helper()
	kit.Check(tb, ratelimit.MarkHealed(tb.Context(), s.ClientFor(tb, "{"+namespace+"}"), namespace))
	return s
}
