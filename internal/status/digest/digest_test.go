package digest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
	"notifier/internal/status/digest"
	"notifier/internal/status/report"
	"notifier/test/kit"
	"notifier/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// slack notes posts. It fails with err if that is set.
type slack struct {
	mu    sync.Mutex
	texts []string
	tries int
	err   error
}

func (s *slack) PostText(_ context.Context, channel, text string) (slackout.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries++
	if s.err != nil {
		return slackout.Receipt{}, s.err
	}
	s.texts = append(s.texts, channel+" "+text)
	return slackout.Receipt{}, nil
}

func (s *slack) posts() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.texts
}

// world is a store and a Slack.
type world struct {
	*testing.T
	client  redis.UniversalClient
	limiter *ratelimit.Limiter
	slack   *slack
	log     *observer.ObservedLogs
	config  digest.Config
}

func newWorld(t *testing.T, url, pace string, interval time.Duration) *world {
	t.Helper()
	rules := kit.Rules("100/30m", "10/30m", "")
	var err error
	rules.Pace, err = ratelimit.ParsePace(pace)
	kit.Check(t, err)
	w := &world{T: t, client: kit.OpenRedis(t, url), slack: &slack{}}
	w.limiter, err = ratelimit.New(w.client, "n", rules, time.Hour)
	kit.Check(t, err)
	core, log := observer.New(zapcore.InfoLevel)
	w.log = log
	w.config = digest.Config{
		Redis: w.client, Namespace: "n", Replica: "r", Interval: interval, Channel: "#ops", Publisher: w.slack,
		Permits: w.limiter, Timeout: time.Second, Log: zap.New(core),
	}
	return w
}

func (w *world) digest() *digest.Digest {
	w.Helper()
	d, err := digest.New(w.config)
	kit.Check(w.T, err)
	return d
}

// drop counts drops in the period of a time, as Reporters do.
func (w *world) drop(at time.Time, reason, category string, n int64) {
	w.Helper()
	key := fmt.Sprintf("{n}:digest:%v:%d", w.config.Interval.Seconds(), report.Period(at, w.config.Interval))
	kit.Check(w.T, w.client.HIncrBy(w.Context(), key, reason+"\t"+category, n).Err())
}

// turns lets each digest take a turn, all at the same time.
func turns(t *testing.T, digests ...*digest.Digest) {
	t.Helper()
	var running sync.WaitGroup
	for _, d := range digests {
		running.Go(func() { d.Turn(t.Context()) })
	}
	running.Wait()
}

func (w *world) wantPosts(n int) {
	w.Helper()
	if posts := w.slack.posts(); len(posts) != n {
		w.Fatalf("%d posts, expected %d: %q", len(posts), n, posts)
	}
}

func TestOneReplicaPostsAPeriod(t *testing.T) {
	t.Parallel()
	store := redistest.RunEmbedded(t)
	w := newWorld(t, "redis://"+store.Addr(), "off", 30*time.Minute)
	digests := []*digest.Digest{w.digest(), w.digest(), w.digest()}
	nine := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	all := func(at time.Time) {
		t.Helper()
		store.SetTime(at)
		turns(t, digests...)
	}
	all(nine.Add(time.Minute))
	w.drop(nine, "category", "errors", 370)
	w.drop(nine, "global", "errors", 10)
	w.drop(nine, "muted", "debug", 5)
	w.drop(nine.Add(30*time.Minute), "group", "later", 1)
	all(nine.Add(30*time.Minute + 2*time.Second)) // counts may be on their way
	w.wantPosts(0)
	for range 3 {
		all(nine.Add(30*time.Minute + 4*time.Second))
	}
	w.wantPosts(1)
	want := "#ops Not sent in the last 30m: 380 events over a limit, 5 muted\n" +
		"• `errors`: 380 (370 category limit, 10 global limit)\nMuted: `debug` 5"
	if got := w.slack.posts()[0]; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	all(nine.Add(time.Hour + 4*time.Second))
	w.wantPosts(2)
	if got := w.slack.posts()[1]; !strings.HasSuffix(got, "1 event over a limit\n• `later`: 1 (group limit)") {
		t.Errorf("%s", got)
	}
	all(nine.Add(90*time.Minute + 4*time.Second)) // nothing was dropped
	w.wantPosts(2)
	if lines := w.log.All(); len(lines) > 0 {
		t.Errorf("%v", lines)
	}
	turns(t, w.digest()) // a replica that starts afterwards
	w.wantPosts(2)
}

