package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"notifier/internal/devstack"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// tokenPrefix starts each worker's Slack token; the name of the process follows.
const tokenPrefix = "xoxb-"

const (
	streamName   = "NOTIFY"
	deadName     = "NOTIFY_DEAD"
	consumerName = "notifier"
	namespace    = "chaos"
	channel      = "C0CHAOS"
	routes       = "billing=C0BILLING" // a second channel, because each is limited by itself
	pace         = "6/1s"              // about half the rate that TestChaos's limits allow
)

// limits holds the LIMIT_ settings. The global limit must have the longest window, if only in a tier that
// never refuses, because its log shows an admission for that long: a later look would miss it.
type limits struct {
	global, category string
	overrides        map[string]string // by category
}

// overridesText returns the value of LIMIT_OVERRIDES.
func (l limits) overridesText() string {
	var parts []string
	for _, category := range slices.Sorted(maps.Keys(l.overrides)) {
		parts = append(parts, category+"="+l.overrides[category])
	}
	return strings.Join(parts, ",")
}

// deployment holds the workers, the servers around them, and the evidence for the final audit.
type deployment struct {
	*testing.T
	nats       *devstack.NATS    // nil in a cluster
	redis      *redistest.Server // likewise
	urls       map[string]string // NATS_URL and REDIS_URL of workers without links
	slack      *devstack.Slack
	slackProxy *kit.SlackProxy // where workers find Slack
	js         jetstream.JetStream
	ackWait    time.Duration
	limits     limits

	workers   []*worker
	paced     atomic.Bool // new processes get a pace
	ledger    *ledger
	publisher *publisher
	faults    *faultLog
	orders    orders
	kept      string // folder for the logs; see keptFolder
	records   []*record

	hiding sync.Mutex
	hidden int  // callers of hideChannel that have not shown it again
	shown  bool // keeps the channel readable, whatever hidden says

	unreadable atomic.Bool // workers can post to the channel but not read it
	posts      atomic.Pointer[devstack.Hook]
}

// newDeployment starts NATS on disk, a Redis that syncs each write, and the fake Slack. It creates the
// stream, and the consumer with a short AckWait, which workers accept as they find it.
func newDeployment(t *testing.T, ackWait time.Duration, limits limits, redisOptions ...string) *deployment {
	t.Helper()
	d := &deployment{T: t, ackWait: ackWait, limits: limits, faults: &faultLog{begun: time.Now()}, kept: keptFolder(t)}
	options := append([]string{"--appendonly", "yes", "--appendfsync", "always"}, redisOptions...)
	d.redis = redistest.StartProcess(t, options...)
	var err error
	d.nats, err = devstack.StartNATS(kit.FreeAddr(t), t.TempDir())
	kit.Check(t, err)
	t.Cleanup(func() { _ = d.nats.Close() })
	d.urls = map[string]string{"NATS_URL": d.nats.URL(), "REDIS_URL": d.redis.URL()}
	d.equip(redis.NewClient(&redis.Options{Addr: d.redis.Addr, MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: time.Second}))
	return d
}

// equip adds the parts that every deployment has besides NATS and Redis. The ledger owns the client and
// closes it.
func (d *deployment) equip(client *redis.Client) {
	d.Helper()
	t := d.T
	var err error
	d.slack, err = devstack.StartSlack("127.0.0.1:0")
	kit.Check(t, err)
	t.Cleanup(func() { _ = d.slack.Close() })
	d.slack.Respond(d.respond)
	d.slackProxy = kit.StartSlackProxy(t, d.slack.URL())

	connection, err := nats.Connect(d.urls["NATS_URL"], nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0))
	kit.Check(t, err)
	t.Cleanup(connection.Close)
	d.js, err = jetstream.New(connection, jetstream.WithDefaultTimeout(2*time.Second))
	kit.Check(t, err)
	d.listen()
	d.createStream()
	kit.EventuallyNil(t, func() error { return d.createConsumer(t.Context()) })
	d.publisher = &publisher{js: d.js, events: map[string]*event{}}
	d.ledger = watch(t, client, kit.Rules(d.limits.global, d.limits.category, d.limits.overridesText()))
}

// retention returns the retention policy of the stream. With NOTIFIER_CHAOS_RETENTION=limits the stream
// keeps settled events; package natsloss shows why an operator may want that.
func retention() jetstream.RetentionPolicy {
	if os.Getenv("NOTIFIER_CHAOS_RETENTION") == "limits" {
		return jetstream.LimitsPolicy
	}
	return jetstream.WorkQueuePolicy
}

// createStream creates the stream, with three replicas in a cluster.
func (d *deployment) createStream() {
	d.Helper()
	stream := jetstream.StreamConfig{
		Name: streamName, Subjects: []string{"notify.>"}, Retention: retention(), Storage: jetstream.FileStorage,
	}
	if d.nats == nil {
		stream.Subjects, stream.Replicas = append(stream.Subjects, probeSubject), natsServers
	}
	kit.EventuallyNil(d.T, func() error { // a cluster may still be electing its leaders
		_, err := d.js.CreateStream(d.Context(), stream) // succeeds if the same stream exists
		return err
	})
}

// createConsumer creates the consumer, unless a worker already has.
func (d *deployment) createConsumer(ctx context.Context) error {
	_, err := d.js.CreateConsumer(ctx, streamName, jetstream.ConsumerConfig{
		Durable: consumerName, AckPolicy: jetstream.AckExplicitPolicy, AckWait: d.ackWait, MaxDeliver: -1, FilterSubject: "notify.>",
		SampleFrequency: "100%", // see heard
	})
	if errors.Is(err, jetstream.ErrConsumerExists) {
		return nil
	}
	return err
}

