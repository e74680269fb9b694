package app

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// logBuffer holds the lines of a batch, in bytes. One call writes them before the batch is acknowledged.
	logBuffer = 256 << 10
	// logFlushEvery is the longest delay of a line that no batch flushes.
	logFlushEvery = time.Second
)

// lineBuffer collects log lines and writes many of them with one call. If the output fails, for example
// because a disk is full, the buffer keeps the lines of events until they are written. The worker holds their
// events meanwhile, which bounds the number of lines. Other lines are dropped once the buffer is full. zap's
// BufferedWriteSyncer would not do: it writes nothing more after its first error.
//
// lineBuffer reports the beginning and the end of an outage on complaints. It is safe for concurrent use.
type lineBuffer struct {
	out, complaints io.Writer
	errors          atomic.Uint64 // failed writes

	mu      sync.Mutex
	lines   []byte
	failing bool // the last write failed

	stop, stopped chan struct{}
}

func newLineBuffer(out, complaints io.Writer) *lineBuffer {
	b := &lineBuffer{
		out: out, complaints: complaints, stop: make(chan struct{}), stopped: make(chan struct{}),
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
}

// Sync writes all lines so far. After an error the rest stays in the buffer for the next call.
func (b *lineBuffer) Sync() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.flush()
}

// flush is Sync; mu is held.
func (b *lineBuffer) flush() error {
	if len(b.lines) == 0 {
		return nil
	}
	n, err := b.out.Write(b.lines)
	if err != nil {
		b.lines = unwritten(b.lines, n)
		b.errors.Add(1)
	} else if b.lines = b.lines[:0]; cap(b.lines) > 2*logBuffer {
		b.lines = nil // release the memory of an outage
	}
	if b.failing != (err != nil) {
		b.failing = err != nil
		b.complain(err)
	}
	return err
}

// complain reports the beginning of an outage, or its end if err is nil.
func (b *lineBuffer) complain(err error) {
	text := "notifier: the log can be written again\n"
	if err != nil {
		text = fmt.Sprintf("notifier: cannot write the log: %v; events are held until it can be written\n", err)
	}
	_, _ = io.WriteString(b.complaints, text) // there is no other place for an error of this write
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