// A replica that starts long after the end of a period does not report it as the last interval.
func TestOldPeriodIsLeftAlone(t *testing.T) {
	t.Parallel()
	store := redistest.RunEmbedded(t)
	w := newWorld(t, "redis://"+store.Addr(), "off", 30*time.Minute)
	nine := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	w.drop(nine, "category", "errors", 1)
	store.SetTime(nine.Add(50 * time.Minute))
	turns(t, w.digest())
	w.wantPosts(0)
}

// Replicas that run post each drop at most once, one message for each period.
func TestRunPostsOncePerPeriod(t *testing.T) {
	redistest.EachStore(t, func(t *testing.T, server *redistest.Server) {
		testRun(t, server.URL())
	}, func(t *testing.T, embedded *miniredis.Miniredis) {
		testRun(t, "redis://"+embedded.Addr())
	})
}

func testRun(t *testing.T, url string) {
	const interval = 400 * time.Millisecond
	w := newWorld(t, url, "off", interval)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range 3 {
		d := w.digest()
		running.Go(func() { d.Run(ctx) })
	}
	reader, err := report.NewReader(w.client, "n")
	kit.Check(t, err)
	periods, dropped := map[int64]bool{}, 0
	kit.Eventually(t, "four posts", func() bool {
		now, err := reader.Now(t.Context())
		kit.Check(t, err)
		periods[report.Period(now, interval)] = true
		w.drop(now, "category", "errors", 1)
		dropped++
		return len(w.slack.posts()) >= 4
	})
	cancel()
	running.Wait()
	reported := 0
	for _, text := range w.slack.posts() {
		var n int
		if _, err := fmt.Sscanf(text, "#ops Not sent in the last 400ms: %d event", &n); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		reported += n
	}
	if posts := len(w.slack.posts()); posts > len(periods) || reported > dropped {
		t.Errorf("%d posts in %d periods, %d of %d drops", posts, len(periods), reported, dropped)
	}
}

// A failure is one line, and the next period is posted again. After a 429 all posts to the channel wait.
func TestSlackFails(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]*slackout.Error{
		"no reply": {Class: slackout.Ambiguous, Code: "timeout"},
		"429":      {Class: slackout.RetryAfter, Code: "ratelimited", RetryAfter: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := redistest.RunEmbedded(t)
			w := newWorld(t, "redis://"+store.Addr(), "off", 30*time.Minute)
			w.slack.err = failure
			digests := []*digest.Digest{w.digest(), w.digest()}
			nine := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
			w.drop(nine, "category", "errors", 1)
			w.drop(nine.Add(30*time.Minute), "category", "errors", 2)
			for range 5 {
				store.SetTime(nine.Add(30*time.Minute + 4*time.Second))
				turns(t, digests...)
			}
			if w.slack.tries != 1 || w.log.FilterMessage("the digest is not posted").Len() != 1 || w.log.Len() != 1 {
				t.Errorf("%d tries, log %v", w.slack.tries, w.log.All())
			}
			pauses, err := w.limiter.Pauses(t.Context())
			kit.Check(t, err)
			if paused := len(pauses) > 0; paused != (failure.Class == slackout.RetryAfter) {
				t.Errorf("pauses %v", pauses)
			}
			w.slack.err = nil
			store.SetTime(nine.Add(time.Hour + 4*time.Second))
			turns(t, digests...)
			w.wantPosts(1)
		})
	}
}

