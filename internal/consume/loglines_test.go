package consume_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

var errNoSpace = &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}

// logLines collects the log, one JSON object a line.
type logLines struct {
	onLine func(line)  // called for each line before it counts as written; may be nil
	broken atomic.Bool // if set, event lines cannot be written

	mu    sync.Mutex
	lines []line
	raw   bytes.Buffer
}

type line map[string]any

func (j *logLines) logger() *zap.Logger { return loggerTo(j) }

// events returns the logger for event lines. As in the program, lines are buffered until Sync.
func (j *logLines) events() *zap.Logger { return loggerTo(&untilSynced{to: j}) }

func loggerTo(to zapcore.WriteSyncer) *zap.Logger {
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, to, zapcore.DebugLevel))
}

// untilSynced buffers lines until Sync.
type untilSynced struct {
	to *logLines

	mu   sync.Mutex
	kept [][]byte
}

func (u *untilSynced) Write(text []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.kept = append(u.kept, bytes.Clone(text))
	return len(text), nil
}

func (u *untilSynced) Sync() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.to.broken.Load() {
		return errNoSpace
	}
	for _, text := range u.kept {
		if _, err := u.to.Write(text); err != nil {
			return err
		}
	}
	u.kept = nil
	return nil
}

func (j *logLines) Write(text []byte) (int, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return 0, err
	}
	if j.onLine != nil {
		j.onLine(l)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, l)
	return j.raw.Write(text)
}

func (j *logLines) Sync() error { return nil }

func (j *logLines) named(prefix string) []line {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []line
	for _, l := range j.lines {
		if strings.HasPrefix(l["msg"].(string), prefix) {
			found = append(found, l)
		}
	}
	return found
}

func (j *logLines) settled() []line { return j.named("notification ") }

// waits returns the lines that report a dependency as unavailable.
func (j *logLines) waits(what string) []line {
	var found []line
	for _, l := range j.named("waiting") {
		if l["for"] == what {
			found = append(found, l)
		}
	}
	return found
}

func (j *logLines) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.raw.String()
}

func (j *logLines) tail(n int) string {
	lines := strings.SplitAfter(j.text(), "\n")
	return strings.Join(lines[max(0, len(lines)-n-1):], "")
}

func tally(lines []line) map[string]int {
	count := map[string]int{}
	for _, l := range lines {
		key := l["outcome"].(string)
		if reason, given := l["reason"]; given {
			key += " " + reason.(string)
		}
		count[key]++
	}
	return count
}
