package digest

import (
	"context"
	"crypto/rand"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	"notifier/internal/devstack"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
	"notifier/internal/status/stats"
	"notifier/test/kit"
	"notifier/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const interval = 100 * time.Millisecond // of most tests

// eachStore runs a test on each kind of store; see redistest.EachStore.
func eachStore(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	redistest.EachStore(t, func(t *testing.T, server *redistest.Server) {
		test(t, newWorld(t, server.URL()))
	}, func(t *testing.T, embedded *miniredis.Miniredis) {
		test(t, newWorld(t, "redis://"+embedded.Addr()+"/0"))
	})
}

// world is a Redis and a Slack for one test.
type world struct {
	t       testing.TB
	url     string
	redis   redis.UniversalClient
	keys    stats.Keys
	slack   *devstack.Slack
	log     *zap.Logger
	lines   *observer.ObservedLogs
	limiter *ratelimit.Limiter
	config  Config // of the digests
}

func newWorld(t testing.TB, url string) *world {
	t.Helper()
	keys, err := stats.NewKeys("n")
	kit.Check(t, err)
	slack, err := devstack.StartSlack("127.0.0.1:0")
	kit.Check(t, err)
	t.Cleanup(func() { _ = slack.Close() })
	core, lines := observer.New(zap.DebugLevel)
	log := zaptest.NewLogger(t).WithOptions(zap.WrapCore(func(shown zapcore.Core) zapcore.Core { return zapcore.NewTee(shown, core) }))
	w := &world{t: t, url: url, redis: kit.OpenRedis(t, url), keys: keys, slack: slack, log: log, lines: lines}
	limiter, err := ratelimit.New(w.redis, "n", kit.Rules("100/30m", "10/30m", ""), time.Hour)
	kit.Check(t, err)
	w.limiter = limiter
	w.config = Config{
		Namespace: "n", Interval: interval, Channel: "#ops", Permits: limiter, Timeout: 5 * time.Second, Lease: 20 * time.Second,
		NextFree: func(context.Context) (time.Duration, error) { return 0, nil },
	}
	return w
}

func (w *world) poster(webhook bool) *slackout.Poster {
	w.t.Helper()
	// a busy machine takes its time, and a post that takes longer is in doubt
	config := slackout.Config{Timeout: 4 * time.Second}
	if webhook {
		config.WebhookURL = w.slack.WebhookURL()
	} else {
		config.Token, config.APIURL, config.Channel = "xoxb-1", w.slack.APIURL(), "#main"
	}
	poster, err := slackout.New(config)
	kit.Check(w.t, err)
	w.t.Cleanup(poster.Close)
	return poster
}

// digest makes one replica's digest; change may be nil.
func (w *world) digest(webhook bool, change func(*Config)) *Digest {
	w.t.Helper()
	config := w.config
	config.Publisher, config.Log = w.poster(webhook), w.log
	config.Redis = kit.OpenRedis(w.t, w.url)
	if change != nil {
		change(&config)
	}
	d, err := New(config)
	kit.Check(w.t, err)
	d.wait = 20 * time.Millisecond
	return d
}

// run runs digests until stop is called, or the test ends.
func (w *world) run(digests ...*Digest) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, d := range digests {
		running.Go(func() { d.Run(ctx) })
	}
	stop = func() {
		cancel()
		running.Wait()
	}
	w.t.Cleanup(stop)
	return stop
}

// acquire has a replica take the lease, and read what there is to report.
func (w *world) acquire(d *Digest) attempt {
	w.t.Helper()
	token := rand.Text()
	acquired, err := d.store.acquire(w.t.Context(), token, d.config.Lease)
	if err != nil || !acquired {
		w.t.Fatalf("it has the lease: %t, %v", acquired, err)
	}
	read, err := d.store.read(w.t.Context())
	kit.Check(w.t, err)
	return attempt{read, token}
}