// The digest waits for room in the pace of its channel, and gives up after an interval.
func TestPaceIsRespected(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		pace string
		want string
	}{{"1/2s", "post"}, {"1/1h", "line"}} {
		t.Run(test.pace, func(t *testing.T) {
			t.Parallel()
			store := redistest.RunEmbedded(t)
			w := newWorld(t, "redis://"+store.Addr(), test.pace, 4*time.Second)
			other := ratelimit.Post{Channel: "#ops", Name: "other", Longest: time.Second}
			asked := time.Now()
			permit, err := w.limiter.Begin(t.Context(), other)
			if err != nil || permit.Status != ratelimit.Granted {
				t.Fatalf("%+v, %v", permit, err)
			}
			now := time.Now()
			w.drop(now.Add(-w.config.Interval), "category", "errors", 1)
			w.drop(now, "category", "errors", 1)
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			d := w.digest()
			running.Go(func() { d.Run(ctx) })
			kit.Eventually(t, "a post or a line", func() bool { return len(w.slack.posts())+w.log.Len() > 0 })
			cancel()
			running.Wait()
			posted, line := len(w.slack.posts()) > 0, w.log.FilterMessage("the digest is not posted").Len() == 1
			if posted != (test.want == "post") || line != (test.want == "line") {
				t.Errorf("posts %q, log %v", w.slack.posts(), w.log.All())
			}
			if after := time.Since(asked); posted && after < 2*time.Second {
				t.Errorf("posted %s after another post", after)
			}
		})
	}
}

func TestRedisFails(t *testing.T) {
	t.Parallel()
	store := redistest.RunEmbedded(t)
	w := newWorld(t, "redis://"+store.Addr(), "off", 30*time.Minute)
	w.config.Permits = broken{}
	store.SetTime(time.Date(2026, 11, 20, 9, 30, 4, 0, time.UTC))
	w.drop(time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC), "category", "errors", 1)
	d := w.digest()
	for range 3 {
		turns(t, d)
	}
	w.wantPosts(0)
	if w.log.Len() != 1 {
		t.Errorf("%v", w.log.All())
	}
}

type broken struct{ digest.Permits }

func (broken) Begin(context.Context, ratelimit.Post) (ratelimit.Permit, error) {
	return ratelimit.Permit{}, errors.New("away")
}

func TestText(t *testing.T) {
	t.Parallel()
	drop := func(reason, category string, n int64) report.Drop {
		return report.Drop{Reason: reason, Category: category, N: n}
	}
	var many []report.Drop
	for i := range 33 {
		many = append(many, drop("category", fmt.Sprintf("c%02d", i), int64(100-i)), drop("muted", fmt.Sprintf("m%02d", i), 1))
	}
	got := digest.Text(90*time.Minute, many)
	for _, want := range []string{
		"Not sent in the last 1h30m: 2772 events over a limit, 33 muted\n", "• `c09`: 91 (category limit)\n• and 1817 more in 23 categories\n",
		", `m09` 1, and 23 more in 23 categories",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nexpected %q", got, want)
		}
	}
	for _, test := range []struct {
		drops []report.Drop
		want  string
	}{
		{[]report.Drop{drop("global", "_other", 2)}, "Not sent in the last 1m: 2 events over a limit\n• other categories: 2 (global limit)"},
		{[]report.Drop{drop("group", "<!channel>&\u202e\n<http://x|y>", 1)},
			"Not sent in the last 1m: 1 event over a limit\n• `&lt;!channel&gt;&amp;??&lt;http://x|y&gt;`: 1 (group limit)"},
		{[]report.Drop{drop("group", strings.Repeat("<@U1>", 50), 1)},
			"Not sent in the last 1m: 1 event over a limit\n• `" + strings.Repeat("&lt;@U1&gt;", 11) + "&lt;@…`: 1 (group limit)"},
		{[]report.Drop{drop("group", "``` *x* https://evil.example", 1)},
			"Not sent in the last 1m: 1 event over a limit\n• `''' *x* https://evil.example`: 1 (group limit)"},
		{[]report.Drop{drop("muted", "https.evil.example`", 1)},
			"Not sent in the last 1m: 1 muted\nMuted: `https.evil.example'` 1"},
	} {
		if got := digest.Text(time.Minute, test.drops); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, config := range []digest.Config{
		{Namespace: "{", Interval: time.Minute}, {Namespace: "n"}, {Namespace: "n", Interval: digest.MaxInterval + 1},
	} {
		if _, err := digest.New(config); err == nil {
			t.Errorf("%+v: no error", config)
		}
	}
}
