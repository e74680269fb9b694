package isolation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"notifier/internal/devstack"
	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// deployment holds the servers, the workers and their settings.
type deployment struct {
	*testing.T
	nats       *devstack.NATS
	redis      *redis.Client
	slack      *devstack.Slack
	slackProxy *kit.SlackProxy
	js         jetstream.JetStream
	settings   map[string]string
	workers    []*kit.Worker

	mu        sync.Mutex
	published map[string]time.Time // by event id, taken just before publishing
}

// settings are a worker's environment variables.
type settings map[string]string

// newDeployment starts NATS, Redis and the fake Slack. Workers get the settings in more, and the defaults for
// the rest.
func newDeployment(t *testing.T, more settings) *deployment {
	t.Helper()
	server := redistest.StartProcess(t)
	released.Build(t, folder) // keeps the build out of the measurement
	d := &deployment{T: t, redis: server.Client(t), published: map[string]time.Time{}}
	var err error
	d.nats, err = devstack.StartNATS("127.0.0.1:0", t.TempDir())
	kit.Check(t, err)
	t.Cleanup(func() { _ = d.nats.Close() })
	d.slack, err = devstack.StartSlack("127.0.0.1:0")
	kit.Check(t, err)
	t.Cleanup(func() { _ = d.slack.Close() })
	d.slackProxy = kit.StartSlackProxy(t, d.slack.URL())
	d.js = kit.JetStream(t, d.nats.URL())
	d.settings = map[string]string{
		"NATS_URL": d.nats.URL(), "REDIS_URL": server.URL(), "ADMIN_ADDR": "127.0.0.1:0",
		"SLACK_API_URL": d.slackProxy.APIURL(d.slackProxy.Addr), "SLACK_BOT_TOKEN": "xoxb-isolation",
	}
	maps.Copy(d.settings, d.slackProxy.Trust)
	maps.Copy(d.settings, more)
	return d
}

// slackLimit returns the limit that the fake Slack applies to each channel.
func slackLimit(t *testing.T) ratelimit.Limit {
	t.Helper()
	limit, err := ratelimit.ParseLimit(fmt.Sprintf("12/%s", window))
	kit.Check(t, err)
	return limit
}

// createStream creates the stream as an operator might, so that a backlog can build up before the first
// worker starts.
func (d *deployment) createStream() {
	d.Helper()
	_, err := d.js.CreateStream(d.Context(), jetstream.StreamConfig{
		Name: "NOTIFY", Subjects: []string{"notify.>"}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
	})
	kit.Check(d.T, err)
}

// publish publishes an event with its id as text. The text identifies the message in the fake Slack.
func (d *deployment) publish(category, id string) {
	d.Helper()
	d.publishMessage(category, id, []byte(id), nil)
}

func (d *deployment) publishMessage(category, id string, payload []byte, header nats.Header) {
	d.Helper()
	message := &nats.Msg{Subject: "notify." + category, Data: payload, Header: nats.Header{nats.MsgIdHdr: {id}}}
	maps.Copy(message.Header, header)
	d.mu.Lock()
	d.published[id] = time.Now()
	d.mu.Unlock()
	_, err := d.js.PublishMsgAsync(message, jetstream.WithRetryAttempts(20), jetstream.WithStallWait(kit.Patience))
	kit.Check(d.T, err)
}

// flush waits until the stream has stored all published events.
func (d *deployment) flush() {
	d.Helper()
	select {
	case <-d.js.PublishAsyncComplete():
	case <-time.After(kit.Patience):
		d.Fatalf("%d events are not acknowledged", d.js.PublishAsyncPending())
	}
}

// posted returns the time at which the fake Slack accepted each event, by event id.
func (d *deployment) posted() map[string]time.Time {
	posted := map[string]time.Time{}
	for _, m := range d.slack.Messages() {
		posted[m.Text] = m.Time
	}
	return posted
}

// waitPosted waits up to limit until all events are posted and returns their latencies. The latency of a
// missing event runs until now.
func (d *deployment) waitPosted(limit time.Duration, ids []string) (latencies latencies) {
	d.Helper()
	var posted map[string]time.Time
	kit.Within(limit, func() bool {
		posted = d.posted()
		return !slices.ContainsFunc(ids, func(id string) bool { return posted[id].IsZero() })
	})
	return d.since(ids, posted)
}

// since returns the latency of each event from publication to its time in times.
func (d *deployment) since(ids []string, times map[string]time.Time) (latencies latencies) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		at, there := times[id]
		if !there {
			latencies.missing++
			at = time.Now()
		}
		latencies.all = append(latencies.all, at.Sub(d.published[id]))
	}
	slices.Sort(latencies.all)
	return latencies
}

type latencies struct {
	all     []time.Duration // in ascending order
	missing int             // events that never arrived; all counts them up to the end of the wait
}

func (l latencies) p99() time.Duration {
	if len(l.all) == 0 {
		return 0
	}
	return l.all[(len(l.all)*99+99)/100-1]
}

func (l latencies) String() string {
	if len(l.all) == 0 {
		return "none"
	}
	text := fmt.Sprintf("p99 %s, median %s of %d", l.p99().Round(time.Millisecond), l.all[len(l.all)/2].Round(time.Millisecond), len(l.all))
	if l.missing > 0 {
		text += fmt.Sprintf(", %d of them never", l.missing)
	}
	return text
}

// pending returns the number of events in the stream.
func (d *deployment) pending() uint64 {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.Context(), 5*time.Second)
	defer cancel()
	stream, err := d.js.Stream(ctx, "NOTIFY")
	kit.Check(d.T, err)
	return stream.CachedInfo().State.Msgs
}

// admitted returns the number of slots that the category has taken in Redis.
func (d *deployment) admitted(category string) int {
	d.Helper()
	n, err := d.redis.ZCard(d.Context(), "{notifier}:category:"+category).Result()
	kit.Check(d.T, err)
	return int(n)
}
