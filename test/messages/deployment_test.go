package messages

import (
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/devstack"
	"notifier/internal/devstack/https"
	"notifier/internal/wait"
	"notifier/test/kit"
	"notifier/test/redistest"
)

const (
	streamName   = "NOTIFY"
	consumerName = "notifier"
	namespace    = "messages"
)

// deployment holds the workers and the servers around them.
type deployment struct {
	*testing.T
	js        jetstream.JetStream
	slackAddr string
	slackTLS  *https.Server
	slacks    []*devstack.Slack // one after the other at slackAddr; the last one is in use
	settings  map[string]string
	workers   []*kit.Worker // that run
	killed    []*kit.Worker
	logs      string
	events    map[string]event // by id
}

type event struct {
	category  string
	published time.Time // before JetStream had it
}

func newDeployment(t *testing.T, global, category string) *deployment {
	t.Helper()
	redis := redistest.StartProcess(t).Healed(t, namespace)
	server, err := devstack.StartNATS("127.0.0.1:0", t.TempDir())
	kit.Check(t, err)
	t.Cleanup(func() { _ = server.Close() })
	d := &deployment{
		T: t, js: kit.JetStream(t, server.URL()), slackAddr: kit.FreeAddr(t), logs: t.TempDir(),
		events: map[string]event{},
	}
	var trust map[string]string
	d.slackTLS, trust = kit.SlackTLS(t)
	d.createConsumer()
	d.startSlack()
	d.settings = map[string]string{
		"NATS_URL": server.URL(), "NATS_STREAM": streamName, "NATS_CONSUMER": consumerName,
		"REDIS_URL": redis.URL(), "REDIS_NAMESPACE": namespace,
		"SLACK_API_URL": d.slack().APIURL(), "SLACK_BOT_TOKEN": "xoxb-messages", "SLACK_CHANNEL": "C0MESSAGES",
		"SLACK_TIMEOUT": "1s", "SLACK_PACE": "off", // the limits alone hold posts back
		"LIMIT_GLOBAL": global, "LIMIT_CATEGORY": category,
		"BATCH_SIZE": "16", "ADMIN_ADDR": "127.0.0.1:0", "GOMAXPROCS": "1",
	}
	maps.Copy(d.settings, trust)
	for range 3 {
		d.startWorker()
	}
	for _, w := range d.workers {
		kit.EventuallyNil(t, w.Ready)
	}
	return d
}

// createConsumer creates the stream, and a consumer that delivers the events of a killed worker soon.
func (d *deployment) createConsumer() {
	d.Helper()
	stream, err := d.js.CreateStream(d.Context(), jetstream.StreamConfig{
		Name: streamName, Subjects: []string{"notify.>"}, Retention: jetstream.WorkQueuePolicy,
	})
	kit.Check(d.T, err)
	_, err = stream.CreateConsumer(d.Context(), jetstream.ConsumerConfig{
		Durable: consumerName, AckPolicy: jetstream.AckExplicitPolicy, AckWait: 2 * time.Second, MaxDeliver: -1,
		FilterSubject: "notify.>",
	})
	kit.Check(d.T, err)
}

func (d *deployment) startWorker() {
	d.Helper()
	log := filepath.Join(d.logs, fmt.Sprintf("w%d.log", len(d.workers)+len(d.killed)))
	w, err := kit.StartWorker(d.T, program.Build(d.T, folder), log, d.settings)
	kit.Check(d.T, err)
	d.workers = append(d.workers, w)
}

// holding returns the number of events that a worker holds because of Slack, or 0 if its admin server does
// not respond.
func (d *deployment) holding(w *kit.Worker) int {
	page, err := w.Admin("/metrics")
	if err != nil {
		return 0
	}
	found := heldForSlack.FindStringSubmatch(page)
	if found == nil {
		d.Fatalf("no held events of Slack in the metrics:\n%s", page)
	}
	held, err := strconv.Atoi(found[1])
	kit.Check(d.T, err)
	return held
}

var heldForSlack = regexp.MustCompile(`(?m)^notifier_held_events\{why="slack"\} (\d+)$`)

