package availability

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func newObserved() (*Tracker, *observer.ObservedLogs) {
	core, logs := observer.New(zap.DebugLevel)
	return New(zap.New(core), func(Dependency) int { return 7 }), logs
}

func TestOutageIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, logs := newObserved()
		for range 3*60*2 + 1 { // three minutes and a moment
			a.Lost(Redis, errors.New("refused"))
			time.Sleep(500 * time.Millisecond)
		}
		a.Recovered(Redis)
		a.Recovered(Redis)
		var waited []float64
		for _, entry := range logs.FilterMessage("waiting").All() {
			waited = append(waited, entry.ContextMap()["waited_s"].(float64))
		}
		if diff := cmp.Diff([]float64{0, 60, 120, 180}, waited); diff != "" {
			t.Errorf("waiting lines by seconds (-want +got):\n%s", diff)
		}
		first := logs.FilterMessage("waiting").All()[0]
		wait := map[string]any{"for": "redis", "reason": "refused", "held": int64(7), "waited_s": 0.0}
		if diff := cmp.Diff(wait, first.ContextMap()); diff != "" || first.Level != zap.WarnLevel {
			t.Errorf("level %s (-want +got):\n%s", first.Level, diff)
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

// TestIdleChannelIsForgottenAfterAMinute drops the wait without calling it a recovery: an empty queue says
// nothing about Slack.
func TestIdleChannelIsForgottenAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, logs := newObserved()
		a.ChannelLost("#a", errors.New("503"))
		time.Sleep(50 * time.Second)
		a.ChannelLost("#a", errors.New("503"))
		for range 2 {
			time.Sleep(30 * time.Second)
			a.ChannelIdle("#a", time.Minute)
			if len(a.Waits(Slack)) != 1 {
				t.Fatal("it is forgotten within a minute")
			}
		}
		time.Sleep(time.Second)
		a.ChannelIdle("#a", time.Minute)
		if len(a.Waits(Slack)) > 0 || logs.FilterMessage("nothing waits any more").Len() != 1 ||
			logs.FilterMessage("recovered").Len() > 0 {
			t.Errorf("%v, %v; expected that it is forgotten, and not called recovered", a.Waits(Slack), logs.All())
		}
	})
}

func TestWaitsListReasons(t *testing.T) {
	a, logs := newObserved()
	a.Recovered(NATS)
	a.Lost(Slack, errors.New("503"))
	a.Lost(Redis, errors.New("refused"))
	a.Lost(NATS, errors.New("gone"))
	a.Lost(Redis, errors.New("timeout")) // replaces the earlier error
	a.Recovered(NATS)
	reasons := func(of ...Dependency) (list []string) {
		for _, wait := range a.Waits(of...) {
			list = append(list, wait.For+": "+wait.Reason)
		}
		return list
	}
	want := []string{"redis: timeout", "slack: 503"}
	if diff := cmp.Diff(want, reasons(Slack, Redis, NATS)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, reasons()); diff != "" {
		t.Errorf("of everything (-want +got):\n%s", diff)
	}
	if got := reasons(NATS); len(got) > 0 || a.Unavailable(NATS) || !a.Unavailable(NATS, Slack) {
		t.Errorf("reasons %v after a recovery, expected none", got)
	}
	if n := logs.FilterMessage("recovered").Len(); n != 1 {
		t.Errorf("%d lines about a recovery, expected one", n)
	}
}
