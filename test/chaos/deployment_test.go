package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

const (
	streamName   = "NOTIFY"
	deadName     = "NOTIFY_DEAD"
	consumerName = "notifier"
	namespace    = "chaos"
	channel      = "C0CHAOS"
	routes       = "audit=C0AUDIT" // a second channel, so that one is limited while the other is not
	pace         = "6/1s"          // about half of what the limits of TestChaos let through
)

// limits are the settings of the same names. The global one has the longest window, if only in a tier that never refuses
// anything: so long its set shows what was admitted, and so late a look at it may come.
type limits struct {
	global, category string
	overrides        map[string]string // by category
}

// overridesText is the value of LIMIT_OVERRIDES.
func (l limits) overridesText() string {
	var parts []string
	for _, category := range slices.Sorted(maps.Keys(l.overrides)) {
		parts = append(parts, category+"="+l.overrides[category])
	}
	return strings.Join(parts, ",")
}

// world is everything around the workers, and what is needed for the account at the end.
type world struct {
	*testing.T
	nats    *devstack.NATS    // nil in a cluster
	redis   *redistest.Server // likewise
	urls    map[string]string // NATS_URL and REDIS_URL of workers without links
	slack   *devstack.Slack
	door    string // where workers find Slack
	js      jetstream.JetStream
	ackWait time.Duration
	limits  limits

	workers   []*worker
	paced     atomic.Bool // processes that are started now have a pace
	register  *register
	publisher *publisher
	diary     *diary
	orders    orders // of operators

	hiding sync.Mutex
	hidden int  // how many want the channel unreadable
	shown  bool // nobody can have it so
}

// newWorld starts NATS on disk, a Redis that forgets nothing, and the fake Slack, and creates the stream and a consumer
// that is impatient: the product takes one that is there as it is.
func newWorld(t *testing.T, ackWait time.Duration, limits limits, redisOptions ...string) *world {
	t.Helper()
	w := &world{T: t, ackWait: ackWait, limits: limits, diary: &diary{begun: time.Now()}}
	options := append([]string{"--appendonly", "yes", "--appendfsync", "always"}, redisOptions...)
	w.redis = redistest.StartProcess(t, options...)
	var err error
	w.nats, err = devstack.StartNATS(kit.FreeAddr(t), t.TempDir())
	kit.Check(t, err)
	t.Cleanup(func() { _ = w.nats.Close() })
	w.urls = map[string]string{"NATS_URL": w.nats.URL(), "REDIS_URL": w.redis.URL()}
	w.equip(redis.NewClient(&redis.Options{Addr: w.redis.Addr, MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: time.Second}))
	return w
}

// equip adds to the servers of NATS and Redis what every world has. The client is the register's, which closes it.
func (w *world) equip(client *redis.Client) {
	w.Helper()
	t := w.T
	var err error
	w.slack, err = devstack.StartSlack("127.0.0.1:0")
	kit.Check(t, err)
	t.Cleanup(func() { _ = w.slack.Close() })
	w.door = openDoor(t, w.slack.URL())

	connection, err := nats.Connect(w.urls["NATS_URL"], nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0))
	kit.Check(t, err)
	t.Cleanup(connection.Close)
	w.js, err = jetstream.New(connection, jetstream.WithDefaultTimeout(2*time.Second))
	kit.Check(t, err)
	w.createStream()
	kit.EventuallyNil(t, func() error { return w.createConsumer(t.Context()) })
	w.publisher = &publisher{js: w.js, events: map[string]*event{}}
	w.register = watch(t, client, kit.Rules(w.limits.global, w.limits.category, w.limits.overridesText()))
}

// createStream creates the stream, with three replicas where there is a cluster.
func (w *world) createStream() {
	w.Helper()
	stream := jetstream.StreamConfig{
		Name: streamName, Subjects: []string{"notify.>"}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
	}
	if w.nats == nil {
		stream.Subjects, stream.Replicas = append(stream.Subjects, probeSubject), natsServers
	}
	kit.EventuallyNil(w.T, func() error { // a cluster may still elect its leaders
		_, err := w.js.CreateStream(w.Context(), stream) // one that is there, and is the same, is no error
		return err
	})
}

// createConsumer creates the consumer, unless a worker has been faster.
func (w *world) createConsumer(ctx context.Context) error {
	_, err := w.js.CreateConsumer(ctx, streamName, jetstream.ConsumerConfig{
		Durable: consumerName, AckPolicy: jetstream.AckExplicitPolicy, AckWait: w.ackWait, MaxDeliver: -1, FilterSubject: "notify.>",
	})
	if errors.Is(err, jetstream.ErrConsumerExists) {
		return nil
	}
	return err
}

