package isolation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"notifier/test/kit"
)

// worker is one replica. Its log goes to a file.
type worker struct {
	log     string // path
	command *exec.Cmd
	ended   <-chan struct{}
}

// startWorkers starts so many replicas, and waits until they are ready.
func (w *world) startWorkers(n int) {
	w.Helper()
	for range n {
		w.startWorker()
	}
	for _, k := range w.workers {
		kit.EventuallyNil(w.T, k.ready)
	}
}

func (w *world) startWorker() *worker {
	w.Helper()
	k := &worker{log: filepath.Join(logFolder(w.T), fmt.Sprintf("w%d.log", len(w.workers)+1))}
	out, err := os.Create(k.log)
	kit.Check(w.T, err)
	defer func() { _ = out.Close() }() // the process has a handle of its own
	k.command = exec.Command(released.Build(w.T, folder), "serve")
	for name, value := range w.settings {
		k.command.Env = append(k.command.Env, name+"="+value)
	}
	k.command.Stdout, k.command.Stderr = out, out
	k.ended, err = kit.StartWithTest(w.T, k.command)
	kit.Check(w.T, err)
	w.workers = append(w.workers, k)
	return k
}

// line is a line of a worker's log.
type line struct {
	Time    time.Time `json:"ts"`
	Message string    `json:"msg"`
	Addr    string    `json:"addr"`
	EventID string    `json:"event_id"`
	Outcome string    `json:"outcome"`
	Reason  string    `json:"reason"`
	Detail  string    `json:"detail"`
}

// lines are what the worker has logged so far. What comes after the last line end was being written, and what is no JSON
// is a complaint about the settings.
func (k *worker) lines() (lines []line, err error) {
	text, err := os.ReadFile(k.log)
	if err != nil {
		return nil, err
	}
	for complete := range bytes.Lines(text) {
		var l line
		if !bytes.HasSuffix(complete, []byte("\n")) {
			break
		}
		if err := json.Unmarshal(complete, &l); err != nil {
			return nil, fmt.Errorf("%w: %s", err, complete)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// settled are the lines of events by their ids, of all workers.
func (w *world) settled() map[string]line {
	w.Helper()
	settled := map[string]line{}
	for _, k := range w.workers {
		lines, err := k.lines()
		kit.Check(w.T, err)
		for _, l := range lines {
			if l.Outcome != "" {
				settled[l.EventID] = l
			}
		}
	}
	return settled
}

// ready asks the worker whether it can send; nil: it can.
func (k *worker) ready() error {
	select {
	case <-k.ended:
		log, _ := os.ReadFile(k.log)
		return fmt.Errorf("the worker has ended: %s", log)
	default:
	}
	lines, err := k.lines()
	if err != nil {
		return err
	}
	for _, l := range lines {
		if l.Message != "admin server listens" {
			continue
		}
		response, err := (&http.Client{Timeout: 3 * time.Second}).Get("http://" + l.Addr + "/readyz")
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz answers %s", response.Status)
		}
		return nil
	}
	return fmt.Errorf("no admin server yet")
}

// peakMemory is the most memory that the worker's process has had, in MiB; 0 where the system does not show it.
func (k *worker) peakMemory(t *testing.T) float64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", k.command.Process.Pid))
	if err != nil {
		t.Logf("the peak memory is not known here: %v", err)
		return 0
	}
	for text := range strings.Lines(string(status)) {
		if value, found := strings.CutPrefix(text, "VmHWM:"); found {
			var kib float64
			_, err := fmt.Sscanf(value, "%f kB", &kib)
			kit.Check(t, err)
			return kib / 1024
		}
	}
	t.Fatal("the process has no VmHWM: it has ended")
	return 0
}

// logFolder is where the logs go: to NOTIFIER_ISOLATION_LOGS, to be looked at, or to a folder that goes with the test.
func logFolder(t *testing.T) string {
	t.Helper()
	kept := os.Getenv("NOTIFIER_ISOLATION_LOGS")
	if kept == "" {
		return t.TempDir()
	}
	kept = filepath.Join(kept, t.Name())
	kit.Check(t, os.MkdirAll(kept, 0o755))
	return kept
}
