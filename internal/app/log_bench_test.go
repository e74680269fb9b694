package app

import (
	"io"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// BenchmarkEventLine is a refused event's line beside others of its kind, which share fields.
func BenchmarkEventLine(b *testing.B) {
	log, stop := NewLog(io.Discard, io.Discard, zapcore.InfoLevel, false)
	defer func() { _ = stop() }()
	at := standing{time.Now()} // as the lines of a batch have it
	log = log.WithOptions(zap.WithClock(at)).With(zap.String("category", "errors"), zap.String("subject", "notify.errors"),
		zap.String("outcome", "dropped"), zap.String("reason", "category"), zap.String("limit", "10/30m"),
		zap.Float64("retry_after_s", 412.512345))
	b.ReportAllocs()
	for b.Loop() {
		log.Info("notification dropped", zap.String("event_id", "disk-1"), zap.Uint64("stream_seq", 123456))
	}
}

type standing struct{ now time.Time }

func (s standing) Now() time.Time { return s.now }

func (standing) NewTicker(d time.Duration) *time.Ticker { return time.NewTicker(d) }
