package consume

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func newObservedAvailability() (*availability, *observer.ObservedLogs) {
	core, logs := observer.New(zap.DebugLevel)
	return newAvailability(newWaitLog(zap.New(core), func(dependency) int { return 7 })), logs
}

func TestAnOutageIsALineAndThenOneAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, logs := newObservedAvailability()
		for range 3*60*2 + 1 { // three minutes and a moment
			a.lost(redisScripts, errors.New("refused"))
			time.Sleep(500 * time.Millisecond)
		}
		a.recovered(redisScripts)
		a.recovered(redisScripts)
		var waited []float64
		for _, entry := range logs.FilterMessage("waiting").All() {
			waited = append(waited, entry.ContextMap()["waited_s"].(float64))
		}
		if diff := cmp.Diff([]float64{0, 60, 120, 180}, waited); diff != "" {
			t.Errorf("waiting lines by seconds (-want +got):\n%s", diff)
		}
		on := logs.FilterMessage("recovered").All()
		if len(on) != 1 {
			t.Fatalf("%d lines about the recovery, expected one", len(on))
		}
		want := map[string]any{"after": "redis", "held": int64(7), "waited_s": 180.5}
		if diff := cmp.Diff(want, on[0].ContextMap()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestALineAboutAnOutageNamesWhatAndWhy(t *testing.T) {
	a, logs := newObservedAvailability()
	a.lost(redisScripts, errors.New("connection refused"))
	want := map[string]any{"for": "redis", "reason": "connection refused", "held": int64(7), "waited_s": 0.0}
	entry := logs.All()[0]
	entryContext := entry.ContextMap()
	entryContext["waited_s"] = 0.0
	if diff := cmp.Diff(want, entryContext); diff != "" || entry.Level != zap.WarnLevel {
		t.Errorf("level %s (-want +got):\n%s", entry.Level, diff)
	}
}

func TestAvailabilityKnowsWhatIsUnavailableAndWhy(t *testing.T) {
	a, logs := newObservedAvailability()
	a.recovered(natsConnection)
	a.lost(slackPosts, errors.New("503"))
	a.lost(redisScripts, errors.New("refused"))
	a.lost(natsConnection, errors.New("gone"))
	a.lost(redisScripts, errors.New("timeout")) // the latest counts
	a.recovered(natsConnection)
	reasons := func(of ...dependency) (list []string) {
		for _, wait := range a.waits(of...) {
			list = append(list, wait.For+": "+wait.Reason)
		}
		return list
	}
	want := []string{"redis: timeout", "slack: 503"}
	if diff := cmp.Diff(want, reasons(slackPosts, redisScripts, natsConnection)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, reasons()); diff != "" {
		t.Errorf("of everything (-want +got):\n%s", diff)
	}
	if got := reasons(natsConnection); len(got) > 0 || a.unavailable(natsConnection) || !a.unavailable(natsConnection, slackPosts) {
		t.Errorf("reasons %v after a recovery, expected none", got)
	}
	if n := logs.FilterMessage("recovered").Len(); n != 1 {
		t.Errorf("%d lines about a recovery, expected one", n)
	}
}
