package app

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"notifier/test/kit"
)

// disk takes bytes until it is full.
type disk struct {
	mu     sync.Mutex
	text   strings.Builder
	room   int
	writes int
}

var errFull = errors.New("no space left on device")

func (d *disk) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writes++
	n := min(len(p), d.room)
	d.room -= n
	d.text.Write(p[:n])
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

func (d *disk) has(room int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room = room
}

func (d *disk) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.String()
}

// rotate begins a new file, and returns the old one.
func (d *disk) rotate() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.text.String()
	d.text.Reset()
	return old
}

const ample = 1 << 30

// TestLinesOfEventsSurviveAnOutage fills the disk at every byte of three lines, and then starts a new file. Each
// line is whole in one of the two.
func TestLinesOfEventsSurviveAnOutage(t *testing.T) {
	lines := []string{"the first", "the second", "the third"}
	all := len(strings.Join(lines, "\n")) + 1
	for room := range all {
		d, complaints := &disk{room: room}, &kit.Output{}
		b := newLineBuffer(d, complaints)
		for _, line := range lines {
			b.add([]byte(line+"\n"), true)
		}
		for range 3 {
			if err := b.Sync(); !errors.Is(err, errFull) {
				t.Fatalf("room for %d bytes: the error is %v", room, err)
			}
		}
		log := []string{d.rotate()}
		d.has(ample)
		b.add([]byte("the last\n"), true)
		kit.Check(t, b.close())
		log = append(log, d.String())
		var whole []string
		for line := range strings.Lines(strings.Join(log, "\n")) {
			if text := strings.TrimSuffix(line, "\n"); text == lineLike(text) && text != "" {
				whole = append(whole, text)
			}
		}
		if diff := cmp.Diff(append(lines, "the last"), whole); diff != "" {
			t.Errorf("room for %d bytes (-want +got):\n%s\nof %q", room, diff, log)
		}
		want := []string{
			"notifier: cannot write the log: no space left on device; events are held until it can be written",
			"notifier: the log can be written again",
		}
		if diff := cmp.Diff(want, complaints.Lines()); diff != "" {
			t.Errorf("room for %d bytes: complaints (-want +got):\n%s", room, diff)
		}
		if b.errors.Load() < 3 {
			t.Errorf("%d errors are counted, expected one for each failed write", b.errors.Load())
		}
	}
}

// lineLike returns the line that a text is, or is torn from.
func lineLike(text string) string {
	for _, line := range []string{"the first", "the second", "the third", "the last"} {
		if strings.HasPrefix(line, text) {
			return line
		}
	}
	return ""
}

// TestOtherLinesAreDroppedInAnOutage: they are bounded, and cost no line of an event.
func TestOtherLinesAreDroppedInAnOutage(t *testing.T) {
	d := &disk{}
	log, stop := NewLog(d, io.Discard, zapcore.InfoLevel, false)
	long := zap.String("long", strings.Repeat("x", 1000))
	const each = 2000
	for i := range each {
		log.Warn("other", long)
		EventLog(log).Debug(fmt.Sprint("event ", i))
	}
	buffer := log.Core().(*boundedCore).buffer
	buffer.mu.Lock()
	size := len(buffer.lines)
	buffer.mu.Unlock()
	if most := logBuffer + each*100; size > most {
		t.Errorf("the buffer has %d bytes, expected %d at most", size, most)
	}
	if logErrors(log) == 0 {
		t.Error("no failed write is counted")
	}
	d.has(ample)
	kit.Check(t, stop())
	text := d.String()
	if n := strings.Count(text, `"msg":"event `); n != each {
		t.Errorf("%d lines of events, expected %d", n, each)
	}
	if n := strings.Count(text, `"msg":"other"`); n == 0 || n == each {
		t.Errorf("%d other lines, expected those that fit", n)
	}
}

// TestABatchIsOneWrite: a line costs no call of its own.
func TestABatchIsOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which no time passes, so nothing else flushes
		d := &disk{room: ample}
		b := newLineBuffer(d, io.Discard)
		for range 500 {
			b.add([]byte("notification dropped\n"), true)
		}
		kit.Check(t, b.Sync())
		if n := strings.Count(d.String(), "\n"); n != 500 || d.writes != 1 {
			t.Errorf("%d lines in %d writes when Sync has returned, expected 500 in one", n, d.writes)
		}
		kit.Check(t, b.close())
	})
}

// TestLinesWithoutABatchAreWritten by themselves.
func TestLinesWithoutABatchAreWritten(t *testing.T) {
	d := &disk{room: ample}
	log, stop := NewLog(d, io.Discard, zapcore.InfoLevel, false)
	log.With(zap.Int("n", 1)).Info("hello")
	kit.Eventually(t, "it is written", func() bool { return strings.Contains(d.String(), `"n":1`) })
	kit.Check(t, stop())
}

// TestSyncReturnsWhenItsLinesAreWritten, whichever goroutine has written them, while the disk fills and empties.
func TestSyncReturnsWhenItsLinesAreWritten(t *testing.T) {
	d := &disk{}
	b := newLineBuffer(d, io.Discard)
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := range 50 {
				line := fmt.Sprintf("event %d-%d.", w, i)
				b.add([]byte(line+"\n"), true)
				for room := 0; b.Sync() != nil; room += 10 {
					d.has(room) // too little at first
				}
				if !strings.Contains(d.String(), line+"\n") {
					t.Errorf("%s is not written", line)
				}
			}
		})
	}
	writers.Wait()
	d.has(ample)
	kit.Check(t, b.close())
	for w := range 8 {
		for i := range 50 {
			line := fmt.Sprintf("event %d-%d.\n", w, i)
			if n := strings.Count("\n"+d.String(), "\n"+line); n != 1 {
				t.Errorf("%d lines %q, expected one", n, line)
			}
		}
	}
}
