package preflight

import (
	"context"
	"strings"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/settings"
	"notifier/internal/status"
	"notifier/internal/status/stats"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// worker pretends that one runs and reports this, until the end of the test or until stop is called.
func worker(t *testing.T, replica string, s settings.Settings, beat stats.Heartbeat) (stop func()) {
	t.Helper()
	flushed := make(chan stats.Flushed, 1)
	recorder, err := stats.NewRecorder(stats.Config{
		Redis: s.Store.Redis, Namespace: s.Store.Namespace, Replica: replica, Every: 10 * time.Millisecond,
		Heartbeat: func() stats.Heartbeat { return beat },
		Flushed: func(f stats.Flushed) {
			select {
			case flushed <- f:
			default:
			}
		},
	})
	kit.Check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); recorder.Run(ctx) }()
	<-flushed
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}

// workersOf is where the state of the running workers is, for a check of these settings.
func workersOf(t *testing.T, s settings.Settings) status.Source {
	t.Helper()
	limiter, err := ratelimit.New(s.Store.Redis, s.Store.Namespace, s.Store.Limits, s.Store.Dedupe)
	kit.Check(t, err)
	reader, err := stats.NewReader(s.Store.Redis, s.Store.Namespace)
	kit.Check(t, err)
	return status.Source{Limiter: limiter, Stats: reader, Own: s.StatusConfig()}
}

// TestRunningReplicasThatSendNothing are a note: the settings that are checked may be to repair them.
func TestRunningReplicasThatSendNothing(t *testing.T) {
	t.Parallel()
	s := parsed(t, func(env *settings.Environment) { env.RedisURL = redistest.Start(t).URL() })
	look := func() []Finding {
		t.Helper()
		return found(t, func(ctx context.Context, s settings.Settings, r *report) { checkWorkers(ctx, workersOf(t, s), r) }, s)
	}
	wantFinding(t, look(), Note, "Nothing is sent: no worker is running.")
	waits := stats.Heartbeat{Waits: []stats.Wait{{For: "credentials", Since: time.Now()}}}
	worker(t, "a", s, waits)
	wantFinding(t, look(), Note, "Nothing is sent: Slack does not accept the token or the webhook")
}

// TestRunningReplicas: a check names what the running workers have otherwise, and a deployment that shares
// the namespace.
func TestRunningReplicas(t *testing.T) {
	t.Parallel()
	server := redistest.StartProcess(t)
	with := func(change func(env *settings.Environment)) settings.Settings {
		return parsed(t, func(env *settings.Environment) { env.RedisURL = server.URL(); change(env) })
	}
	same := with(func(*settings.Environment) {})
	const different = "the running workers and this configuration differ: "
	look := func() []Finding {
		t.Helper()
		return found(t, func(ctx context.Context, s settings.Settings, r *report) {
			checkWorkers(ctx, workersOf(t, s), r)
		}, same)
	}
	runs := func(replica string, change func(env *settings.Environment)) (stop func()) {
		t.Helper()
		s := with(change)
		return worker(t, replica, s, stats.Heartbeat{Settings: s.StatusConfig().Shown()})
	}
	none := func(findings []Finding, texts ...string) {
		t.Helper()
		for _, finding := range findings {
			for _, text := range texts {
				if strings.Contains(line(finding), text) {
					t.Errorf("unexpected: %s", line(finding))
				}
			}
		}
	}
	none(look(), "running replica", "another deployment", different)

	stop := runs("a", func(*settings.Environment) {})
	findings := look()
	wantFinding(t, findings, OK, "1 running replica, with the settings of this configuration")
	none(findings, different, "another deployment")
	stop()

	stop = runs("a", func(env *settings.Environment) {
		env.LimitCategory, env.SlackRoutes, env.SlackMarkup = "5/30m", "errors=C1,deploys=C2", "allow"
	})
	findings = look()
	wantFinding(t, findings, Warn,
		different+"LIMIT_CATEGORY is 10/30m in this configuration and 5/30m in a; restart the workers")
	wantFinding(t, findings, Warn,
		different+"SLACK_ROUTES is (none) in this configuration and deploys=C2,errors=C1 in a")
	wantFinding(t, findings, Warn, different+"other settings are not the same in this configuration and a")
	none(findings, "with the settings of this configuration", "another deployment")

	stopOther := runs("b", func(env *settings.Environment) {
		env.NATSStream, env.NATSConsumer = "TEST", "other"
	})
	findings = look()
	wantFinding(t, findings, Warn, "another deployment uses this namespace, and so the same limits: "+
		"NATS_STREAM is NOTIFY in this configuration, a and TEST in b; give each deployment a REDIS_NAMES")
	wantFinding(t, findings, Warn,
		"and so the same limits: NATS_CONSUMER is notifier in this configuration, a and other in b")
	wantFinding(t, findings, Warn,
		different+"LIMIT_CATEGORY is 10/30m in this configuration, b and 5/30m in a")
	stopOther()
	stop()

	stop = worker(t, "of-v0.1.0", same, stats.Heartbeat{})
	none(look(), "with the settings of this configuration", different, "another deployment")
	stop()

	kit.Check(t, same.Store.Redis.HSet(t.Context(), "{notifier}:replicas", "a", "nonsense").Err())
	wantFinding(t, look(), Warn,
		`the state of the running workers is not known: redis: {notifier}:replicas: replica "a" has "non`)
}
