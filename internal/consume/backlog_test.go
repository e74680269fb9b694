package consume

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"notifier/internal/lanes"
	"notifier/internal/testkit"
)

// A worker that stops gives nothing back for a while: in core mode that would be lost, and else it goes back at once.
func TestAWorkerThatStopsParksNothing(t *testing.T) {
	w, err := New(Settings{Core: &Core{}, BatchSize: 1, Concurrency: 1, Log: zap.NewNop()})
	testkit.Check(t, err)
	for range inflightBatches + 1 {
		w.lanes.Add("C1", lanes.Item[*posting]{Value: &posting{admitted: admitted{delivery: &delivery{}}}})
	}
	first, err := w.lanes.Next(t.Context())
	testkit.Check(t, err)
	first.PauseChannel(time.Hour)
	first.Return(0)
	w.stopping.Store(true)
	if w.parkExcess(); w.Lost() != 0 {
		t.Errorf("%d events are lost, expected none", w.Lost())
	}
	w.stopping.Store(false)
	if w.parkExcess(); w.Lost() == 0 {
		t.Error("no event is lost: the test shows nothing")
	}
}
