package preflight

import (
	"context"
	"strings"
	"testing"
	"time"

	"notifier/internal/redistest"
	"notifier/internal/settings"
	"notifier/internal/stats"
	"notifier/internal/testkit"
)

// worker pretends that one with these settings runs, until the end of the test or until stop is called.
func worker(t *testing.T, replica string, s settings.Settings) (stop func()) {
	t.Helper()
	text, fingerprint := s.Published().Encode()
	return beats(t, s, replica, stats.Settings{Fingerprint: fingerprint, Document: text})
}

func beats(t *testing.T, s settings.Settings, replica string, published stats.Settings) (stop func()) {
	t.Helper()
	flushed := make(chan stats.Flushed, 1)
	recorder, err := stats.NewRecorder(stats.Config{
		Redis: s.Store.Redis, Namespace: s.Store.Namespace, Replica: replica, Settings: published, Every: 10 * time.Millisecond,
		Heartbeat: func() stats.Heartbeat { return stats.Heartbeat{} },
		Flushed: func(f stats.Flushed) {
			select {
			case flushed <- f:
			default:
			}
		},
	})
	testkit.Check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); recorder.Run(ctx) }()
	<-flushed
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}

// TestRunningReplicas: a check names what the running workers have otherwise, and a deployment that shares the namespace.
func TestRunningReplicas(t *testing.T) {
	t.Parallel()
	server := redistest.StartProcess(t)
	with := func(change func(env *settings.Environment)) settings.Settings {
		return parsed(t, func(env *settings.Environment) { env.RedisURL = server.URL(); change(env) })
	}
	same := with(func(*settings.Environment) {})
	const different = "the running workers and this configuration differ: "
	look := func() []Finding { t.Helper(); return found(t, checkRedis, same) }
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
	none(look(), "running", "another deployment")

	stop := worker(t, "a", same)
	findings := look()
	wantFinding(t, findings, OK, "1 running replica, with the settings of this configuration")
	none(findings, different, "another deployment")
	stop()

	stop = worker(t, "a", with(func(env *settings.Environment) { env.LimitCategory, env.SlackRoutes = "5/30m", "errors=C1,deploys=C2" }))
	findings = look()
	wantFinding(t, findings, Warn, different+"LIMIT_CATEGORY is 5/30m in a and 10/30m in this configuration; restart the workers")
	wantFinding(t, findings, Warn, different+"SLACK_ROUTES is deploys=C2,errors=C1 in a and (none) in this configuration")
	none(findings, "with the settings of this configuration", "another deployment")

	stopOther := worker(t, "b", with(func(env *settings.Environment) { env.NATSStream, env.NATSConsumer = "TEST", "other" }))
	findings = look()
	wantFinding(t, findings, Warn, "another deployment uses the namespace notifier, and so the same limits: NATS_STREAM is NOTIFY in a, this configuration and TEST in b; give each deployment a REDIS_NAMESPACE")
	wantFinding(t, findings, Warn, "and so the same limits: NATS_CONSUMER is notifier in a, this configuration and other in b")
	wantFinding(t, findings, Warn, different+"LIMIT_CATEGORY is 10/30m in b, this configuration and 5/30m in a")
	stopOther()
	stop()

	beats(t, same, "old", stats.Settings{})
	stop = beats(t, same, "hostile", stats.Settings{Fingerprint: "f", Document: "\x1b[2J"})
	findings = look()
	wantFinding(t, findings, Warn, "the settings of old are not known: they publish none, as versions before this one do")
	wantFinding(t, findings, Warn, "the settings of hostile are not known: they have the fingerprint ")
	stop()

	testkit.Check(t, same.Store.Redis.Del(t.Context(), "{notifier}:settings", "{notifier}:replicas").Err())
	testkit.Check(t, same.Store.Redis.HSet(t.Context(), "{notifier}:replicas", "a", "nonsense").Err())
	wantFinding(t, look(), Warn, "the settings of the running workers are unknown: redis: {notifier}:replicas: replica \"a\" has \"nonsense\"")
}
