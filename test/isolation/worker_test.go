package isolation

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"notifier/test/kit"
)

// startWorkers starts n workers and waits until they are ready.
func (d *deployment) startWorkers(n int) {
	d.Helper()
	logs := logFolder(d.T)
	for i := range n {
		w, err := kit.StartWorker(d.T, released.Build(d.T, folder), filepath.Join(logs, fmt.Sprintf("w%d.log", i+1)), d.settings)
		kit.Check(d.T, err)
		d.workers = append(d.workers, w)
	}
	for _, w := range d.workers {
		kit.EventuallyNil(d.T, w.Ready)
	}
}

// settled returns the outcome lines in the logs of all workers, by event id.
func (d *deployment) settled() map[string]kit.LogLine {
	d.Helper()
	settled := map[string]kit.LogLine{}
	for _, w := range d.workers {
		lines, err := w.Lines()
		kit.Check(d.T, err)
		for _, l := range lines {
			if l.IsOutcome() {
				settled[l.EventID] = l
			}
		}
	}
	return settled
}

// peakMemory returns the peak memory of the worker's process in MiB. It returns 0 on systems without /proc.
func peakMemory(t *testing.T, w *kit.Worker) float64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.Command.Process.Pid))
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

// logFolder returns a folder for the workers' logs. It is removed after the test, unless
// NOTIFIER_ISOLATION_LOGS names a place to keep logs.
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
