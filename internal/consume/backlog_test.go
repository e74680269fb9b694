package consume

import (
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"notifier/internal/lanes"
	"notifier/internal/testkit"
)

// A worker that stops gives nothing back for a while: it goes back at once. Here the server takes nothing, which is reported
// when it is tried.
func TestAWorkerThatStopsParksNothing(t *testing.T) {
	w, err := New(Settings{JetStream: JetStream{Connection: &nats.Conn{}}, BatchSize: 1, Concurrency: 1, Log: zap.NewNop()})
	testkit.Check(t, err)
	for i := range inflightBatches + 1 {
		w.inflight.add(&delivery{token: strconv.Itoa(i)})
		w.lanes.Add("C1", lanes.Item[*posting]{Value: &posting{admitted: admitted{delivery: &delivery{}}}})
	}
	first, err := w.lanes.Next(t.Context())
	testkit.Check(t, err)
	first.PauseChannel(time.Hour)
	first.Return(0)
	w.stopping.Store(true)
	if w.parkExcess(); w.availability.unavailable(laneRoom) {
		t.Error("it has tried to give events back")
	}
	w.stopping.Store(false)
	if w.parkExcess(); !w.availability.unavailable(laneRoom) {
		t.Error("it has not tried to give events back: the test shows nothing")
	}
}
