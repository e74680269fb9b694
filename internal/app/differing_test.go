package app

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"notifier/internal/published"
	"notifier/internal/settings"
	"notifier/internal/stats"
	"notifier/internal/testkit"
)

// parsed are the settings of a worker whose environment differs from env.
func parsed(t *testing.T, env settings.Environment, change func(env *settings.Environment)) settings.Settings {
	t.Helper()
	change(&env)
	problems := &settings.Problems{}
	s := settings.Parse(env, problems)
	testkit.Check(t, problems.Err())
	t.Cleanup(func() { _ = s.Store.Redis.Close() }) // a worker has closed it already
	return s
}

// watched is a differing, and what it has logged.
type watched struct {
	*differing
	logs      *observer.ObservedLogs
	now       time.Time
	documents map[string]string
}

func watch(err error) *watched {
	core, logs := observer.New(zapcore.InfoLevel)
	w := &watched{logs: logs, now: time.Now(), documents: map[string]string{}}
	w.differing = &differing{log: zap.New(core), documents: func(context.Context, ...string) (map[string]string, error) { return w.documents, err }}
	return w
}

// peer is a replica with settings, seen that long ago.
func (w *watched) peer(replica string, s settings.Settings, ago time.Duration) stats.Peer {
	text, fingerprint := s.Published().Encode()
	w.documents[fingerprint] = text
	return stats.Peer{Replica: replica, Settings: fingerprint, Seen: w.now.Add(-ago)}
}

// flushedFor flushes each second for that long.
func (w *watched) flushedFor(d time.Duration, peers ...stats.Peer) {
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(time.Second) {
		for i := range peers {
			peers[i].Seen = w.now
		}
		w.flushed(stats.Flushed{Now: w.now, Peers: peers}, w.now)
	}
}

