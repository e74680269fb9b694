package consume_test

import (
	stdcmp "cmp"
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"notifier/internal/consume"
	"notifier/internal/consume/decide"
	"notifier/internal/devstack"
	"notifier/internal/devstack/https"
	"notifier/internal/event"
	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
	"notifier/test/kit"
	"notifier/test/redistest"
)

func TestMain(m *testing.M) {
	kit.Overlap(12) // tests mostly wait
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

// fixture holds the NATS, Redis and fake Slack of one test, and the log of all workers that use them.
type fixture struct {
	*testing.T
	nats  *devstack.NATS
	redis *redistest.Server
	store *redis.Client // of redis
	slack *devstack.Slack
	// slackRoots trust slack, which speaks HTTPS with HTTP/2 as the real one does.
	slackRoots *x509.CertPool

	log  *logLines
	js   jetstream.JetStream // the publisher's connection
	conn *nats.Conn
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureWith(t, func(t *testing.T) *redistest.Server { return redistest.Start(t) })
}

func newFixtureWith(t *testing.T, start func(*testing.T) *redistest.Server) *fixture {
	t.Helper()
	t.Parallel() // before any server starts, so that waiting tests hold no resources
	server := start(t)
	natsServer, err := devstack.StartNATS(kit.FreeAddr(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := https.SelfSigned("127.0.0.1")
	kit.Check(t, err)
	slack, err := devstack.StartSlackTLS("127.0.0.1:0", &https.Server{Certificate: certificate})
	if err != nil {
		t.Fatal(err)
	}
	store := redis.NewClient(&redis.Options{Addr: server.Addr})
	s := &fixture{T: t, nats: natsServer, redis: server, store: store, slack: slack, slackRoots: certificate.Pool(), log: &logLines{}}
	t.Cleanup(func() {
		_ = slack.Close()
		_ = natsServer.Close()
		_ = store.Close()
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

// connect connects like the product does, but reconnects faster.
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

// setup holds the worker settings that tests change.
type setup struct {
	global, category, overrides  string
	redisURL, natsURL            string
	dedupe, maxAge, shutdown     time.Duration
	maxBytes, batch, concurrency int
	namespace                    string // that the worker has in common with its consumer
	pace                         string // if empty, there is no pace
	budget                       int64  // bytes in flight; zero means the default
	slackTimeout                 time.Duration
	// lease sets PostTimeout, from which the lease of a post follows. Zero means slackTimeout.
	lease           time.Duration
	routes          map[string]string // channels by category, in addition to deploys
	slackURL        string            // if empty, the fake Slack of the fixture
	webhook         bool
	dropped         string
	deadLetterBytes int64
	log             *logLines
	limiter         func(consume.Limiter) consume.Limiter // wraps the limiter
	group           func(category string) string
	mutes           decide.Mutes
}

// replica is one worker with its own connections.
type replica struct {
	*consume.Worker
	s           *fixture
	connection  *nats.Conn
	redisErrors *atomic.Int64 // failed calls of Admit
	cancel      context.CancelFunc
	ended       chan struct{}
	err         error     // result of Run; valid once ended is closed
	returned    time.Time // time at which Run returned
}

// start starts a worker under limits too high to reach, unless changes set others. The test's cleanup stops
// the worker.
func (s *fixture) start(changes ...func(*setup)) *replica {
	s.Helper()
	c := setup{
		global: "1000000/30m", category: "1000000/30m", redisURL: s.redis.URL(),
		natsURL: s.nats.URL(), maxBytes: 2 << 20, dedupe: 24 * time.Hour,
		shutdown: 5 * time.Second, batch: 64, concurrency: 8,
		slackTimeout: 5 * time.Second, log: s.log, namespace: namespace,
		limiter: func(l consume.Limiter) consume.Limiter { return l },
	}
	for _, change := range changes {
		change(&c)
	}
	client, _, err := ratelimit.OpenGuarded(c.redisURL, nil, c.concurrency)
	kit.Check(s.T, err)
	overrides, err := ratelimit.ParseOverrides(c.overrides)
	kit.Check(s.T, err)
	rules := ratelimit.Rules{Global: s.limit(c.global), Category: s.limit(c.category), Overrides: overrides}
	if c.pace != "" {
		rules.Pace = s.limit(c.pace)[0]
	}
	limiter, err := ratelimit.New(client, namespace, rules, c.dedupe)
	kit.Check(s.T, err)
	slack := slackout.Config{
		Token: slackToken, APIURL: stdcmp.Or(c.slackURL, s.slack.APIURL()),
		Channel: "C0DEFAULT", Timeout: c.slackTimeout, RootCAs: s.slackRoots,
	}
	routes := map[string]string{"deploys": "C0DEPLOYS"}
	maps.Copy(routes, c.routes)
	slack.Routes = pattern.MustTable(routes)
	if c.webhook {
		slack = slackout.Config{WebhookURL: s.slack.WebhookURL(), Timeout: c.slackTimeout, RootCAs: s.slackRoots}
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
		MaxBytes: c.budget, Channels: append([]string{"C0DEFAULT"}, slices.Sorted(maps.Values(routes))...),
		MaxAge: c.maxAge, BatchSize: c.batch, Concurrency: c.concurrency, ShutdownTimeout: c.shutdown,
		PostTimeout: stdcmp.Or(c.lease, c.slackTimeout), DroppedSubject: c.dropped,
		Limiter: countingLimiter{c.limiter(limiter), &redisErrors}, Slack: poster,
		Log: c.log.logger(), Events: c.log.events(), Group: c.group, Mutes: c.mutes,
	}
	connection := s.connectTo(c.natsURL)
	settings.JetStream = consume.JetStream{
		Connection: connection, Stream: streamName, Consumer: consumerName,
		Subject: "notify.>", Namespace: c.namespace, DeadLetter: "notify-dead",
		DeadLetterBytes: c.deadLetterBytes,
	}
	worker, err := consume.New(settings)
	kit.Check(s.T, err)
	ctx, cancel := context.WithCancel(s.Context())
	r := &replica{
		Worker: worker, s: s, connection: connection,
		redisErrors: &redisErrors, cancel: cancel, ended: make(chan struct{}),
	}
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

// started starts a worker and waits until it is ready.
func (s *fixture) started(changes ...func(*setup)) *replica {
	s.Helper()
	r := s.start(changes...)
	r.expectReady()
	return r
}

// waitsFor returns the reason why the worker waits for a dependency, or "" if it does not wait.
func (r *replica) waitsFor(word string) string {
	for _, wait := range r.Snapshot().Waits {
		if wait.For == word {
			return wait.Reason
		}
	}
	return ""
}

// stop cancels the worker and waits until Run returns.
func (r *replica) stop() error {
	r.s.Helper()
	r.cancel()
	return r.wait()
}

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

// crash closes the NATS connection before the worker can acknowledge or return anything.
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

// publish stores one event. The headers alternate names and values.
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

// publishMany stores n events of one category: "event 0", "event 1", and so on.
func (s *fixture) publishMany(category string, n int) {
	s.Helper()
	for i := range n {
		text := fmt.Appendf(nil, "event %d", i)
		_, err := s.js.PublishAsync("notify."+category, text, jetstream.WithStallWait(kit.Patience))
		kit.Check(s.T, err)
		if i%1000 == 999 {
			<-s.js.PublishAsyncComplete()
		}
	}
	<-s.js.PublishAsyncComplete()
}

// createStream creates the stream before a worker does.
func (s *fixture) createStream(change func(*jetstream.StreamConfig)) jetstream.Stream {
	s.Helper()
	config := jetstream.StreamConfig{
		Name: streamName, Subjects: []string{"notify.>"}, Retention: jetstream.WorkQueuePolicy,
	}
	if change != nil {
		change(&config)
	}
	stream, err := s.js.CreateStream(s.Context(), config)
	kit.Check(s.T, err)
	return stream
}

// createConsumer creates the stream and the consumer before a worker does.
func (s *fixture) createConsumer(change func(*jetstream.ConsumerConfig)) {
	s.Helper()
	stream := s.createStream(nil)
	config := jetstream.ConsumerConfig{
		Durable: consumerName, AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: -1,
	}
	change(&config)
	_, err := stream.CreateConsumer(s.Context(), config)
	kit.Check(s.T, err)
}

var impatient = ackWait(time.Second)

// Tests that expect no redelivery need an AckWait above a second on a loaded machine.
func ackWait(d time.Duration) func(*jetstream.ConsumerConfig) {
	return func(config *jetstream.ConsumerConfig) { config.AckWait = d }
}

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

// expectNothingLeft waits until the stream is empty and no event is unacknowledged.
func (s *fixture) expectNothingLeft() {
	s.Helper()
	s.eventually("nothing is left in the stream and nothing is unacknowledged", func() bool {
		info := s.consumerInfo()
		return s.streamInfo(streamName).State.Msgs == 0 && info.NumAckPending == 0 && info.NumPending == 0
	})
}

// charged returns the number of slots in use over all categories.
func (s *fixture) charged() int {
	s.Helper()
	slots, err := s.store.ZCard(s.Context(), "{"+namespace+"}:global").Result()
	kit.Check(s.T, err)
	return int(slots)
}

func (s *fixture) expectCharged(want int) {
	s.Helper()
	if got := s.charged(); got != want {
		s.Errorf("%d slots are taken, expected %d", got, want)
	}
}

// expectOutcomes compares the number of lines per outcome and reason.
func (s *fixture) expectOutcomes(want map[string]int, lines []line) {
	s.Helper()
	if diff := cmp.Diff(want, tally(lines)); diff != "" {
		s.Errorf("outcomes (-want +got):\n%s", diff)
	}
}

// expectLine waits for the line of an event and compares the fields in want. A nil value means that the
// line lacks the field.
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

func (r *replica) expectReady() {
	r.s.Helper()
	r.s.eventually("the worker is ready", func() bool { return len(r.Ready(r.s.Context())) == 0 })
}

func (s *fixture) eventually(what string, holds func() bool) {
	s.Helper()
	kit.Eventually(s.T, what, holds)
}

// settled waits for n settled events, checks that there are not more, and returns their lines.
func (s *fixture) settled(n int) []line {
	s.Helper()
	s.eventually(fmt.Sprintf("%d events are settled", n), func() bool { return len(s.log.settled()) >= n })
	lines := s.log.settled()
	if len(lines) != n {
		s.Errorf("%d events are settled, expected %d", len(lines), n)
	}
	return lines
}

// posted counts the messages in Slack by text.
func (s *fixture) posted() map[string]int {
	texts := map[string]int{}
	for _, message := range s.slack.Messages() {
		texts[message.Text]++
	}
	return texts
}

// expectEachPostedOnce checks that Slack has n messages, all with different texts.
func (s *fixture) expectEachPostedOnce(n int) {
	s.Helper()
	texts := s.posted()
	if len(texts) != n || s.slack.Accepted() != n {
		s.Errorf("%d different texts in %d posts, expected %d in %d", len(texts), s.slack.Accepted(), n, n)
	}
}