// killHolder waits until two workers hold events, kills one of them, and returns the number of its events.
// While Slack is down, the worker cannot post them between the count and the kill.
func (d *deployment) killHolder() (held int) {
	d.Helper()
	victim := -1
	kit.Eventually(d.T, "two workers hold events", func() bool {
		d.publish(1, steady)
		holders := 0
		for i, w := range d.workers {
			if n := d.holding(w); n > 0 {
				victim, held = i, n
				holders++
			}
		}
		return holders > 1
	})
	kit.Check(d.T, d.workers[victim].Kill())
	d.killed = append(d.killed, d.workers[victim])
	d.workers = slices.Delete(d.workers, victim, victim+1)
	return held
}

// recovered returns nil once all workers are ready and none holds events because of Slack.
func (d *deployment) recovered() error {
	for _, w := range d.workers {
		if err := w.Ready(); err != nil {
			return err
		}
		if held := d.holding(w); held > 0 {
			return fmt.Errorf("%s holds %d events", w.Log, held)
		}
	}
	return nil
}

func (d *deployment) slack() *devstack.Slack { return d.slacks[len(d.slacks)-1] }

func (d *deployment) startSlack() {
	d.Helper()
	kit.Check(d.T, devstack.Released(d.slackAddr))
	slack, err := devstack.StartSlackTLS(d.slackAddr, d.slackTLS)
	kit.Check(d.T, err)
	d.Cleanup(func() { _ = slack.Close() })
	if !strings.HasSuffix(slack.URL(), "://"+d.slackAddr) {
		d.Fatalf("the fake Slack is at %s, expected %s", slack.URL(), d.slackAddr)
	}
	d.slacks = append(d.slacks, slack)
}

// outage takes Slack down and brings it back.
type outage struct {
	begin, end func(*deployment)
}

var (
	// failing responds to posts with 503. Such a post may be in the channel, so workers search it before they
	// try again.
	failing = outage{
		begin: func(d *deployment) {
			d.slack().Respond(devstack.Always(devstack.Response{Status: http.StatusServiceUnavailable}))
		},
		end: func(d *deployment) { d.slack().Respond(nil) },
	}
	// refusing closes the port of Slack.
	refusing = outage{
		begin: func(d *deployment) { _ = d.slack().Close() },
		end:   (*deployment).startSlack,
	}
)

// messages returns the messages that the fake Slack accepted, oldest first.
func (d *deployment) messages() (all []devstack.Message) {
	for _, slack := range d.slacks {
		all = append(all, slack.Messages()...)
	}
	return all
}

// categories lists the categories of the published events, in turn. The first exceeds its own limit, and all
// together exceed the global one.
var categories = []string{"alpha", "alpha", "beta", "alpha", "gamma", "alpha"}

// Pauses after each event. Even the steady rate is several times the limits. In a storm the events still
// arrive one by one, so that each worker admits some.
const (
	steady = 25 * time.Millisecond
	storm  = 5 * time.Millisecond
)

// publish publishes n events, with a pause after each. An event's text is its id, by which it is found in the
// channel.
func (d *deployment) publish(n int, pause time.Duration) {
	d.Helper()
	for range n {
		category := categories[len(d.events)%len(categories)]
		id := fmt.Sprintf("%s-%d", category, len(d.events))
		d.events[id] = event{category: category, published: time.Now()}
		_, err := d.js.PublishMsg(d.Context(), &nats.Msg{
			Subject: "notify." + category, Data: []byte(id), Header: nats.Header{nats.MsgIdHdr: {id}},
		})
		kit.Check(d.T, err)
		wait.For(d.Context(), pause)
	}
}

func (d *deployment) publishUntil(end time.Time) {
	d.Helper()
	for time.Now().Before(end) {
		d.publish(1, steady)
	}
}

// settled returns nil once the stream is empty.
func (d *deployment) settled() error {
	stream, err := d.js.Stream(d.Context(), streamName)
	if err != nil {
		return err
	}
	if left := stream.CachedInfo().State.Msgs; left > 0 {
		return fmt.Errorf("%d events in the stream", left)
	}
	return nil
}
