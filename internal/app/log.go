package app

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"notifier/internal/term"
)

// logTime is the form of times in a line, in UTC.
const logTime = "2006-01-02T15:04:05.000000Z"

// NewLog makes the one logger of a process. It writes lines from this level on to out, as JSON or for a
// console, never sampled, and also the lines of go-redis. The logger's Sync writes every line so far, or
// returns why it cannot. stop does so for the last time. An outage of out is reported on complaints, once.
//
// Foreign text in a line is safe: characters that are not printable are escaped, and a string has at most
// 4,096 bytes.
func NewLog(
	out, complaints io.Writer,
	level zapcore.Level,
	console bool,
) (log *zap.Logger, stop func() error) {
	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime = encodeTime()
	encoder := zapcore.NewJSONEncoder(encoding)
	if console {
		encoding.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(encoding)
	}
	buffer := newLineBuffer(out, complaints)
	others, events := sink{buffer, false}, sink{buffer, true}
	log = zap.New(&boundedCore{
		Core:   zapcore.NewCore(encoder, escaped{term.Escaper(others), buffer}, level),
		events: zapcore.NewCore(encoder, escaped{term.Escaper(events), buffer}, zapcore.DebugLevel),
		buffer: buffer,
	})
	redis.SetLogger(redisLog{log})
	return log, buffer.close
}

// EventLog returns the same log for the lines of settled events. Each line is the record of one event, so no
// level suppresses it, and it is kept while the output fails. EventLog returns a logger that is not NewLog's
// unchanged.
func EventLog(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		if ours, is := core.(*boundedCore); is && ours.events != nil {
			return &boundedCore{Core: ours.events, buffer: ours.buffer}
		}
		return core
	}))
}

// logErrors counts the failed writes of a log of NewLog.
func logErrors(log *zap.Logger) uint64 {
	if ours, is := log.Core().(*boundedCore); is {
		return ours.buffer.errors.Load()
	}
	return 0
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

// escaped is the buffer behind an escaper. A core writes one line at a time, which an escaper requires.
type escaped struct {
	io.Writer
	*lineBuffer
}

// longestString bounds a string in a log line, in bytes. Errors can quote responses of any length.
const longestString = 4096

// boundedCore cuts the strings that are too long for a log line.
type boundedCore struct {
	zapcore.Core
	events zapcore.Core // writes the lines of events, see EventLog; nil if Core does
	buffer *lineBuffer
}

// With implements zapcore.Core.
func (c *boundedCore) With(fields []zap.Field) zapcore.Core {
	fields = bounded(fields)
	with := *c
	with.Core = c.Core.With(fields)
	if c.events != nil {
		with.events = c.events.With(fields)
	}
	return &with
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
		fields[i] = zap.String(field.Key, term.Cut(text, longestString))
	}
	return fields
}

// SilenceRedis discards go-redis's log, for commands, which get the errors anyway.
func SilenceRedis() { redis.SetLogger(redisLog{zap.NewNop()}) }

// redisLog takes the log of go-redis, which would go to standard error in another format.
type redisLog struct{ log *zap.Logger }

func (l redisLog) Printf(_ context.Context, format string, arguments ...any) {
	l.log.Debug("redis client", zap.String("message", fmt.Sprintf(format, arguments...)))
}
