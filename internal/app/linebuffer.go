package app

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"notifier/internal/term"
)

const (
	// logBuffer holds the lines of a batch, in bytes. One call writes them before the batch is acknowledged.
	logBuffer = 256 << 10
	// logFlushEvery is the longest delay of a line that no batch flushes.
	logFlushEvery = time.Second
	// writePatience bounds the wait for one write to standard output or standard error.
	writePatience = 2 * time.Second
)

// errStalled fails the wait for a write that takes too long.
var errStalled = fmt.Errorf("a write takes longer than %s: its reader or its disk has stalled", writePatience)

// lineBuffer collects log lines and writes many of them with one call. If the output fails, for example
// because a disk is full or the reader of a pipe has stalled, the buffer keeps the lines of events until they
// are written. The worker holds their events meanwhile, which bounds the number of lines. Other lines are
// dropped once the buffer is full. zap's BufferedWriteSyncer would not do: it writes nothing more after its
// first error, and blocks with the output.
//
// lineBuffer reports the beginning and the end of an outage on complaints. It is safe for concurrent use.
type lineBuffer struct {
	out, complaints io.Writer
	isShared        bool          // both write to one file
	errors          atomic.Uint64 // failed writes

	mu      sync.Mutex
	lines   []byte // not written yet
	added   int    // bytes of all lines so far
	writing *write // of lines that are still in the buffer, or nil
	failing bool   // the last write failed, or takes too long

	complained bool // about the current outage

	stop, stopped chan struct{}
}

func newLineBuffer(out, complaints io.Writer) *lineBuffer {
	b := &lineBuffer{
		out: out, complaints: complaints, isShared: isSameFile(out, complaints),
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	go b.flushRegularly()
	return b
}

// add appends a line. If the buffer is full, it is written first, unless the output fails at the moment.
func (b *lineBuffer) add(line []byte, ofEvent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	full := len(b.lines)+len(line) > logBuffer
	if full && !b.failing {
		full = b.flush() != nil
	}
	if full && !ofEvent {
		return
	}
	b.lines = append(b.lines, line...)
	b.added += len(line)
}

// Sync writes all lines so far. After an error the rest stays in the buffer for the next call. Sync waits for
// no output that has stalled.
func (b *lineBuffer) Sync() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.flush()
}

// flush is Sync; mu is held.
func (b *lineBuffer) flush() error {
	var err error
	for end := b.added; err == nil && b.added-len(b.lines) < end; {
		err = b.write()
	}
	if err != nil {
		b.errors.Add(1)
	} else if len(b.lines) == 0 && cap(b.lines) > 2*logBuffer {
		b.lines = nil // release the memory of an outage
	}
	if b.failing != (err != nil) {
		b.failing = err != nil
		b.complain(err)
	}
	return err
}

// write writes the lines, or waits for the write that has begun already. mu is held, but not during the wait.
func (b *lineBuffer) write() error {
	if b.writing == nil {
		b.writing = startWrite(b.out, b.lines)
	}
	w := b.writing
	b.mu.Unlock()
	inTime := w.endsInTime()
	b.mu.Lock()
	switch {
	case !inTime:
		return errStalled
	case b.writing != w: // another caller has waited for it, too
		return nil
	}
	b.writing = nil
	if w.err != nil {
		b.lines = unwritten(b.lines, w.n)
		return w.err
	}
	b.lines = append(b.lines[:0], b.lines[w.n:]...) // lines that were added meanwhile
	return nil
}

// complain reports the beginning of an outage, or its end if err is nil. If the output has stalled and
// complaints go to the same file, it says nothing: its line would tear the one that is being written.
func (b *lineBuffer) complain(err error) {
	text := "notifier: the log can be written again\n"
	if err != nil {
		text = fmt.Sprintf("notifier: cannot write the log: %v; events are held until it can be written\n", err)
		b.complained = !b.isShared || !errors.Is(err, errStalled)
	}
	if b.complained {
		_, _ = io.WriteString(b.complaints, text) // there is no other place for an error of this write
	}
}

// unwritten returns the rest of a buffer after its first n bytes were written. A torn line is repeated as a
// whole after a line break: its beginning may be lost, with the reader of a pipe or in a file that was
// truncated to make room.
func unwritten(buffer []byte, n int) []byte {
	begin := bytes.LastIndexByte(buffer[:n], '\n') + 1
	if begin == n || n == len(buffer) || buffer[n] == '\n' {
		return buffer[n:]
	}
	return slices.Concat([]byte("\n"), buffer[begin:])
}

func (b *lineBuffer) flushRegularly() {
	defer close(b.stopped)
	tick := time.NewTicker(logFlushEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = b.Sync() // a worker syncs too, and acts on the error
		case <-b.stop:
			return
		}
	}
}

// close writes the remaining lines, and returns why it cannot.
func (b *lineBuffer) close() error {
	close(b.stop)
	<-b.stopped
	return b.Sync()
}

// sink appends lines to a buffer: either the lines of events or all others.
type sink struct {
	buffer   *lineBuffer
	ofEvents bool
}

// Write never fails, because zap would report every line on standard error. Sync returns the error.
func (s sink) Write(line []byte) (int, error) {
	s.buffer.add(line, s.ofEvents)
	return len(line), nil
}

// write is one call of Write in a goroutine of its own. A blocked one returns no error and has no deadline.
type write struct {
	began time.Time
	ended chan struct{}
	n     int // valid when it has ended, with err
	err   error
}

func startWrite(out io.Writer, text []byte) *write {
	w := &write{began: time.Now(), ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		w.n, w.err = out.Write(text)
	}()
	return w
}

// endsInTime waits for the end, until writePatience after the beginning.
func (w *write) endsInTime() bool {
	timer := time.NewTimer(writePatience - time.Since(w.began))
	defer timer.Stop()
	select {
	case <-w.ended:
		return true
	case <-timer.C:
	}
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

// Unblocked returns a writer that gives up after two seconds if out blocks, and drops further writes until
// out has taken the last one. It is for standard error, which may be the same stalled pipe as the log.
func Unblocked(out io.Writer) io.Writer { return &unblocked{out: out} }

type unblocked struct {
	out io.Writer

	mu      sync.Mutex
	writing *write // the last one, until it has ended
}

// Write implements io.Writer.
func (u *unblocked) Write(text []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.writing != nil && !u.writing.endsInTime() {
		return 0, errStalled
	}
	u.writing = startWrite(u.out, bytes.Clone(text))
	if !u.writing.endsInTime() {
		return 0, errStalled
	}
	w := u.writing
	u.writing = nil
	return w.n, w.err
}

// isSameFile reports whether two writers write to one file, terminal or pipe.
func isSameFile(a, b io.Writer) bool {
	first, second := fileOf(a), fileOf(b)
	return first != nil && second != nil && os.SameFile(first, second)
}

// fileOf returns the file behind a writer, or nil.
func fileOf(w io.Writer) os.FileInfo {
	if u, is := w.(*unblocked); is {
		w = u.out
	}
	file, is := term.Unescaped(w).(*os.File)
	if !is {
		return nil
	}
	info, err := file.Stat()
	if err != nil {
		return nil
	}
	return info
}