// addWorker adds a worker without starting it. If linked, it has its own link to each server.
func (d *deployment) addWorker(p *kit.Program, linked bool) *worker {
	d.Helper()
	name := fmt.Sprintf("w%d", len(d.workers)+1)
	urls, slackAddr, links := maps.Clone(d.urls), d.slackProxy.Addr, map[string]*link{}
	if linked {
		for server, addr := range map[string]string{"nats": d.nats.Addr(), "redis": d.redis.Addr, "slack": d.slackProxy.Addr} {
			links[server] = connect(d.T, name+"-"+server, addr)
		}
		urls["NATS_URL"], urls["REDIS_URL"] = "nats://"+links["nats"].addr, "redis://"+links["redis"].addr+"/0"
		slackAddr = links["slack"].addr
	}
	settings := map[string]string{
		"NATS_URL": urls["NATS_URL"], "NATS_STREAM": streamName, "NATS_CONSUMER": consumerName,
		"REDIS_URL": urls["REDIS_URL"], "REDIS_NAMESPACE": namespace,
		"SLACK_API_URL": d.slackProxy.APIURL(slackAddr), "SLACK_CHANNEL": channel, "SLACK_ROUTES": routes, "SLACK_TIMEOUT": "1s",
		"LIMIT_GLOBAL": d.limits.global, "LIMIT_CATEGORY": d.limits.category, "LIMIT_OVERRIDES": d.limits.overridesText(),
		"BATCH_SIZE": "16", "SEND_CONCURRENCY": "4", "SHUTDOWN_TIMEOUT": "4s", "ADMIN_ADDR": "127.0.0.1:0", "GOMAXPROCS": "1",
	}
	maps.Copy(settings, d.slackProxy.Trust)
	k := &worker{t: d.T, name: name, folder: d.kept, program: p.Build(d.T, folder), settings: settings, links: links, paced: &d.paced}
	d.workers = append(d.workers, k)
	return k
}

// startWorkers starts n workers of the plain build, and waits until they are ready.
func (d *deployment) startWorkers(n int, linked bool) {
	d.Helper()
	for range n {
		_, err := d.addWorker(plain, linked).start()
		kit.Check(d.T, err)
	}
	for _, k := range d.workers {
		kit.Eventually(d.T, k.name+" is ready", func() bool { return k.now().Ready() == nil })
	}
}

// rest waits until all workers are ready, the stream is empty, and no delivery is unacknowledged.
func (d *deployment) rest() {
	d.Helper()
	var left string
	resting := kit.Within(2*kit.Patience, func() bool {
		left = d.unrest()
		return left == ""
	})
	if !resting {
		d.Errorf("the system does not come to rest: %s", left)
	}
}

// unrest returns the reason to keep waiting. It returns "" if the system is at rest.
func (d *deployment) unrest() string {
	for _, k := range d.workers {
		if l := k.now(); !l.crashed() {
			if err := l.Ready(); err != nil {
				return err.Error()
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	stream, err := d.js.Stream(ctx, streamName)
	if err != nil {
		return err.Error()
	}
	consumer, err := d.js.Consumer(ctx, streamName, consumerName)
	if err != nil {
		return err.Error()
	}
	messages, info := stream.CachedInfo().State.Msgs, consumer.CachedInfo()
	if stream.CachedInfo().Config.Retention == jetstream.LimitsPolicy {
		messages = 0 // the stream keeps settled events
	}
	if messages > 0 || info.NumPending > 0 || info.NumAckPending > 0 {
		return fmt.Sprintf("%d events in the stream, %d handed out", messages, info.NumAckPending)
	}
	return ""
}

// shutDown terminates all running workers and expects each to exit with code 0.
func (d *deployment) shutDown() {
	d.Helper()
	begun := time.Now()
	for _, k := range d.workers {
		if l := k.now(); !l.Dead() {
			if err := l.terminate(); err != nil {
				d.Error(err)
			}
		}
	}
	d.faults.note(faultTerm, everyWorker, begun)
}

// processes returns all processes of all workers, by name.
func (d *deployment) processes() map[string]*process {
	processes := map[string]*process{}
	for _, k := range d.workers {
		for _, l := range k.processes {
			processes[l.name] = l
		}
	}
	return processes
}

// deadLetter is one message in the dead-letter stream.
type deadLetter struct {
	reason string
	stored time.Time
}

// deadLetters returns the dead letters by event ID.
func (d *deployment) deadLetters() map[string][]deadLetter {
	d.Helper()
	letters := map[string][]deadLetter{}
	var stream jetstream.Stream
	kit.EventuallyNil(d.T, func() (err error) {
		if stream, err = d.js.Stream(d.Context(), deadName); errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		return err
	})
	if stream == nil {
		return letters
	}
	state := stream.CachedInfo().State
	for seq := state.FirstSeq; state.Msgs > 0 && seq <= state.LastSeq; seq++ {
		var letter *jetstream.RawStreamMsg
		kit.EventuallyNil(d.T, func() (err error) {
			letter, err = stream.GetMsg(d.Context(), seq)
			return err
		})
		id := letter.Header.Get("Notifier-Event-Id")
		letters[id] = append(letters[id], deadLetter{letter.Header.Get("Notifier-Reason"), letter.Time})
	}
	return letters
}

// load publishes at a steady rate, above the limits, until end is called.
func (d *deployment) load(seed uint64, perSecond int) (end func()) {
	ctx, cancel := context.WithCancel(d.Context())
	var running sync.WaitGroup
	running.Go(func() {
		categories := []string{"alpha", "alpha", "alpha", "beta", "beta", "gamma", "delta", "billing", "billing"}
		d.publisher.run(ctx, rand.New(rand.NewPCG(seed, 1000)), perSecond, categories)
	})
	return sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
}
