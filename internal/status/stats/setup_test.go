package stats_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap/zaptest"

	"notifier/internal/outcome"
	"notifier/internal/status/stats"
	"notifier/test/kit"
	"notifier/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// store is an empty Redis of a test's own.
type store struct {
	url      string
	server   *redistest.Server    // nil on the embedded store
	embedded *miniredis.Miniredis // nil on a redis-server
}

// eachStore runs a test on each kind of store; see redistest.EachStore.
func eachStore(t *testing.T, test func(t *testing.T, s store)) {
	t.Helper()
	redistest.EachStore(t, func(t *testing.T, server *redistest.Server) {
		test(t, store{url: server.URL(), server: server})
	}, func(t *testing.T, embedded *miniredis.Miniredis) {
		test(t, store{url: "redis://" + embedded.Addr() + "/0", embedded: embedded})
	})
}

func (s store) client(t testing.TB) redis.UniversalClient { return kit.OpenRedis(t, s.url) }

// owner is a client of the one server that keeps all keys.
func (s store) owner(t testing.TB) redis.UniversalClient {
	t.Helper()
	if s.server == nil {
		return s.client(t)
	}
	return s.server.ClientFor(t, "{n}")
}

func (s store) reader(t testing.TB) *stats.Reader {
	t.Helper()
	reader, err := stats.NewReader(s.client(t), "n")
	kit.Check(t, err)
	return reader
}

// limitText is what a digest says of limits.
func limitText(reason, _ string) string {
	switch reason {
	case outcome.Global:
		return "100/30m"
	case outcome.Group:
		return "50/24h:15m"
	default:
		return "10/30m"
	}
}

// newRecorder makes a recorder that flushes a hundred times a second.
func newRecorder(t testing.TB, config stats.Config) *stats.Recorder {
	t.Helper()
	config.Namespace = "n"
	if config.Every == 0 {
		config.Every = 10 * time.Millisecond
	}
	if config.Replica == "" {
		config.Replica = "r1"
	}
	if config.Log == nil {
		config.Log = zaptest.NewLogger(t)
	}
	recorder, err := stats.NewRecorder(config)
	kit.Check(t, err)
	return recorder
}

// run runs a recorder until stop is called, or the test ends.
func run(t testing.TB, recorder *stats.Recorder) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { recorder.Run(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// lastHour reads the last hour's counts. A store that still works off what it was sent may need longer than
// one call may take.
func lastHour(t testing.TB, reader *stats.Reader) (hour stats.Hour) {
	t.Helper()
	kit.EventuallyNil(t, func() (err error) {
		hour, err = reader.Hour(t.Context())
		return err
	})
	return hour
}

// sums is what the last hour's counts add up to, by "category outcome reason".
func sums(t testing.TB, reader *stats.Reader) map[string]int64 {
	t.Helper()
	hour := lastHour(t, reader)
	if len(hour.Minutes) != 60 {
		t.Fatalf("%d minutes, want 60", len(hour.Minutes))
	}
	sums := map[string]int64{}
	for _, c := range hour.Sum() {
		sums[c.Category+" "+c.Outcome+" "+c.Reason] += c.N
	}
	return sums
}
