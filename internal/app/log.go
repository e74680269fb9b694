package app

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"notifier/internal/term"
)

// logBuffer holds the lines of a batch; they are flushed before the batch is acknowledged.
const logBuffer = 256 << 10

// logTime is the form of times in a line, in UTC.
const logTime = "2006-01-02T15:04:05.000000Z"

// logFlushEvery flushes lines that no batch flushes.
const logFlushEvery = time.Second

// NewLog makes the one logger: lines on out from this level on, never sampled; of console lines instead of
// JSON. What go-redis logs, for the whole process, goes there too. The logger's Sync sends off every line so
// far; stop does so for the last time.
//
// What a line quotes from outside is safe there: characters that are not printable are escaped, and a string
// has at most 4,096 bytes.
func NewLog(out io.Writer, level zapcore.Level, console bool) (log *zap.Logger, stop func()) {
	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime = encodeTime()
	encoder := zapcore.NewJSONEncoder(encoding)
	if console {
		encoding.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(encoding)
	}
	// unsynced hides out's own Sync: an fsync for each batch would cost milliseconds where the log is a file.
	buffered := &zapcore.BufferedWriteSyncer{
		WS: zapcore.AddSync(unsynced{out}), Size: logBuffer, FlushInterval: logFlushEvery,
	}
	// A core writes a line at a time, so the escaper is in front of the buffer.
	core := zapcore.NewCore(encoder, escaped{term.Escaper(buffered), buffered}, level)
	log = zap.New(&boundedCore{Core: core})
	redis.SetLogger(redisLog{log})
	return log, func() { _ = buffered.Stop() } // nothing is left that could report a broken log
}

// EventLog is the same log without a level: the line of a settled event is the record of what became of it,
// so no level leaves it out. Of a logger that is not NewLog's the level stays.
func EventLog(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		if ours, is := core.(*boundedCore); is {
			every := *ours
			every.every = true
			return &every
		}
		return core
	}))
}

// encodeTime writes times in the form of logTime. The lines of a batch have one time, which is formatted
// once.
func encodeTime() zapcore.TimeEncoder {
	type formatted struct {
		at   time.Time
		text string
	}
	var last atomic.Pointer[formatted]
	return func(t time.Time, encoder zapcore.PrimitiveArrayEncoder) {
		f := last.Load()
		if f == nil || !f.at.Equal(t) {
			f = &formatted{t, t.UTC().Format(logTime)}
			last.Store(f)
		}
		encoder.AppendString(f.text)
	}
}

type unsynced struct{ io.Writer }

// escaped is a buffer behind an escaper.
type escaped struct {
	io.Writer
	buffer zapcore.WriteSyncer
}

func (e escaped) Sync() error { return e.buffer.Sync() }

// longestString bounds a string in a log line, in bytes. Errors can quote answers of any length.
const longestString = 4096

// boundedCore cuts the strings that are too long for a log line.
type boundedCore struct {
	zapcore.Core
	every bool // lines of any level, see EventLog
}

// Enabled implements zapcore.Core.
func (c *boundedCore) Enabled(level zapcore.Level) bool { return c.every || c.Core.Enabled(level) }

// With implements zapcore.Core.
func (c *boundedCore) With(fields []zap.Field) zapcore.Core {
	return &boundedCore{Core: c.Core.With(bounded(fields)), every: c.every}
}

// Check implements zapcore.Core: without it the line would go past Write.
func (c *boundedCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

// Write implements zapcore.Core.
func (c *boundedCore) Write(entry zapcore.Entry, fields []zap.Field) error {
	return c.Core.Write(entry, bounded(fields))
}

// bounded returns the fields, or a copy where one of them is too long.
func bounded(fields []zap.Field) []zap.Field {
	copied := false
	for i, field := range fields {
		text := field.String
		if err, is := field.Interface.(error); is && field.Type == zapcore.ErrorType {
			text = err.Error()
		}
		if len(text) <= longestString {
			continue
		}
		if !copied {
			fields, copied = slices.Clone(fields), true
		}
		fields[i] = zap.String(field.Key, cut(text))
	}
	return fields
}

// cut keeps the beginning of a text, up to a whole character.
func cut(text string) string {
	const mark = "…"
	end := longestString - len(mark)
	for !utf8.RuneStart(text[end]) && end > longestString-len(mark)-utf8.UTFMax {
		end--
	}
	return text[:end] + mark
}

// SilenceRedis discards what go-redis logs: commands that have no log get it as an error too.
func SilenceRedis() { redis.SetLogger(redisLog{zap.NewNop()}) }

// redisLog takes what go-redis logs about its connections, which would go to standard error in a form of its
// own.
type redisLog struct{ log *zap.Logger }

func (l redisLog) Printf(_ context.Context, format string, arguments ...any) {
	l.log.Debug("redis client", zap.String("message", fmt.Sprintf(format, arguments...)))
}
