package app

import (
	"context"
	"encoding/json"
	"io"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"notifier/internal/consume/result"
	"notifier/test/kit"
)

// LOG_LEVEL never silences the lines of events.
func TestEventLinesAreWrittenAtEveryLevel(t *testing.T) {
	var natsURL string
	s := servers(t, func(env map[string]string) { natsURL, env["LIMIT_CATEGORY"] = env["NATS_URL"], "1/1h" })
	var out kit.Output
	log, stopLog := NewLog(&out, io.Discard, zapcore.ErrorLevel, false)
	var settled atomic.Int32
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, s, log, func(result.Result) { settled.Add(1) }) }()
	js := kit.JetStream(t, natsURL)
	for i, payload := range []string{"first", "second", `{"text":`} {
		kit.EventuallyNil(t, func() error { // the worker creates the stream
			id := jetstream.WithMsgID(payload) // it may be stored late, and published again
			_, err := js.Publish(t.Context(), "notify.errors", []byte(payload), id)
			return err
		})
		kit.Eventually(t, "it is settled", func() bool { return settled.Load() == int32(i+1) })
	}
	cancel()
	kit.Check(t, <-ended)
	log.Warn("a warning")
	log.With(zap.Int("n", 1)).Error("an error")
	kit.Check(t, stopLog())
	var lines []string
	for _, text := range out.Lines() {
		var line struct{ Level, Msg string }
		kit.Check(t, json.Unmarshal([]byte(text), &line))
		lines = append(lines, line.Level+" "+line.Msg)
	}
	want := []string{"info notification sent", "info notification dropped", "warn notification dead", "error an error"}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}