// lines are the messages since the last call, each with what differs.
func (w *watched) lines() []string {
	var lines []string
	for _, entry := range w.logs.TakeAll() {
		line := entry.Message
		if differ, there := entry.ContextMap()["differ"].([]any); there {
			for _, text := range differ {
				line += "; " + text.(string)
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func (w *watched) want(t *testing.T, different int, lines ...string) {
	t.Helper()
	if diff := cmp.Diff(lines, w.lines()); diff != "" || w.Different() != different {
		t.Errorf("%d different settings, expected %d; lines (-want +got):\n%s", w.Different(), different, diff)
	}
}

// TestReplicasThatDifferAreLogged: not while a deployment goes on, then once and once a minute, and when it
// is over.
func TestReplicasThatDifferAreLogged(t *testing.T) {
	var env settings.Environment
	one := servers(t, func(e *settings.Environment) { env = *e })
	other := parsed(t, env, func(e *settings.Environment) { e.LimitCategory = "5/30m" })
	t.Cleanup(func() { _ = one.Store.Redis.Close() })
	w := watch(nil)
	a, b := w.peer("a", one, 0), w.peer("b", other, 0)
	w.want(t, 0)
	w.flushedFor(90*time.Second, a)
	w.want(t, 1)
	w.flushedFor(29*time.Second, a, b) // a rolling restart
	w.flushedFor(5*time.Second, b)
	w.want(t, 1)

	w.flushedFor(30*time.Second, a, b)
	w.want(t, 2)
	const line = "replicas run with different settings; LIMIT_CATEGORY is 10/30m in a and 5/30m in b"
	w.flushedFor(2*time.Second, a, b)
	lines := w.lines()
	if len(lines) != 1 || lines[0] != line && lines[0] != "replicas run with different settings; LIMIT_CATEGORY is 5/30m in b and 10/30m in a" {
		t.Errorf("%q", lines)
	}
	w.flushedFor(58*time.Second, a, b)
	w.want(t, 2)
	w.flushedFor(3*time.Second, a, b)
	if lines := w.lines(); len(lines) != 1 {
		t.Errorf("%q, expected one reminder", lines)
	}
	w.flushedFor(2*time.Second, b)
	w.want(t, 1, "all replicas run with the same settings again")
	w.flushedFor(time.Second, b)
	w.want(t, 1)

	// What has no heartbeat any more, and what publishes nothing, differs from nobody.
	w.flushedFor(60*time.Second, stats.Peer{Replica: "old", Seen: w.now}, b)
	w.want(t, 1)
	dead, b := w.peer("a", one, 11*time.Second), w.peer("b", other, 0)
	w.flushed(stats.Flushed{Now: w.now, Peers: []stats.Peer{dead, b}}, w.now)
	w.want(t, 1)
}

// TestDeploymentsThatShareANamespaceAreLogged: what they read is another line than how they limit it.
func TestDeploymentsThatShareANamespaceAreLogged(t *testing.T) {
	var env settings.Environment
	one := servers(t, func(e *settings.Environment) { env = *e })
	other := parsed(t, env, func(e *settings.Environment) {
		e.NATSStream, e.NATSSubject, e.SlackChannel = "TEST", "test.>", "C0TEST"
	})
	t.Cleanup(func() { _ = one.Store.Redis.Close() })
	w := watch(nil)
	a, b, c := w.peer("a", one, 0), w.peer("b", other, 0), w.peer("c", one, 0)
	w.flushedFor(31*time.Second, a, b, c)
	w.want(t, 2, "another deployment uses this namespace; NATS_STREAM is NOTIFY in a, c and TEST in b; NATS_SUBJECT is notify.> in a, c and test.> in b",
		"replicas run with different settings; SLACK_CHANNEL is C0123 in a, c and C0TEST in b")

	w = watch(errors.New("redis is unavailable")) // then it is not known what differs
	w.flushedFor(31*time.Second, a, b, c)
	w.want(t, 2, "replicas run with different settings")
}

// TestDeploymentsThatShareOnPurposeAreNotLogged: those read nothing in common and post to the same channel.
// What else they differ in is.
func TestDeploymentsThatShareOnPurposeAreNotLogged(t *testing.T) {
	var env settings.Environment
	one := servers(t, func(e *settings.Environment) { env = *e })
	t.Cleanup(func() { _ = one.Store.Redis.Close() })
	more := func(e *settings.Environment) { e.NATSStream, e.NATSSubject = "MORE", "more.>" }
	w := watch(nil)
	a, b := w.peer("a", one, 0), w.peer("b", parsed(t, env, more), 0)
	w.flushedFor(2*time.Minute, a, b)
	w.want(t, 1)

	c := w.peer("c", parsed(t, env, func(e *settings.Environment) { more(e); e.LimitCategory = "5/30m" }), 0)
	w.flushedFor(31*time.Second, a, b, c)
	w.want(t, 2, "replicas run with different settings; LIMIT_CATEGORY is 10/30m in a, b and 5/30m in c")
}

// TestTwoWorkersWithDifferentSettings: each of them, and whoever asks with a third configuration, shows whose
// settings hold, and what differs.
func TestTwoWorkersWithDifferentSettings(t *testing.T) {
	t.Parallel()
	var env settings.Environment
	first := servers(t, func(e *settings.Environment) { e.LimitGlobal = "7/1h"; env = *e })
	second := parsed(t, env, func(e *settings.Environment) { e.LimitGlobal, e.NATSConsumer = "9/1h", "other" })
	reader := parsed(t, env, func(e *settings.Environment) { e.LimitGlobal = "100/1h" })
	store, err := OpenStore(reader.Store, reader.Published())
	testkit.Check(t, err)
	limitNow := func() string {
		now, err := store.Status.Read(t.Context())
		testkit.Check(t, err)
		return now.Global.Tiers[0].Limit
	}
	if limit := limitNow(); limit != "100/1h" {
		t.Errorf("the limit is %s before any worker, expected the reader's own", limit)
	}
	run := func(s settings.Settings) (logs *observer.ObservedLogs, stop func()) {
		core, logs := observer.New(zapcore.InfoLevel)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- Run(ctx, s, zap.New(core), nil) }()
		testkit.Eventually(t, "the worker has started", func() bool { return logs.FilterMessage("admin server listens").Len() > 0 })
		return logs, func() { cancel(); testkit.Check(t, <-ended) }
	}
	logs, stopFirst := run(first)
	testkit.Eventually(t, "the status has the first worker's limit", func() bool { return limitNow() == "7/1h" })
	_, stopSecond := run(second)
	testkit.Eventually(t, "the status has the newest worker's limit", func() bool { return limitNow() == "9/1h" })
	now, err := store.Status.Read(t.Context())
	testkit.Check(t, err)
	var names []string
	for _, difference := range now.Settings.Differ {
		names = append(names, difference.Name)
	}
	if diff := cmp.Diff([]string{"NATS_CONSUMER", "LIMIT_GLOBAL"}, names); diff != "" || now.Settings.Replicas != 1 || len(now.Settings.Warnings) != 2 {
		t.Errorf("%+v, differ (-want +got):\n%s", now.Settings, diff)
	}
	testkit.Eventually(t, "the metrics of the first have it", func() bool { return strings.Contains(scraped(t, logs), "\nnotifier_settings_different 2\n") })
	stopSecond()
	testkit.Eventually(t, "it is over", func() bool {
		now, err := store.Status.Read(t.Context())
		return err == nil && len(now.Settings.Differ) == 0 && limitNow() == "7/1h" && strings.Contains(scraped(t, logs), "\nnotifier_settings_different 1\n")
	})
	stopFirst()
	if limit := limitNow(); limit != "100/1h" {
		t.Errorf("the limit is %s after the last worker, expected the reader's own", limit)
	}
}

// TestNothingSecretIsPublished: not even where the settings have secrets in every place that can have one.
func TestNothingSecretIsPublished(t *testing.T) {
	const secret = "hunter2marker"
	s := servers(t, func(e *settings.Environment) {
		e.SlackBotToken, e.AdminToken = "xoxb-"+secret, secret+secret+secret
		e.NATSURL = strings.Replace(e.NATSURL, "//", "//user:"+secret+"@", 1)
		e.RedisURL = strings.Replace(e.RedisURL, "//", "//user:"+secret+"@", 1)
		e.SlackAPIURL = strings.Replace(e.SlackAPIURL, "//", "//user:"+secret+"@", 1)
	})
	t.Cleanup(func() { _ = s.Store.Redis.Close() })
	text, _ := s.Published().Encode()
	if strings.Contains(text, secret) || strings.Contains(text, "://") || len(text) > published.MaxBytes {
		t.Errorf("%s", text)
	}
}

// TestReplicasDifferThroughAnOutage: after an outage of Redis the first flush finds only old heartbeats of
// the others. That does not make the settings the same.
func TestReplicasDifferThroughAnOutage(t *testing.T) {
	var env settings.Environment
	one := servers(t, func(e *settings.Environment) { env = *e })
	t.Cleanup(func() { _ = one.Store.Redis.Close() })
	other := parsed(t, env, func(e *settings.Environment) { e.LimitCategory = "5/30m" })
	w := watch(nil)
	a, b := w.peer("a", one, 0), w.peer("b", other, 0)
	w.flushedFor(differLong+time.Second, a, b)
	differ := "replicas run with different settings; LIMIT_CATEGORY is "
	if lines := w.lines(); len(lines) != 1 || !strings.HasPrefix(lines[0], differ) {
		t.Fatalf("%q", lines)
	}
	w.now = w.now.Add(20 * time.Second)
	w.flushedFor(3*time.Second, a) // b comes back later
	w.want(t, 2)
	w.flushedFor(5*time.Second, a, b)
	w.want(t, 2)
	w.now = w.now.Add(20 * time.Second)
	w.flushedFor(isRunning, a)
	w.want(t, 2)
	w.flushedFor(time.Second, a) // b does not
	w.want(t, 1, "all replicas run with the same settings again")
}
