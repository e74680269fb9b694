package consume

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/zap"

	"notifier/internal/testkit"
)

// Pulling stops for what keeps held events from going on, and for nothing else.
func TestPullingDependsOnWhatHeldEventsNeed(t *testing.T) {
	w, err := New(Settings{Core: &Core{}, BatchSize: 1, Log: zap.NewNop()})
	testkit.Check(t, err)
	if !w.mayPull() {
		t.Error("a new worker does not pull")
	}
	for d := range dependency(numberOfDependencies) {
		w.availability.lost(d, errors.New("refused"))
		stops := d == redisScripts || d == deadLetterStream
		if w.mayPull() == stops {
			t.Errorf("while %s is unavailable: pulls %t, expected %t", d, w.mayPull(), !stops)
		}
		w.availability.recovered(d)
	}
	pass, err := w.gate.enter(t.Context())
	testkit.Check(t, err)
	pass.failed(time.Hour)
	if w.mayPull() {
		t.Error("a worker pulls while its gate is closed")
	}
}