// addWorker makes a worker with links of its own, and does not start it.
func (w *world) addWorker(p *kit.Program, linked bool) *worker {
	w.Helper()
	name := fmt.Sprintf("w%d", len(w.workers)+1)
	urls, door, links := maps.Clone(w.urls), w.door, map[string]*link{}
	if linked {
		for server, addr := range map[string]string{"nats": w.nats.Addr(), "redis": w.redis.Addr, "slack": w.door} {
			links[server] = connect(w.T, name+"-"+server, addr)
		}
		urls["NATS_URL"], urls["REDIS_URL"] = "nats://"+links["nats"].addr, "redis://"+links["redis"].addr+"/0"
		door = links["slack"].addr
	}
	settings := map[string]string{
		"NATS_URL": urls["NATS_URL"], "NATS_STREAM": streamName, "NATS_CONSUMER": consumerName,
		"REDIS_URL": urls["REDIS_URL"], "REDIS_NAMESPACE": namespace,
		"SLACK_API_URL": "http://" + door + "/api/", "SLACK_CHANNEL": channel, "SLACK_ROUTES": routes, "SLACK_TIMEOUT": "1s",
		"LIMIT_GLOBAL": w.limits.global, "LIMIT_CATEGORY": w.limits.category, "LIMIT_OVERRIDES": w.limits.overridesText(),
		"BATCH_SIZE": "16", "SEND_CONCURRENCY": "4", "SHUTDOWN_TIMEOUT": "4s", "ADMIN_ADDR": "127.0.0.1:0", "GOMAXPROCS": "1",
	}
	k := &worker{t: w.T, name: name, folder: w.TempDir(), program: p.Build(w.T, folder), settings: settings, links: links, paced: &w.paced}
	w.workers = append(w.workers, k)
	return k
}

// startWorkers starts so many workers of the plain build, and waits until they are ready.
func (w *world) startWorkers(n int, linked bool) {
	w.Helper()
	for range n {
		_, err := w.addWorker(plain, linked).start()
		kit.Check(w.T, err)
	}
	for _, k := range w.workers {
		kit.Eventually(w.T, k.name+" is ready", func() bool { return k.now().ready() == nil })
	}
}

// rest waits until the workers can send and nothing is left to do: nothing in the stream, nothing handed out.
func (w *world) rest() {
	w.Helper()
	var left string
	resting := kit.Within(2*kit.Patience, func() bool {
		left = w.unrest()
		return left == ""
	})
	if !resting {
		w.Errorf("the system does not come to rest: %s", left)
	}
}

// unrest says what is still to be waited for; empty: nothing.
func (w *world) unrest() string {
	for _, k := range w.workers {
		if l := k.now(); !l.crashed() {
			if err := l.ready(); err != nil {
				return err.Error()
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	stream, err := w.js.Stream(ctx, streamName)
	if err != nil {
		return err.Error()
	}
	consumer, err := w.js.Consumer(ctx, streamName, consumerName)
	if err != nil {
		return err.Error()
	}
	messages, info := stream.CachedInfo().State.Msgs, consumer.CachedInfo()
	if messages > 0 || info.NumPending > 0 || info.NumAckPending > 0 {
		return fmt.Sprintf("%d events in the stream, %d handed out", messages, info.NumAckPending)
	}
	return ""
}

// shutDown stops all workers that still run, and expects them to end well.
func (w *world) shutDown() {
	w.Helper()
	begun := time.Now()
	for _, k := range w.workers {
		if l := k.now(); !l.dead() {
			if err := l.terminate(); err != nil {
				w.Error(err)
			}
		}
	}
	w.diary.note(faultTerm, "all, at the end", begun)
}

// lives are all processes of all workers, by name.
func (w *world) lives() map[string]*life {
	lives := map[string]*life{}
	for _, k := range w.workers {
		for _, l := range k.lives {
			lives[l.name] = l
		}
	}
	return lives
}

// deadLetters are the reasons of the dead letters by event id.
func (w *world) deadLetters() map[string][]string {
	w.Helper()
	letters := map[string][]string{}
	var stream jetstream.Stream
	kit.EventuallyNil(w.T, func() (err error) {
		if stream, err = w.js.Stream(w.Context(), deadName); errors.Is(err, jetstream.ErrStreamNotFound) {
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
		kit.EventuallyNil(w.T, func() (err error) {
			letter, err = stream.GetMsg(w.Context(), seq)
			return err
		})
		id := letter.Header.Get("Notifier-Event-Id")
		letters[id] = append(letters[id], letter.Header.Get("Notifier-Reason"))
	}
	return letters
}
