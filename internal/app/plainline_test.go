package app

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"pgregory.net/rapid"

	"notifier/test/kit"
)

// TestPlainLines: every line is what zap writes of it, whichever way it takes.
func TestPlainLines(t *testing.T) {
	texts := rapid.OneOf(
		rapid.StringMatching(`[ -~]{0,40}`), rapid.String(), rapid.StringMatching(`[a-z.]{1,20}`),
		rapid.SampledFrom([]string{"", hostile, `"`, `\`, "\x7f", " ~", strings.Repeat("x", longestString), strings.Repeat("x", longestString+1)}))
	fields := rapid.Custom(func(t *rapid.T) zap.Field {
		key := rapid.OneOf(rapid.StringMatching(`[a-z_]{1,12}`), texts).Draw(t, "key")
		switch rapid.IntRange(0, 9).Draw(t, "type") {
		case 0:
			return zap.Bool(key, rapid.Bool().Draw(t, "bool"))
		case 1:
			return zap.Int(key, rapid.Int().Draw(t, "int"))
		case 2:
			return zap.Uint64(key, rapid.Uint64().Draw(t, "uint"))
		case 3:
			return zap.Float64(key, rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, 1e21, 0.1, math.NaN(), math.Inf(1), math.Inf(-1), 412.5})).Draw(t, "float"))
		case 4:
			return zap.Time(key, time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "time"), 0))
		case 5:
			return zap.Error(errors.New(rapid.String().Draw(t, "error")))
		}
		return zap.String(key, texts.Draw(t, "string"))
	})
	rapid.Check(t, func(t *rapid.T) {
		entry := zapcore.Entry{
			Level:   rapid.SampledFrom([]zapcore.Level{zapcore.DebugLevel, zapcore.InfoLevel, zapcore.WarnLevel, zapcore.ErrorLevel, zapcore.DPanicLevel}).Draw(t, "level"),
			Time:    time.UnixMicro(rapid.Int64Range(0, 1<<52).Draw(t, "ts")),
			Message: texts.Draw(t, "message"), LoggerName: rapid.SampledFrom([]string{"", "", "name"}).Draw(t, "logger"),
		}
		list := rapid.SliceOfN(fields, 0, 8).Draw(t, "fields")
		if got, want := writtenBy(t, true, entry, list), writtenBy(t, false, entry, list); got != want {
			t.Fatalf("%q, expected %q", got, want)
		}
	})
}

// writtenBy is one line, with and without the shorter way.
func writtenBy(t *rapid.T, shorter bool, entry zapcore.Entry, fields []zap.Field) string {
	var out strings.Builder
	log, stop := NewLog(&out, zapcore.DebugLevel, false)
	core := log.Core().(*boundedCore)
	if !shorter {
		core.plain = nil
	}
	for range 2 { // the second has the first one's time
		if err := core.Write(entry, fields); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	return out.String()
}

// TestEventLinesArePlain: what a storm writes takes the shorter way.
func TestEventLinesArePlain(t *testing.T) {
	var out strings.Builder
	lines := plainLines{out: zapcore.AddSync(&out)}
	written, err := lines.write(zapcore.Entry{Level: zapcore.InfoLevel, Message: "notification dropped"}, []zap.Field{
		zap.String("event_id", "e-1"), zap.String("category", "errors"), zap.String("subject", "notify.errors"), zap.String("outcome", "dropped"),
		zap.String("source", "https://ci.example/job1"), zap.String("group", "errors"), zap.String("reason", "category"), zap.String("limit", "10/30m"),
		zap.Float64("retry_after_s", 412.512345), zap.Int("reserved", 2), zap.Bool("redelivered", true), zap.Uint64("stream_seq", 1),
	})
	if !written || err != nil || !strings.Contains(out.String(), `"retry_after_s":412.512345,"reserved":2,"redelivered":true,"stream_seq":1}`) {
		t.Errorf("written %t, %v: %s", written, err, out.String())
	}
}

// TestABrokenLogIsReported: an error of the log is not lost on the shorter way.
func TestABrokenLogIsReported(t *testing.T) {
	lines := plainLines{out: zapcore.AddSync(brokenLog{})}
	if written, err := lines.write(zapcore.Entry{Message: "x"}, nil); !written || !errors.Is(err, errBroken) {
		t.Errorf("written %t, %v", written, err)
	}
}

var errBroken = errors.New("no space left")

type brokenLog struct{}

func (brokenLog) Write([]byte) (int, error) { return 0, errBroken }

// BenchmarkEventLine is the line of a refused event.
func BenchmarkEventLine(b *testing.B) {
	for name, text := range map[string]string{"plain": "errors", "not plain": "errôrs"} {
		b.Run(name, func(b *testing.B) {
			log, stop := NewLog(nowhere{}, zapcore.InfoLevel, false)
			defer stop()
			b.ReportAllocs()
			for b.Loop() {
				log.Info("notification dropped", zap.String("event_id", "disk-1"), zap.String("category", text), zap.String("subject", "notify.errors"),
					zap.String("outcome", "dropped"), zap.String("reason", "category"), zap.String("limit", "10/30m"), zap.Float64("retry_after_s", 412.512345), zap.Uint64("stream_seq", 123456))
			}
			kit.Check(b, log.Sync())
		})
	}
}

type nowhere struct{}

func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
