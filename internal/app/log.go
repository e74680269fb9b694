package app

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logBuffer holds the lines of a batch; they are flushed before the batch is acknowledged.
const logBuffer = 256 << 10

// logFlushEvery flushes lines that no batch flushes.
const logFlushEvery = time.Second

// NewLog makes the one logger: lines on out, never sampled; of console lines instead of JSON. What go-redis logs, for the
// whole process, goes there too. The logger's Sync sends off every line so far; stop does so for the last time.
func NewLog(out io.Writer, level zapcore.Level, console bool) (log *zap.Logger, stop func()) {
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
	log = zap.New(zapcore.NewCore(encoder, buffered, level))
	redis.SetLogger(redisLog{log})
	return log, func() { _ = buffered.Stop() } // nothing is left that could report a broken log
}

type unsynced struct{ io.Writer }

// SilenceRedis discards what go-redis logs: commands that have no log get it as an error too.
func SilenceRedis() { redis.SetLogger(redisLog{zap.NewNop()}) }

// redisLog takes what go-redis logs about its connections, which would go to standard error in a form of its own.
type redisLog struct{ log *zap.Logger }

func (l redisLog) Printf(_ context.Context, format string, arguments ...any) {
	l.log.Debug("redis client", zap.String("message", fmt.Sprintf(format, arguments...)))
}
