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

func newObservedWaits() (*waits, *observer.ObservedLogs) {
	core, logs := observer.New(zap.DebugLevel)
	return newWaits(zap.New(core), func() int { return 7 }), logs
}

func TestAWaitIsALineAndThenOneAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, logs := newObservedWaits()
		for range 3*60*2 + 1 { // three minutes and a moment
			w.begin("redis", errors.New("away"))
			time.Sleep(500 * time.Millisecond)
		}
		w.end("redis")
		w.end("redis")
		var waited []float64
		for _, entry := range logs.FilterMessage("waiting").All() {
			waited = append(waited, entry.ContextMap()["waited_s"].(float64))
		}
		if diff := cmp.Diff([]float64{0, 60, 120, 180}, waited); diff != "" {
			t.Errorf("waiting lines by seconds (-want +got):\n%s", diff)
		}
		on := logs.FilterMessage("going on").All()
		if len(on) != 1 {
			t.Fatalf("%d lines say that it goes on, expected one", len(on))
		}
		want := map[string]any{"after": "redis", "held": int64(7), "waited_s": 180.5}
		if diff := cmp.Diff(want, on[0].ContextMap()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestAWaitNamesWhatAndWhy(t *testing.T) {
	w, logs := newObservedWaits()
	w.begin("redis", errors.New("connection refused"))
	want := map[string]any{"for": "redis", "reason": "connection refused", "held": int64(7), "waited_s": 0.0}
	entry := logs.All()[0]
	entryContext := entry.ContextMap()
	entryContext["waited_s"] = 0.0
	if diff := cmp.Diff(want, entryContext); diff != "" || entry.Level != zap.WarnLevel {
		t.Errorf("level %s (-want +got):\n%s", entry.Level, diff)
	}
}

func TestReasonsAreThoseOfTheWaitsThatAreOn(t *testing.T) {
	w, logs := newObservedWaits()
	w.end("nats")
	w.begin("slack", errors.New("503"))
	w.begin("redis", errors.New("refused"))
	w.begin("nats", errors.New("gone"))
	w.begin("redis", errors.New("timeout")) // the latest counts
	w.end("nats")
	if diff := cmp.Diff([]string{"redis: timeout", "slack: 503"}, w.reasons("slack", "redis", "nats")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if reasons := w.reasons("nats"); len(reasons) > 0 {
		t.Errorf("reasons %v, expected none", reasons)
	}
	if n := logs.FilterMessage("going on").Len(); n != 1 {
		t.Errorf("%d waits are said to be over, expected one", n)
	}
}
