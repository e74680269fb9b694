package main

import (
	"fmt"
	"io"
	"time"

	"notifier/internal/term"
)

// progressInterval is the minimum time between two updates.
const progressInterval = time.Second

// progress shows on a terminal how many events are decided, on one line that it overwrites. Elsewhere it
// shows nothing.
type progress struct {
	out      io.Writer
	terminal bool
	total    int
	decided  int
	shown    time.Time // when the line was last written, or the replay began
	written  bool      // there is a line to erase
}

// newProgress begins a progress on out, which may be an Escaper.
func newProgress(out io.Writer, screen term.Screen, total int) *progress {
	return &progress{out: term.Unescaped(out), terminal: screen.Terminal, total: total, shown: time.Now()}
}

// advance counts one decided event.
func (p *progress) advance() error {
	p.decided++
	if !p.terminal || time.Since(p.shown) < progressInterval {
		return nil
	}
	p.shown, p.written = time.Now(), true
	percent := 100 * p.decided / p.total
	_, err := fmt.Fprintf(p.out, "\r%d of %s decided (%d %%)", p.decided, term.Count(p.total, "event"), percent)
	return err
}

// erase clears the line, so that the next output starts in the first column.
func (p *progress) erase() error {
	if !p.written {
		return nil
	}
	_, err := io.WriteString(p.out, "\r\x1b[K")
	return err
}
