package app

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"notifier/internal/consume/result"
	"notifier/internal/settings"
	"notifier/test/kit"
)

// output is what a worker has written.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(lines []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(lines)
}

// lines are the lines by what they say of an event, or by their message.
func (o *output) lines(t *testing.T) map[string]int {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := map[string]int{}
	for line := range strings.Lines(o.text.String()) {
		var got map[string]any
		kit.Check(t, json.Unmarshal([]byte(line), &got))
		lines[fmt.Sprint(got["level"], " ", got["msg"])]++
	}
	return lines
}

// TestEventLinesAreWrittenAtEveryLevel: LOG_LEVEL silences other lines, and never the record of what became
// of an event.
func TestEventLinesAreWrittenAtEveryLevel(t *testing.T) {
	for _, level := range []zapcore.Level{zapcore.InfoLevel, zapcore.WarnLevel, zapcore.ErrorLevel} {
		t.Run(level.String(), func(t *testing.T) {
			var natsURL string
			s := servers(t, func(env *settings.Environment) { natsURL, env.LimitCategory = env.NATSURL, "1/1h" })
			var out output
			log, stopLog := NewLog(&out, level, false)
			var settled atomic.Int32
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- Run(ctx, s, log, func(result.Result) { settled.Add(1) }) }()
			js := kit.JetStream(t, natsURL)
			for i, payload := range []string{"first", "second", `{"text":`} {
				kit.EventuallyNil(t, func() error { // the worker creates the stream
					_, err := js.Publish(t.Context(), "notify.errors", []byte(payload))
					return err
				})
				kit.Eventually(t, "it is settled", func() bool { return settled.Load() == int32(i+1) })
			}
			cancel()
			kit.Check(t, <-ended)
			log.Info("an info line")
			log.Warn("a warning")
			log.With(zap.Int("n", 1)).Error("an error")
			stopLog()
			lines := out.lines(t)
			events := map[string]int{}
			for line, n := range lines {
				if strings.Contains(line, "notification ") {
					events[line] = n
				}
			}
			want := map[string]int{"info notification sent": 1, "info notification dropped": 1, "warn notification dead": 1}
			if diff := cmp.Diff(want, events); diff != "" {
				t.Errorf("lines of events (-want +got):\n%s", diff)
			}
			for line, its := range map[string]zapcore.Level{
				"info an info line": zapcore.InfoLevel, "info admin server listens": zapcore.InfoLevel,
				"warn a warning": zapcore.WarnLevel, "error an error": zapcore.ErrorLevel,
			} {
				if written := lines[line] > 0; written != (its >= level) {
					t.Errorf("%q is written: %t", line, written)
				}
			}
		})
	}
}
