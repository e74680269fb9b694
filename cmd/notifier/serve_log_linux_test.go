package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"notifier/test/kit"
)

// loggingWorker is a worker with a log in a file that a test makes fail.
type loggingWorker struct {
	*process
	admin string
	js    jetstream.JetStream
}

// startLogging starts a worker that logs to out. Its admin server has a known address: the log may not name it.
func startLogging(t *testing.T, out *os.File, changes ...func(*exec.Cmd)) *loggingWorker {
	t.Helper()
	_, _, env := services(t, map[string]string{
		"ADMIN_ADDR": kit.FreeAddr(t), "LIMIT_CATEGORY": "3/1h", "SHUTDOWN_TIMEOUT": "3s",
	})
	command := exec.Command("notifier", "serve")
	command.Stdout = out
	for _, change := range changes {
		change(command)
	}
	w := &loggingWorker{
		process: startCommand(t, command, env), admin: "http://" + env["ADMIN_ADDR"],
		js: kit.JetStream(t, env["NATS_URL"]),
	}
	_ = out.Close() // the process has a handle of its own
	return w
}

// ready waits until the worker is ready.
func (w *loggingWorker) ready(t *testing.T) {
	t.Helper()
	kit.Eventually(t, "the worker is ready", func() bool {
		status, _ := get(t, w.admin+"/readyz")
		return status == http.StatusOK
	})
}

// publish stores events of several outcomes. Each has an id, because an event that was stored late is
// published again.
func (w *loggingWorker) publish(t *testing.T, events int) {
	t.Helper()
	for i := range events {
		payload := []string{"disk full", "{"}[i%2]
		kit.EventuallyNil(t, func() error {
			id := jetstream.WithMsgID(strconv.Itoa(i))
			_, err := w.js.Publish(t.Context(), "notify.errors", []byte(payload), id)
			return err
		})
	}
}

// stored counts the events in the stream, which are not acknowledged.
func (w *loggingWorker) stored(t *testing.T) int {
	t.Helper()
	stream, err := w.js.Stream(t.Context(), "NOTIFY")
	kit.Check(t, err)
	return int(stream.CachedInfo().State.Msgs)
}

// holds waits until the worker reports an outage of its log everywhere, and checks that it has said so once.
func (w *loggingWorker) holds(t *testing.T, reason string) {
	t.Helper()
	w.waits(t, reason)
	complaints := w.errOut.lines()
	if len(complaints) != 1 || !strings.HasPrefix(complaints[0], "notifier: cannot write the log: ") ||
		!strings.Contains(complaints[0], reason) {
		t.Errorf("on stderr: %q, expected one line with %q", complaints, reason)
	}
}

// waits waits until the worker is alive, not ready, and counts failed writes.
func (w *loggingWorker) waits(t *testing.T, reason string) {
	t.Helper()
	kit.Eventually(t, "the worker is not ready because of its log", func() bool {
		status, body := get(t, w.admin+"/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "log: ") && strings.Contains(body, reason)
	})
	if status, body := get(t, w.admin+"/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d %q", status, body)
	}
	kit.Eventually(t, "the failed writes are counted", func() bool {
		_, metrics := get(t, w.admin+"/metrics")
		return strings.Contains(metrics, "\nnotifier_log_errors_total ") &&
			!strings.Contains(metrics, "\nnotifier_log_errors_total 0\n")
	})
}

// fails ends the worker, which has to report that its log is incomplete.
func (w *loggingWorker) fails(t *testing.T) {
	t.Helper()
	w.terminate(t)
	w.ends(t, exitFailed)
	complaints := w.errOut.lines()
	if last := complaints[len(complaints)-1]; !strings.Contains(last, "the end of the log could not be written") {
		t.Errorf("the last line on stderr is %q", last)
	}
}

// TestNothingIsAcknowledgedWithoutALog: a device that is always full takes no line, nor does a pipe without a
// reader, which the worker survives.
func TestNothingIsAcknowledgedWithoutALog(t *testing.T) {
	t.Parallel()
	for reason, open := range map[string]func() (*os.File, error){
		"no space left on device": func() (*os.File, error) { return os.OpenFile("/dev/full", os.O_WRONLY, 0) },
		"broken pipe": func() (*os.File, error) {
			reader, writer, err := os.Pipe()
			return writer, errors.Join(err, reader.Close())
		},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			out, err := open()
			kit.Check(t, err)
			w := startLogging(t, out)
			w.publish(t, 21)
			w.holds(t, reason)
			w.fails(t)
			if n := w.stored(t); n != 21 {
				t.Errorf("%d events are left in the stream, expected all 21", n)
			}
		})
	}
}

