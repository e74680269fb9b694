package isolation

import (
	"context"
	"errors"
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

// world is everything around the workers.
type world struct {
	*testing.T
	nats     *devstack.NATS
	redis    *redis.Client
	slack    *devstack.Slack
	door     *door
	js       jetstream.JetStream
	settings map[string]string
	workers  []*worker

	mu        sync.Mutex
	published map[string]time.Time // by the event's id, just before it was published
}

// settings are a worker's environment variables.
type settings map[string]string

// newWorld starts NATS, Redis and the fake Slack. Workers get the settings, and the defaults for all others.
func newWorld(t *testing.T, more settings) *world {
	t.Helper()
	server := redistest.StartProcess(t)
	released.Build(t, folder) // before anything is measured
	w := &world{T: t, redis: server.Client(t), published: map[string]time.Time{}}
	var err error
	w.nats, err = devstack.StartNATS("127.0.0.1:0", t.TempDir())
	kit.Check(t, err)
	t.Cleanup(func() { _ = w.nats.Close() })
	w.slack, err = devstack.StartSlack("127.0.0.1:0")
	kit.Check(t, err)
	t.Cleanup(func() { _ = w.slack.Close() })
	w.door = openDoor(t, w.slack.URL())
	w.js = kit.JetStream(t, w.nats.URL())
	w.settings = map[string]string{
		"NATS_URL": w.nats.URL(), "REDIS_URL": server.URL(), "ADMIN_ADDR": "127.0.0.1:0",
		"SLACK_API_URL": w.door.url + "/api/", "SLACK_BOT_TOKEN": "xoxb-isolation",
	}
	maps.Copy(w.settings, more)
	return w
}

// mode sets how the fake Slack treats posts.
func (w *world) mode(mode devstack.Mode) {
	w.Helper()
	kit.Check(w.T, w.slack.SetMode(mode))
}

// limit parses a limit of the fake Slack: so many posts in a window.
func limit(t *testing.T, count int, window time.Duration) (text string, mode devstack.Mode) {
	t.Helper()
	text = fmt.Sprintf("%d/%s", count, window)
	limit, err := ratelimit.ParseLimit(text)
	kit.Check(t, err)
	return text, devstack.Mode{ChannelLimit: limit}
}

// createStream creates the stream as a user may, so that there can be a backlog before a worker is there.
func (w *world) createStream() {
	w.Helper()
	_, err := w.js.CreateStream(w.Context(), jetstream.StreamConfig{
		Name: "NOTIFY", Subjects: []string{"notify.>"}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
	})
	kit.Check(w.T, err)
}

// publish publishes an event whose text is its id, by which the fake Slack's messages name it.
func (w *world) publish(category, id string) {
	w.Helper()
	w.publishMessage(category, id, []byte(id), nil)
}

func (w *world) publishMessage(category, id string, payload []byte, header nats.Header) {
	w.Helper()
	message := &nats.Msg{Subject: "notify." + category, Data: payload, Header: nats.Header{nats.MsgIdHdr: {id}}}
	maps.Copy(message.Header, header)
	w.mu.Lock()
	w.published[id] = time.Now()
	w.mu.Unlock()
	_, err := w.js.PublishMsgAsync(message, jetstream.WithRetryAttempts(20), jetstream.WithStallWait(kit.Patience))
	kit.Check(w.T, err)
}

// flush waits until the stream has everything that was published.
func (w *world) flush() {
	w.Helper()
	select {
	case <-w.js.PublishAsyncComplete():
	case <-time.After(kit.Patience):
		w.Fatalf("%d events are not acknowledged", w.js.PublishAsyncPending())
	}
}

// posted are the messages that the fake Slack has accepted, by event id: when.
func (w *world) posted() map[string]time.Time {
	posted := map[string]time.Time{}
	for _, m := range w.slack.Messages() {
		posted[m.Text] = m.Time
	}
	return posted
}

// waitPosted waits until all of these are posted, and returns how long each took from its publication; what is not posted
// by then took until now.
func (w *world) waitPosted(limit time.Duration, ids []string) (latencies latencies) {
	w.Helper()
	var posted map[string]time.Time
	kit.Within(limit, func() bool {
		posted = w.posted()
		return !slices.ContainsFunc(ids, func(id string) bool { return posted[id].IsZero() })
	})
	return w.since(ids, posted)
}

// since is how long it took from the publication of each to its time.
func (w *world) since(ids []string, times map[string]time.Time) (latencies latencies) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		at, there := times[id]
		if !there {
			latencies.missing++
			at = time.Now()
		}
		latencies.all = append(latencies.all, at.Sub(w.published[id]))
	}
	slices.Sort(latencies.all)
	return latencies
}

// latencies are in ascending order.
type latencies struct {
	all     []time.Duration
	missing int // those that have not happened: counted as if they had at the end
}

// p99 is the time within which 99 of 100 were done.
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

// pending is how many events are in the stream.
func (w *world) pending() uint64 {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 5*time.Second)
	defer cancel()
	stream, err := w.js.Stream(ctx, "NOTIFY")
	kit.Check(w.T, err)
	return stream.CachedInfo().State.Msgs
}

// admitted is how many slots the category has taken, which Redis knows.
func (w *world) admitted(category string) int {
	w.Helper()
	n, err := w.redis.ZCard(w.Context(), "{notifier}:category:"+category).Result()
	kit.Check(w.T, err)
	return int(n)
}

// letter is the reason of the dead letter with an event id; empty: there is none.
func (w *world) letter(category string) string {
	w.Helper()
	stream, err := w.js.Stream(w.Context(), "NOTIFY_DEAD")
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return ""
	}
	kit.Check(w.T, err)
	message, err := stream.GetLastMsgForSubject(w.Context(), "notify-dead."+category)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return ""
	}
	kit.Check(w.T, err)
	return message.Header.Get("Notifier-Reason")
}
