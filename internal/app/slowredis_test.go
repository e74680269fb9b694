package app

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"notifier/internal/devstack"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// alone runs a test again in a process of its own with one processor, and reports whether this is that
// process.
func alone(t *testing.T) bool {
	t.Helper()
	const variable = "NOTIFIER_TEST_ALONE"
	if os.Getenv(variable) == t.Name() {
		return true
	}
	name := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	command := exec.Command(os.Args[0], "-test.run="+name, "-test.v")
	command.Env = append(os.Environ(), variable+"="+t.Name(), "GOMAXPROCS=1")
	var output kit.Output
	command.Stdout, command.Stderr = &output, &output
	ended, err := kit.StartWithTest(t, command)
	kit.Check(t, err)
	<-ended
	switch {
	case !command.ProcessState.Success() || !strings.Contains(output.String(), "=== RUN   "+t.Name()):
		t.Errorf("%s:\n%s", command.ProcessState, output.String())
	case strings.Contains(output.String(), "--- SKIP"):
		t.Skip(output.String())
	}
	return false
}

// TestADistantRedis: SEND_CONCURRENCY and the round trips to Redis bound a worker's throughput, not the
// number of processors. Parameters of the URL for fewer connections have no effect.
func TestADistantRedis(t *testing.T) {
	for name, distant := range map[string]distantRedis{
		"far":  {concurrency: 128, events: 512, roundTrip: 150 * time.Millisecond},
		"near": {concurrency: 128, events: 512, roundTrip: 50 * time.Millisecond},
		"few connections": {
			concurrency: 128, events: 512, roundTrip: 150 * time.Millisecond,
			parameters: "?pool_size=10&max_active_conns=20&pool_timeout=100ms",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if alone(t) {
				distant.test(t)
			}
		})
	}
}

type distantRedis struct {
	concurrency, events int
	roundTrip           time.Duration
	parameters          string // of REDIS_URL
}

// An event takes four calls, and one more if it has waited for long.
const callsPerEvent = 5

// bound allows for a machine that is ten times as slow as the network. The worker starts first, which takes
// some thirty round trips one after the other.
func (d distantRedis) bound() time.Duration {
	turns := (d.events + d.concurrency - 1) / d.concurrency
	return 10 * time.Duration(30+callsPerEvent*turns) * d.roundTrip
}

func (d distantRedis) test(t *testing.T) {
	proxy := redistest.StartProxy(t, redistest.StartProcess(t).Addr)
	proxy.Delay(d.roundTrip)
	slack, err := devstack.StartSlack("127.0.0.1:0")
	kit.Check(t, err)
	t.Cleanup(func() { _ = slack.Close() })
	const channels = 60
	routes := make([]string, channels)
	for i := range routes {
		routes[i] = fmt.Sprintf("c%d=C%07d", i, i)
	}
	var natsURL string
	s := servers(t, func(env map[string]string) {
		natsURL, env["SLACK_API_URL"] = env["NATS_URL"], slack.APIURL()
		env["REDIS_URL"] = "redis://" + proxy.Addr + "/0" + d.parameters
		env["SLACK_ROUTES"], env["SLACK_PACE"] = strings.Join(routes, ","), "off"
		env["LIMIT_GLOBAL"], env["LIMIT_CATEGORY"] = "100000/30m", "100000/30m"
		env["SEND_CONCURRENCY"] = fmt.Sprint(d.concurrency)
	})
	js := kit.JetStream(t, natsURL)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "NOTIFY", Subjects: []string{"notify.>"}, Retention: jetstream.WorkQueuePolicy,
	})
	kit.Check(t, err)
	for i := range d.events {
		_, err := js.PublishAsync(fmt.Sprintf("notify.c%d", i%channels), fmt.Appendf(nil, "event %d", i))
		kit.Check(t, err)
	}
	<-js.PublishAsyncComplete()

	logs := runWorker(t, s)
	began := time.Now()
	if !kit.Within(d.bound(), func() bool { return slack.Accepted() >= d.events }) {
		t.Errorf("%d posts in %s, expected %d", slack.Accepted(), d.bound(), d.events)
	}
	t.Logf("%d posts in %s", slack.Accepted(), time.Since(began))
	if n := slack.Accepted(); n > d.events {
		t.Errorf("%d posts of %d events", n, d.events)
	}
	if n := proxy.Scripts(); n > 2*callsPerEvent*d.events {
		t.Errorf("%d calls for %d events, expected that no reply is asked for again and again", n, d.events)
	}
	for _, entry := range logs.FilterMessage("waiting").All() {
		if reason := fmt.Sprint(entry.ContextMap()["reason"]); strings.Contains(reason, "pool") {
			t.Errorf("a wait for a connection counts as an outage: %s", reason)
		}
	}
	options, open := s.Store.Redis.(*redis.Client).Options(), s.Store.Redis.PoolStats().TotalConns
	if options.PoolSize < d.concurrency || int(open) > d.concurrency+32 {
		t.Errorf("room for %d connections, and %d are open, for %d posts at once", options.PoolSize, open, d.concurrency)
	}
}
