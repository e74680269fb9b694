package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logBuffer holds the lines of a batch; they are flushed before the batch is acknowledged.
const logBuffer = 256 << 10

// logFlushEvery flushes lines that no batch flushes.
const logFlushEvery = time.Second

// newLog makes the one logger: lines on out, never sampled. Its Sync puts every line so far on its way; stop does so
// for the last time.
func newLog(out io.Writer, level zapcore.Level, console bool) (log *zap.Logger, stop func()) {
	encoding := zap.NewProductionEncoderConfig()
	layout := zapcore.TimeEncoderOfLayout("2006-01-02T15:04:05.000000Z")
	encoding.EncodeTime = func(t time.Time, encoder zapcore.PrimitiveArrayEncoder) { layout(t.UTC(), encoder) }
	encoder := zapcore.NewJSONEncoder(encoding)
	if console {
		encoding.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(encoding)
	}
	// unsynced hides out's own Sync: an fsync for each batch would cost milliseconds where the log is a file.
	buffered := &zapcore.BufferedWriteSyncer{WS: zapcore.AddSync(unsynced{out}), Size: logBuffer, FlushInterval: logFlushEvery}
	core := zapcore.NewCore(encoder, buffered, level)
	return zap.New(core), func() { _ = buffered.Stop() } // nowhere is left to tell that the log is broken
}

type unsynced struct{ io.Writer }

// redisLog takes what go-redis says about its connections, which would go to standard error in a form of its own.
type redisLog struct{ log *zap.Logger }

func (l redisLog) Printf(_ context.Context, format string, arguments ...any) {
	l.log.Debug("redis client", zap.String("says", fmt.Sprintf(format, arguments...)))
}
