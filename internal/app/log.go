package app

import (
	"context"
	"fmt"
	"io"
	stdlog "log"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/time/rate"

	"notifier/internal/term"
)

// logTime is the form of times in a line, in UTC.
const logTime = "2006-01-02T15:04:05.000000Z"

// NewLog makes the one logger of a process. It writes lines from this level on to out, as JSON or for a
// console, never sampled, and also the lines of go-redis and of Go's standard log. The logger's Sync writes
// every line so far, or returns why it cannot. stop does so for the last time. An outage of out is reported
// on complaints, once, and so are faults of zap.
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
	}, zap.ErrorOutput(zapcore.AddSync(complaints)))
	redis.SetLogger(redisLog{log})
	setStandardLog(newLibraryLog(log))
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

// SilenceLibraries discards the logs of go-redis and of Go's libraries, for commands, which get the errors
// anyway.
func SilenceLibraries() {
	redis.SetLogger(redisLog{zap.NewNop()})
	setStandardLog(io.Discard)
}

// redisLog takes the log of go-redis, which would go to standard error in another format.
type redisLog struct{ log *zap.Logger }

func (l redisLog) Printf(_ context.Context, format string, arguments ...any) {
	l.log.Debug("redis client", zap.String("message", fmt.Sprintf(format, arguments...)))
}

func setStandardLog(out io.Writer) {
	stdlog.SetFlags(0)
	stdlog.SetOutput(out)
}

// libraryLog takes the lines that Go's libraries write to the standard log. net/http, for example, writes one
// if it cannot accept connections, or if a server sends bytes without a request.
type libraryLog struct {
	log   *zap.Logger
	lines rate.Sometimes // a failure may repeat several times a second
}

func newLibraryLog(log *zap.Logger) *libraryLog {
	return &libraryLog{log: log, lines: rate.Sometimes{First: firstLogged, Interval: time.Minute}}
}

// Write cuts each line at its first quotation mark. The text behind it came from outside, and may be an
// event's.
func (l *libraryLog) Write(text []byte) (int, error) {
	l.lines.Do(func() {
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		for i, line := range lines {
			if quoted := strings.IndexAny(line, "\"`"); quoted >= 0 {
				lines[i] = line[:quoted] + "…"
			}
		}
		l.log.Warn("a library reports", zap.String("text", strings.Join(lines, "\n")))
	})
	return len(text), nil
}
