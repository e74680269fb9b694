package preflight

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"notifier/internal/settings"
	"notifier/internal/status"
	"notifier/internal/status/stats"
	"notifier/test/kit"
)

func TestMain(m *testing.M) {
	kit.Overlap(8)
	goleak.VerifyTestMain(m, kit.NATSServerEnds()...)
}

// TestRun: what is unavailable fails by itself, and keeps nothing else from being examined.
func TestRun(t *testing.T) {
	nobody := kit.FreeAddr(t)
	s := parsed(t, func(env *settings.Environment) {
		env.NATSURL, env.RedisURL, env.SlackAPIURL = "nats://me:"+secret+"@"+nobody, "redis://me:"+secret+"@"+nobody, "http://"+nobody+"/"
	})
	reader, err := stats.NewReader(s.Store.Redis, s.Store.Namespace)
	kit.Check(t, err)
	var names, failed []string
	for _, area := range Run(t.Context(), s, status.Source{Stats: reader}) {
		<-area.Done()
		names = append(names, area.Name)
		if area.Count(Fail) > 0 {
			failed = append(failed, area.Name)
		}
	}
	if want := []string{"settings", "limits", "nats", "redis", "workers", "slack"}; !slices.Equal(names, want) {
		t.Errorf("%q, expected %q", names, want)
	}
	if want := []string{"nats", "redis", "slack"}; !slices.Equal(failed, want) {
		t.Errorf("%q failed, expected %q", failed, want)
	}
}
