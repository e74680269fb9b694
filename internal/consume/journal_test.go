package consume_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// journal takes the log as JSON lines.
type journal struct {
	onLine func(line) // called for each line before it counts as written; may be nil

	mu    sync.Mutex
	lines []line
	raw   bytes.Buffer
}

// line is one line of the log.
type line map[string]any

func (j *journal) logger() *zap.Logger {
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, j, zapcore.DebugLevel))
}

func (j *journal) Write(text []byte) (int, error) {
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

func (j *journal) Sync() error { return nil }

func (j *journal) named(prefix string) []line {
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

func (j *journal) settled() []line { return j.named("notification ") }

// waits are the lines that report that something is unavailable.
func (j *journal) waits(what string) []line {
	var found []line
	for _, l := range j.named("waiting") {
		if l["for"] == what {
			found = append(found, l)
		}
	}
	return found
}

func (j *journal) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.raw.String()
}

func (j *journal) tail(n int) string {
	lines := strings.SplitAfter(j.text(), "\n")
	return strings.Join(lines[max(0, len(lines)-n-1):], "")
}

// tally counts lines by outcome and reason.
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
