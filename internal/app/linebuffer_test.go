package app

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"notifier/internal/term"
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

// BenchmarkBatch writes the lines of a full batch, as a worker in a storm does.
func BenchmarkBatch(b *testing.B) {
	file, err := os.Create(filepath.Join(b.TempDir(), "log"))
	kit.Check(b, err)
	defer func() { _ = file.Close() }()
	buffer := newLineBuffer(file, io.Discard)
	line := []byte(strings.Repeat("x", 349) + "\n")
	for _, lines := range []int{1, 512} {
		b.Run(fmt.Sprint(lines), func(b *testing.B) {
			for b.Loop() {
				for range lines {
					buffer.add(line, true)
				}
				kit.Check(b, buffer.Sync())
				kit.Check(b, file.Truncate(0))
				_, _ = file.Seek(0, io.SeekStart)
			}
		})
	}
	kit.Check(b, buffer.close())
}

// valve is an output that blocks while it is shut, as a full pipe does.
type valve struct {
	disk
	shut chan struct{} // closed to open the valve
	fail error         // of the write that was blocked, after half of its bytes
}

func newValve() *valve { return &valve{disk: disk{room: ample}, shut: make(chan struct{})} }

func (v *valve) open() { close(v.shut) }

func (v *valve) Write(p []byte) (int, error) {
	select {
	case <-v.shut:
		return v.disk.Write(p)
	default:
	}
	half, _ := v.disk.Write(p[:len(p)/2])
	<-v.shut
	if v.fail != nil {
		return half, v.fail
	}
	n, err := v.disk.Write(p[half:])
	return half + n, err
}

// TestStalledReaderIsAnOutage: Sync waits two seconds for the first blocked write and then no more. Nothing
// else waits. When the reader reads again, or a new one opens the pipe, each line of an event is whole.
func TestStalledReaderIsAnOutage(t *testing.T) {
	for name, fail := range map[string]error{"reads again": nil, "ends": errors.New("broken pipe")} {
		synctest.Test(t, func(t *testing.T) {
			out, complaints := newValve(), &kit.Output{}
			out.fail = fail
			b := newLineBuffer(out, complaints)
			b.add([]byte("the first\n"), true)
			for i, want := range []time.Duration{writePatience, 0, 0} {
				began := time.Now()
				if err := b.Sync(); !errors.Is(err, errStalled) || time.Since(began) != want {
					t.Errorf("%s: Sync returns %v after %s, expected %v after %s", name, err, time.Since(began), errStalled, want)
				}
				b.add([]byte(fmt.Sprintf("event %d\n", i)), true)
			}
			if b.errors.Load() < 3 {
				t.Errorf("%s: %d errors are counted, expected one for each Sync at least", name, b.errors.Load())
			}
			began := time.Now()
			for range 2 * logBuffer / 100 {
				b.add([]byte(strings.Repeat("x", 99)+"\n"), false)
			}
			b.mu.Lock()
			size := len(b.lines)
			b.mu.Unlock()
			if took := time.Since(began); took != 0 || size > logBuffer {
				t.Errorf("%s: other lines take %s and %d bytes, expected no time and %d at most", name, took, size, logBuffer)
			}
			out.open()
			synctest.Wait()
			if err := b.Sync(); !errors.Is(err, fail) {
				t.Errorf("%s: Sync returns %v, expected %v", name, err, fail)
			}
			kit.Check(t, b.close())
			var events []string
			for line := range strings.Lines(out.String()) {
				if !strings.HasPrefix(line, "x") {
					events = append(events, strings.TrimSuffix(line, "\n"))
				}
			}
			want := []string{"the first", "event 0", "event 1", "event 2"}
			if fail != nil {
				want = append([]string{"the f"}, want...) // went to the reader that has ended
			}
			if diff := cmp.Diff(want, events); diff != "" {
				t.Errorf("%s: lines of events (-want +got):\n%s", name, diff)
			}
			wantComplaints := []string{
				"notifier: cannot write the log: " + errStalled.Error() + "; events are held until it can be written",
				"notifier: the log can be written again",
			}
			if diff := cmp.Diff(wantComplaints, complaints.Lines()); diff != "" {
				t.Errorf("%s: complaints (-want +got):\n%s", name, diff)
			}
		})
	}
}

// TestStalledReaderDoesNotKeepALogOpen: close returns the reason.
func TestStalledReaderDoesNotKeepALogOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newValve()
		defer out.open()
		b := newLineBuffer(out, io.Discard)
		b.add([]byte("the first\n"), true)
		began := time.Now()
		if err := b.close(); !errors.Is(err, errStalled) || time.Since(began) != writePatience {
			t.Errorf("close returns %v after %s, expected %v after %s", err, time.Since(began), errStalled, writePatience)
		}
	})
}

// TestStalledStandardErrorIsGivenUp: a writer waits two seconds once, and drops lines until out takes one
// again.
func TestStalledStandardErrorIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newValve()
		safe := Unblocked(out)
		for i, want := range []time.Duration{writePatience, 0, 0} {
			began, line := time.Now(), []byte(fmt.Sprintf("line %d\n", i))
			if _, err := safe.Write(line); !errors.Is(err, errStalled) || time.Since(began) != want {
				t.Errorf("%q: %v after %s, expected %v after %s", line, err, time.Since(began), errStalled, want)
			}
			clear(line) // a writer may not keep it
		}
		out.open()
		synctest.Wait()
		if n, err := safe.Write([]byte("line 3\n")); n != 7 || err != nil {
			t.Errorf("%d bytes and %v when out is taken again, expected 7", n, err)
		}
		if got := out.String(); got != "line 0\nline 3\n" {
			t.Errorf("%q is written, expected the first and the last line", got)
		}
	})
}

// TestComplaintTearsNoLine: standard error may be the same pipe as the log (2>&1). A complaint would arrive
// in the middle of the line that is being written.
func TestComplaintTearsNoLine(t *testing.T) {
	reader, writer, err := os.Pipe()
	kit.Check(t, err)
	b := newLineBuffer(writer, Unblocked(term.Escaper(writer)))
	lines := 0
	for ; lines*1000 < 3*64<<10/2; lines++ { // a pipe holds 64 KiB
		b.add([]byte(strings.Repeat("x", 999)+"\n"), true)
	}
	if err := b.Sync(); !errors.Is(err, errStalled) {
		t.Fatalf("Sync returns %v, expected %v", err, errStalled)
	}
	text := make(chan string)
	go func() {
		all, _ := io.ReadAll(reader)
		text <- string(all)
	}()
	kit.EventuallyNil(t, b.Sync)
	kit.Check(t, b.close())
	kit.Check(t, writer.Close())
	if got := <-text; got != strings.Repeat(strings.Repeat("x", 999)+"\n", lines) {
		t.Errorf("%d bytes, expected %d lines and nothing between them", len(got), lines)
	}
}
