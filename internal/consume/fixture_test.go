package consume_test

import (
	stdcmp "cmp"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"notifier/internal/consume"
	"notifier/internal/devstack"
	"notifier/internal/event"
	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
	"notifier/test/kit"
	"notifier/test/redistest"
)

func TestMain(m *testing.M) {
	kit.Overlap(24) // most of them wait
	consume.Hurry()
	kit.QuietRedis()
	goleak.VerifyTestMain(m, kit.NATSServerEnds()...)
}

const (
	streamName   = "NOTIFY"
	deadName     = "NOTIFY_DEAD"
	consumerName = "notifier"
	namespace    = "test"
	slackToken   = "xoxb-1234-SeCrEtToKeN"
)

// fixture is a NATS, a Redis and a fake Slack of one test's own, and the log of all workers that run against
// them.
type fixture struct {
	*testing.T
	nats  *devstack.NATS
	redis *redistest.Server
	slack *devstack.Slack
	log   *logLines
	js    jetstream.JetStream // the publisher's view
	conn  *nats.Conn
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureWith(t, func(t *testing.T) *redistest.Server { return redistest.Start(t) })
}

func newFixtureWith(t *testing.T, start func(*testing.T) *redistest.Server) *fixture {
	t.Helper()
	t.Parallel() // before any server is started: only what runs takes a place and a processor
	store := start(t)
	server, err := devstack.StartNATS(kit.FreeAddr(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	slack, err := devstack.StartSlack("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &fixture{T: t, nats: server, redis: store, slack: slack, log: &logLines{}}
	t.Cleanup(func() {
		_ = slack.Close()
		_ = server.Close()
		if t.Failed() {
			t.Logf("the log's last lines:\n%s", s.log.tail(30))
		}
	})
	s.conn = s.connect()
	if s.js, err = jetstream.New(s.conn); err != nil {
		t.Fatal(err)
	}
	return s
}

// connect makes a connection as the product does, but reconnects faster.
func (s *fixture) connect() *nats.Conn {
	s.Helper()
	return s.connectTo(s.nats.URL())
}

func (s *fixture) connectTo(url string) *nats.Conn {
	s.Helper()
	connection, err := nats.Connect(url, nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(connection.Close)
	return connection
}

// setup is what differs from test to test in a worker's settings.
type setup struct {
	global, category, overrides  string
	redisURL, natsURL            string
	dedupe, maxAge, shutdown     time.Duration
	maxBytes, batch, concurrency int
	pace                         string // empty: none
	budget                       int64  // bytes in flight; 0: the default
	slackTimeout                 time.Duration
	// for how long others leave a post alone, but for a margin; 0: slackTimeout
	lease           time.Duration
	channel         string
	webhook         bool
	dropped         string
	deadLetterBytes int64
	log             *logLines
	limiter         func(consume.Limiter) consume.Limiter // what is put around the limiter
	group           func(category string) string
	mutes           consume.Mutes
}

// replica is one worker with connections of its own.
type replica struct {
	*consume.Worker
	s           *fixture
	connection  *nats.Conn
	redisErrors *atomic.Int64 // calls to decide that have failed
	cancel      context.CancelFunc
	ended       chan struct{}
	err         error     // what Run returned, when ended is closed
	returned    time.Time // when it did
}

// start starts a worker under limits that nothing reaches, unless changes set others. It is stopped with the
// test.
func (s *fixture) start(changes ...func(*setup)) *replica {
	s.Helper()
	c := setup{
		global: "1000000/30m", category: "1000000/30m", redisURL: s.redis.URL(), natsURL: s.nats.URL(), maxBytes: 2 << 20, dedupe: 24 * time.Hour,
		shutdown: 5 * time.Second, batch: 64, concurrency: 8, slackTimeout: 5 * time.Second, log: s.log, channel: "C0DEFAULT",
		limiter: func(l consume.Limiter) consume.Limiter { return l },
	}
	for _, change := range changes {
		change(&c)
	}
	client, _, err := ratelimit.OpenGuarded(c.redisURL, nil)
	kit.Check(s.T, err)
	overrides, err := ratelimit.ParseOverrides(c.overrides)
	kit.Check(s.T, err)
	rules := ratelimit.Rules{Global: s.limit(c.global), Category: s.limit(c.category), Overrides: overrides}
	if c.pace != "" {
		rules.Pace = s.limit(c.pace)[0]
	}
	limiter, err := ratelimit.New(client, namespace, rules, c.dedupe)
	kit.Check(s.T, err)
	slack := slackout.Config{Token: slackToken, APIURL: s.slack.APIURL(), Channel: c.channel, Timeout: c.slackTimeout}
	slack.Routes = pattern.MustTable(map[string]string{"deploys": "C0DEPLOYS"})
	if c.webhook {
		slack = slackout.Config{WebhookURL: s.slack.WebhookURL(), Timeout: c.slackTimeout}
	}
	poster, err := slackout.New(slack)
	kit.Check(s.T, err)
	subject, err := event.ParsePattern("notify.>")
	kit.Check(s.T, err)
	var redisErrors atomic.Int64
	settings := consume.Settings{
		Rules: event.Rules{
			Pattern: subject, MaxBytes: c.maxBytes, CheckCost: rules.CheckCost,
			ChannelAllowed: func(channel string) bool { return channel == "C0DEFAULT" || channel == "C0DEPLOYS" },
		},
		MaxBytes: c.budget, LongestLater: 15 * time.Minute, Channels: []string{c.channel, "C0DEPLOYS"}, Pace: rules.Pace,
		MaxAge: c.maxAge, BatchSize: c.batch, Concurrency: c.concurrency, ShutdownTimeout: c.shutdown, PostTimeout: stdcmp.Or(c.lease, c.slackTimeout), DroppedSubject: c.dropped,
		Limiter: countingLimiter{c.limiter(limiter), &redisErrors}, Slack: poster, Log: c.log.logger(), Events: c.log.events(), Group: c.group, Mutes: c.mutes,
	}
	connection := s.connectTo(c.natsURL)
	settings.JetStream = consume.JetStream{
		Connection: connection, Stream: streamName, Consumer: consumerName, Subject: "notify.>", DeadLetter: "notify-dead",
		DeadLetterBytes: c.deadLetterBytes,
	}
	worker, err := consume.New(settings)
	kit.Check(s.T, err)
	ctx, cancel := context.WithCancel(s.Context())
	r := &replica{Worker: worker, s: s, connection: connection, redisErrors: &redisErrors, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.err = worker.Run(ctx)
		r.returned = time.Now()
		_ = connection.FlushTimeout(time.Second)
	}()
	s.Cleanup(func() {
		r.cancel()
		<-r.ended
		connection.Close()
		poster.Close()
		_ = client.Close()
	})
	return r
}

// started is start, and waits until the worker is ready.
func (s *fixture) started(changes ...func(*setup)) *replica {
	s.Helper()
	r := s.start(changes...)
	r.expectReady()
	return r
}

// waitsFor is why the worker waits for this; empty: it does not.
func (r *replica) waitsFor(word string) string {
	for _, wait := range r.Waits() {
		if wait.For == word {
			return wait.Reason
		}
	}
	return ""
}

// stop asks the worker to end and waits for it.
func (r *replica) stop() error {
	r.s.Helper()
	r.cancel()
	return r.wait()
}

// wait waits until Run has returned.
func (r *replica) wait() error {
	r.s.Helper()
	select {
	case <-r.ended:
		return r.err
	case <-time.After(kit.Patience):
		r.s.Fatal("Run does not return")
		return nil
	}
}

// crash ends a worker without a last message to NATS.
func (r *replica) crash() {
	r.s.Helper()
	r.connection.Close()
	_ = r.stop()
}

func (s *fixture) limit(text string) ratelimit.Limit {
	s.Helper()
	limit, err := ratelimit.ParseLimit(text)
	kit.Check(s.T, err)
	return limit
}

// publish stores one event; headers are pairs of name and value.
func (s *fixture) publish(category, payload string, headers ...string) uint64 {
	s.Helper()
	message := nats.NewMsg("notify." + category)
	message.Data = []byte(payload)
	for i := 0; i < len(headers); i += 2 {
		message.Header[headers[i]] = append(message.Header[headers[i]], headers[i+1])
	}
	ack, err := s.js.PublishMsg(s.Context(), message)
	if err != nil {
		s.Fatalf("publish to %s: %v", message.Subject, err)
	}
	return ack.Sequence
}

// publishMany stores n events "event 0", "event 1", ... of one category.
func (s *fixture) publishMany(category string, n int) {
	s.Helper()
	for i := range n {
		_, err := s.js.PublishAsync("notify."+category, fmt.Appendf(nil, "event %d", i), jetstream.WithStallWait(kit.Patience))
		kit.Check(s.T, err)
		if i%1000 == 999 {
			<-s.js.PublishAsyncComplete()
		}
	}
	<-s.js.PublishAsyncComplete()
}

// createStream creates the stream before any worker does.
func (s *fixture) createStream(change func(*jetstream.StreamConfig)) jetstream.Stream {
	s.Helper()
	config := jetstream.StreamConfig{Name: streamName, Subjects: []string{"notify.>"}, Retention: jetstream.WorkQueuePolicy}
	if change != nil {
		change(&config)
	}
	stream, err := s.js.CreateStream(s.Context(), config)
	kit.Check(s.T, err)
	return stream
}

// createConsumer creates stream and consumer before any worker does.
func (s *fixture) createConsumer(change func(*jetstream.ConsumerConfig)) {
	s.Helper()
	stream := s.createStream(nil)
	config := jetstream.ConsumerConfig{Durable: consumerName, AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: -1}
	change(&config)
	_, err := stream.CreateConsumer(s.Context(), config)
	kit.Check(s.T, err)
}

func impatient(config *jetstream.ConsumerConfig) { config.AckWait = time.Second }

func (s *fixture) streamInfo(name string) *jetstream.StreamInfo {
	s.Helper()
	stream, err := s.js.Stream(s.Context(), name)
	kit.Check(s.T, err)
	return stream.CachedInfo()
}

func (s *fixture) consumerInfo() *jetstream.ConsumerInfo {
	s.Helper()
	consumer, err := s.js.Consumer(s.Context(), streamName, consumerName)
	kit.Check(s.T, err)
	return consumer.CachedInfo()
}

// expectNothingLeft waits until the server has every acknowledgement: nothing in the stream, nothing handed
// out.
func (s *fixture) expectNothingLeft() {
	s.Helper()
	s.eventually("nothing is left in the stream and nothing is unacknowledged", func() bool {
		info := s.consumerInfo()
		return s.streamInfo(streamName).State.Msgs == 0 && info.NumAckPending == 0 && info.NumPending == 0
	})
}

// charged is how many slots are taken over all categories.
func (s *fixture) charged() int {
	s.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.redis.Addr})
	defer func() { _ = client.Close() }()
	slots, err := client.ZCard(s.Context(), "{"+namespace+"}:global").Result()
	kit.Check(s.T, err)
	return int(slots)
}

// expectCharged checks how many slots are taken over all categories.
func (s *fixture) expectCharged(want int) {
	s.Helper()
	if got := s.charged(); got != want {
		s.Errorf("%d slots are taken, expected %d", got, want)
	}
}

// expectOutcomes compares the outcomes and reasons of lines.
func (s *fixture) expectOutcomes(want map[string]int, lines []line) {
	s.Helper()
	if diff := cmp.Diff(want, tally(lines)); diff != "" {
		s.Errorf("outcomes (-want +got):\n%s", diff)
	}
}

// expectLine waits for the line of an event, and compares some of its fields; nil: it has none.
func (s *fixture) expectLine(id string, want line) {
	s.Helper()
	got, seen := s.lineOf(id), line{}
	for name := range want {
		seen[name] = got[name]
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		s.Errorf("line %v (-want +got):\n%s", got, diff)
	}
}

// expectReady waits until the worker is ready.
func (r *replica) expectReady() {
	r.s.Helper()
	r.s.eventually("the worker is ready", func() bool { return len(r.Ready(r.s.Context())) == 0 })
}

// eventually is kit's.
func (s *fixture) eventually(what string, holds func() bool) {
	s.Helper()
	kit.Eventually(s.T, what, holds)
}

// settled waits until so many events are settled, checks that there are no more, and returns their lines.
func (s *fixture) settled(n int) []line {
	s.Helper()
	s.eventually(fmt.Sprintf("%d events are settled", n), func() bool { return len(s.log.settled()) >= n })
	lines := s.log.settled()
	if len(lines) != n {
		s.Errorf("%d events are settled, expected %d", len(lines), n)
	}
	return lines
}

// posted is how often each text is in the fake Slack.
func (s *fixture) posted() map[string]int {
	texts := map[string]int{}
	for _, message := range s.slack.Messages() {
		texts[message.Text]++
	}
	return texts
}

// expectEachPostedOnce checks that n texts are in Slack, none of them twice.
func (s *fixture) expectEachPostedOnce(n int) {
	s.Helper()
	texts := s.posted()
	if len(texts) != n || s.slack.Accepted() != n {
		s.Errorf("%d different texts in %d posts, expected %d in %d", len(texts), s.slack.Accepted(), n, n)
	}
}
