package app

import (
	"math"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// plainLines writes the JSON lines that need no care: the fields are those of a storm, and all strings are
// printable ASCII that stands in JSON as it is. They are the bytes that zap would write, in a fraction of its
// time; TestPlainLines compares the two.
type plainLines struct {
	out zapcore.WriteSyncer

	mu   sync.Mutex
	line []byte // the last one's room, used again

	// What the lines of a batch have in common: one time, and what one limit refuses has one wait.
	at         time.Time
	stamp      []byte // at, as lines have it
	number     uint64 // the bits of the last number with a fraction
	numberText []byte
}

// write writes a line, if it is a plain one.
func (p *plainLines) write(entry zapcore.Entry, fields []zap.Field) (written bool, err error) {
	if entry.Level > zapcore.ErrorLevel || entry.LoggerName != "" || entry.Caller.Defined || entry.Stack != "" ||
		!plain(entry.Message) {
		return false, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stamp == nil || !entry.Time.Equal(p.at) {
		p.at, p.stamp = entry.Time, entry.Time.UTC().AppendFormat(p.stamp[:0], logTime)
	}
	line := append(p.line[:0], `{"level":"`...)
	line = append(line, entry.Level.String()...)
	line = append(append(line, `","ts":"`...), p.stamp...)
	line = append(append(line, `","msg":"`...), entry.Message...)
	line = append(line, '"')
	for i := range fields {
		var is bool
		if line, is = p.append(line, &fields[i]); !is {
			return false, nil
		}
	}
	p.line = append(line, '}', '\n')
	_, err = p.out.Write(p.line)
	return true, err
}

// append appends a field, if it is a plain one; p.mu is held.
func (p *plainLines) append(line []byte, field *zap.Field) ([]byte, bool) {
	if !plain(field.Key) {
		return line, false
	}
	line = append(append(append(line, ',', '"'), field.Key...), '"', ':')
	switch field.Type {
	case zapcore.StringType:
		if len(field.String) > longestString || !plain(field.String) {
			return line, false
		}
		return append(append(append(line, '"'), field.String...), '"'), true
	case zapcore.BoolType:
		return strconv.AppendBool(line, field.Integer == 1), true
	case zapcore.Int64Type:
		return strconv.AppendInt(line, field.Integer, 10), true
	case zapcore.Uint64Type:
		return strconv.AppendUint(line, uint64(field.Integer), 10), true
	case zapcore.Float64Type:
		bits := uint64(field.Integer)
		if p.numberText == nil || p.number != bits {
			value := math.Float64frombits(bits)
			if math.IsNaN(value) || math.IsInf(value, 0) {
				return line, false
			}
			p.number, p.numberText = bits, strconv.AppendFloat(p.numberText[:0], value, 'f', -1, 64)
		}
		return append(line, p.numberText...), true
	}
	return line, false
}

// plain reports whether a text stands in a JSON string as it is, and is safe in a log line.
func plain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
