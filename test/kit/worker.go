package kit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Worker is a process of "notifier serve". Its log goes to a file, from which nothing is lost when it is
// killed.
type Worker struct {
	Log     string // path
	Command *exec.Cmd
	Ended   <-chan struct{}
}

// StartWorker starts a program with the settings as its only environment, and more of them as NAME=VALUE.
func StartWorker(
	t testing.TB,
	program, log string,
	settings map[string]string,
	more ...string,
) (*Worker, error) {
	t.Helper()
	w := &Worker{Log: log, Command: exec.Command(program, "serve")}
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }() // the process has a handle of its own
	complaints, err := os.Create(log + ".stderr")
	if err != nil {
		return nil, err
	}
	defer func() { _ = complaints.Close() }()
	for name, value := range settings {
		w.Command.Env = append(w.Command.Env, name+"="+value)
	}
	w.Command.Env = append(w.Command.Env, more...)
	w.Command.Stdout, w.Command.Stderr = out, complaints
	w.Ended, err = StartWithTest(t, w.Command)
	return w, err
}

// LogLine is a line of a worker's log.
type LogLine struct {
	Time        time.Time `json:"ts"`
	Message     string    `json:"msg"`
	Addr        string    `json:"addr"`
	EventID     string    `json:"event_id"`
	Category    string    `json:"category"`
	Outcome     string    `json:"outcome"`
	Reason      string    `json:"reason"`
	Detail      string    `json:"detail"`
	Limit       string    `json:"limit"`
	RetryAfter  *float64  `json:"retry_after_s"`
	StreamSeq   uint64    `json:"stream_seq"`
	Ambiguous   bool      `json:"ambiguous"`
	Redelivered bool      `json:"redelivered"`
	Letter      *bool     `json:"letter"`
	MutedBy     string    `json:"muted_by"`
}

// IsOutcome reports whether the line logs the outcome of an event.
func (l LogLine) IsOutcome() bool { return l.Outcome != "" }

// Lines returns the lines logged so far. The error reports lines that are not JSON. A last line without a
// line end is still being written and is left out.
func (w *Worker) Lines() (lines []LogLine, err error) {
	text, err := os.ReadFile(w.Log)
	for complete := range bytes.Lines(text) {
		if !bytes.HasSuffix(complete, []byte("\n")) {
			break
		}
		var line LogLine
		if broken := json.Unmarshal(complete, &line); broken != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w: %s", w.Log, broken, complete))
			continue
		}
		lines = append(lines, line)
	}
	return lines, err
}

// Dead reports whether the process has ended.
func (w *Worker) Dead() bool {
	select {
	case <-w.Ended:
		return true
	default:
		return false
	}
}

// Complaints returns the standard error of the process.
func (w *Worker) Complaints() string {
	text, err := os.ReadFile(w.Log + ".stderr")
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

// Kill ends the process as a crash would, and waits until it has ended.
func (w *Worker) Kill() error {
	if err := w.Command.Process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", w.Log, err)
	}
	<-w.Ended
	return nil
}

// Ready returns nil if the worker can send.
func (w *Worker) Ready() error {
	_, err := w.Admin("/readyz")
	return err
}

// Admin gets a page of the worker's admin server. The error holds the page unless its status is 200.
func (w *Worker) Admin(path string) (page string, err error) {
	if w.Dead() {
		return "", fmt.Errorf("%s has ended by itself: %s", w.Log, w.Complaints())
	}
	lines, err := w.Lines()
	if err != nil {
		return "", err
	}
	for _, line := range lines {
		if line.Message == "admin server listens" {
			return get(line.Addr, path)
		}
	}
	return "", errors.New("no admin server yet")
}

func get(addr, path string) (page string, err error) {
	client := http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + addr + path)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", addr, body)
	}
	return string(body), err
}