// begin has a replica record that it is about to post.
func (w *world) begin(d *Digest, a attempt) {
	w.t.Helper()
	if begun, err := d.store.begin(w.t.Context(), a.token, d.config.Lease, a.snapshot); err != nil || !begun {
		w.t.Fatalf("it has begun: %t, %v", begun, err)
	}
}

func limitOf(reason, _ string) string {
	if reason == outcome.Global {
		return "100/30m"
	}
	return "10/30m"
}

// recorder makes one replica's recorder. flushed may be nil.
func (w *world) recorder(name string, flushed func(stats.Flushed)) *stats.Recorder {
	w.t.Helper()
	recorder, err := stats.NewRecorder(stats.Config{
		Redis: kit.OpenRedis(w.t, w.url), Namespace: "n", Replica: name, Limit: limitOf, Every: 5 * time.Millisecond, Log: w.log,
		Flushed: flushed,
	})
	kit.Check(w.t, err)
	return recorder
}

// drop has drops recorded, and waits until they are.
func (w *world) drop(reason, category string, n int) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	// its last flush alone may come too late, and is not repeated
	recorder := w.recorder("dropper", func(stats.Flushed) { cancel() })
	now := time.Now()
	for range n {
		recorder.Observe("dropped", reason, category, "", 1, now)
	}
	recorder.Run(ctx)
}

// old lets the interval of what is pending be over.
func (w *world) old() {
	w.t.Helper()
	past := strconv.FormatInt(time.Now().Add(-w.config.Interval-time.Minute).UnixMicro(), 10)
	kit.Check(w.t, w.redis.HSet(w.t.Context(), w.keys.Pending(), "since", past).Err())
	kit.Check(w.t, w.redis.HDel(w.t.Context(), w.keys.State(), "next").Err())
}

// messages waits until n messages stand in Slack and gives their texts.
func (w *world) messages(n int) []string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), kit.Patience)
	defer cancel()
	if err := w.slack.Wait(ctx, func(accepted int) bool { return accepted >= n }); err != nil {
		w.t.Fatalf("%d messages, want %d", w.slack.Accepted(), n)
	}
	return w.texts()
}

func (w *world) texts() []string {
	var texts []string
	for _, m := range w.slack.Messages() {
		texts = append(texts, m.Text)
	}
	return texts
}

// idle waits until nothing is pending and nobody posts.
func (w *world) idle() {
	w.t.Helper()
	kit.EventuallyNil(w.t, func() error {
		n, err := w.redis.Exists(w.t.Context(), w.keys.Pending(), w.keys.Posting(), w.keys.Lease()).Result()
		if err == nil && n > 0 {
			err = fmt.Errorf("%d of the keys of a digest are there: %v", n, w.redis.HGetAll(w.t.Context(), w.keys.Pending()).Val())
		}
		return err
	})
}

func (w *world) logged(message string) []observer.LoggedEntry {
	return w.lines.FilterMessage(message).All()
}

const doubtLine = "the digest may not have arrived, and is not posted again"

var headline = regexp.MustCompile(`^In the last .* (\d+) events? (?:was|were) not sent: (.*?)\.( The global limit has room now\.| Next free global slot: .*)?$`)

// said is how many drops a message reports; the numbers in its list must add up to its total.
func said(t testing.TB, text string) int {
	t.Helper()
	parts := headline.FindStringSubmatch(text)
	if parts == nil {
		t.Fatalf("no digest: %s", text)
	}
	all, _ := strconv.Atoi(parts[1])
	sum := 0
	list := regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(parts[2], "")
	for _, item := range strings.Split(strings.ReplaceAll(list, " and ", ", "), ", ") {
		n, err := strconv.Atoi(strings.Fields(item)[0])
		if err != nil {
			t.Fatalf("no number in %q of %s", item, text)
		}
		sum += n
	}
	if sum != all {
		t.Errorf("its list adds up to %d: %s", sum, text)
	}
	return all
}

func totalReported(t testing.TB, texts []string) (sum int) {
	t.Helper()
	for _, text := range texts {
		sum += said(t, text)
	}
	return sum
}