// TestEventsGetTheirLinesWhenThereIsRoom: the file of the log reaches its largest size in the middle of a
// line, and may grow again later.
func TestEventsGetTheirLinesWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "worker.log")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	kit.Check(t, err)
	w := startLogging(t, file)
	w.ready(t)
	info, err := os.Stat(path)
	kit.Check(t, err)
	w.limitFiles(t, uint64(info.Size())+1000) // for a few of the lines
	const events = 60
	w.publish(t, events)
	w.holds(t, "file too large")
	if n := w.stored(t); n == 0 {
		t.Error("nothing is held")
	}
	w.limitFiles(t, unix.RLIM_INFINITY)
	kit.Eventually(t, "nothing is in the stream", func() bool { return w.stored(t) == 0 })
	w.ready(t)
	log, err := os.ReadFile(path)
	kit.Check(t, err)
	expectOneEach(t, eventsIn(log), events)
	if got := w.errOut.lines(); len(got) != 2 || got[1] != "notifier: the log can be written again" {
		t.Errorf("on stderr: %q, expected the beginning and the end of the outage", got)
	}
	w.terminate(t)
	w.ends(t, exitDone)
}

// stalledPipe returns a pipe of 4 KiB without a running reader.
func stalledPipe(t *testing.T) (reader, writer *os.File) {
	t.Helper()
	reader, writer, err := os.Pipe()
	kit.Check(t, err)
	t.Cleanup(func() { _ = reader.Close() })
	_, err = unix.FcntlInt(writer.Fd(), unix.F_SETPIPE_SZ, 4096)
	kit.Check(t, err)
	return reader, writer
}

// TestStalledReaderOfTheLog: a pipe blocks if its reader stalls. The worker holds its events and says so, and
// its end does not wait for the reader. Standard error may be the same pipe.
func TestStalledReaderOfTheLog(t *testing.T) {
	t.Parallel()
	const events, reason = 60, "a write takes longer than 2s"
	for _, name := range []string{"the log alone", "standard error too"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reader, writer := stalledPipe(t)
			w := startLogging(t, writer, func(c *exec.Cmd) {
				if name != "the log alone" {
					c.Stderr = writer
				}
			})
			w.publish(t, events)
			if name == "the log alone" {
				w.holds(t, reason)
			} else {
				w.waits(t, reason)
			}
			if n := w.stored(t); n == 0 {
				t.Error("nothing is held")
			}
			log := make(chan []byte)
			go func() {
				all, _ := io.ReadAll(reader)
				log <- all
			}()
			kit.Eventually(t, "nothing is in the stream", func() bool { return w.stored(t) == 0 })
			w.ready(t)
			w.terminate(t)
			w.ends(t, exitDone)
			all := <-log
			expectOneEach(t, eventsIn(all), events)
			for line := range strings.Lines(string(all)) {
				if !json.Valid([]byte(line)) {
					t.Errorf("torn: %q", line)
				}
			}
			if got := w.errOut.lines(); name == "the log alone" &&
				(len(got) != 2 || got[1] != "notifier: the log can be written again") {
				t.Errorf("on stderr: %q, expected the beginning and the end of the outage", got)
			}
		})
		t.Run(name+", SIGTERM", func(t *testing.T) {
			t.Parallel()
			_, writer := stalledPipe(t)
			_, err := writer.Write(make([]byte, 4096)) // else a short line on standard error may find room
			kit.Check(t, err)
			w := startLogging(t, writer, func(c *exec.Cmd) {
				if name != "the log alone" {
					c.Stderr = writer
				}
			})
			w.publish(t, events)
			w.waits(t, reason)
			w.terminate(t)
			w.ends(t, exitFailed)
			if n := w.stored(t); n == 0 {
				t.Error("nothing is held")
			}
		})
	}
}

// limitFiles bounds the size of the files that the worker writes.
func (w *loggingWorker) limitFiles(t *testing.T, bytes uint64) {
	t.Helper()
	limit := unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}
	kit.Check(t, unix.Prlimit(w.command.Process.Pid, unix.RLIMIT_FSIZE, &limit, nil))
}

// eventsIn counts the lines of each event in a log. It skips the beginning of a torn line, which is no JSON.
func eventsIn(log []byte) map[string]int {
	lines := map[string]int{}
	for line := range strings.Lines(string(log)) {
		var event struct {
			EventID string `json:"event_id"`
		}
		if json.Unmarshal([]byte(line), &event) == nil && event.EventID != "" && strings.HasSuffix(line, "\n") {
			lines[event.EventID]++
		}
	}
	return lines
}

func expectOneEach(t *testing.T, lines map[string]int, events int) {
	t.Helper()
	for id, n := range lines {
		if n != 1 {
			t.Errorf("%d lines of event %s, expected one", n, id)
		}
	}
	if len(lines) != events {
		t.Errorf("%d events have lines, expected %d", len(lines), events)
	}
}
