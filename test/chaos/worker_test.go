package chaos

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"notifier/test/kit"
)

// worker is one replica, through all its processes.
type worker struct {
	t        *testing.T
	name     string
	folder   string // of the logs
	program  string
	settings map[string]string
	links    map[string]*link
	paced    *atomic.Bool // the world's

	mu    sync.Mutex
	lives []*life
}

// life is one process of a worker. Its log goes to a file, from which nothing is lost when it is killed.
type life struct {
	name    string // such as w2-5, the fifth process of w2
	worker  *worker
	program string // path of it
	log     string // path of the file
	command *exec.Cmd
	started time.Time
	pace    string          // SLACK_PACE
	ended   <-chan struct{} // closed when the process has ended; the fields below are then final

	killed time.Time // when SIGKILL was sent, or seen to have been; zero: never
	stops  []span    // during which SIGSTOP held it
}

// span is a stretch of time.
type span struct{ from, to time.Time }

func (s span) overlaps(from, to time.Time) bool { return s.from.Before(to) && from.Before(s.to) }

// start starts a process; more settings come on top of the worker's own.
func (k *worker) start(more ...string) (*life, error) {
	k.mu.Lock()
	l := &life{name: fmt.Sprintf("%s-%d", k.name, len(k.lives)+1), worker: k, program: k.program, started: time.Now()}
	k.lives = append(k.lives, l)
	k.mu.Unlock()

	l.log = filepath.Join(k.folder, l.name+".log")
	out, err := os.Create(l.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }() // the process has a handle of its own
	complaints, err := os.Create(l.log + ".stderr")
	if err != nil {
		return nil, err
	}
	defer func() { _ = complaints.Close() }()
	if l.pace = "off"; k.paced.Load() {
		l.pace = pace
	}
	l.command = exec.Command(l.program, "serve")
	for name, value := range k.settings {
		l.command.Env = append(l.command.Env, name+"="+value)
	}
	l.command.Env = append(append(l.command.Env, "SLACK_BOT_TOKEN="+tokenPrefix+l.name, "SLACK_PACE="+l.pace), more...)
	l.command.Stdout, l.command.Stderr = out, complaints
	if l.ended, err = kit.StartWithTest(k.t, l.command); err != nil {
		return nil, err
	}
	return l, nil
}

// now is the worker's latest process.
func (k *worker) now() *life {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lives[len(k.lives)-1]
}

func (l *life) dead() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// kill ends the process as a crash would.
func (l *life) kill() error {
	l.killed = time.Now()
	if err := l.command.Process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", l.name, err)
	}
	<-l.ended
	return nil
}

// crashed reports whether the process has died by SIGKILL, from whomever.
func (l *life) crashed() bool {
	if !l.dead() {
		return false
	}
	status, ok := l.command.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// freeze stops the process where it stands; thaw lets it go on.
func (l *life) freeze() error {
	l.stops = append(l.stops, span{from: time.Now()})
	return l.command.Process.Signal(syscall.SIGSTOP)
}

func (l *life) thaw() error {
	err := l.command.Process.Signal(syscall.SIGCONT)
	l.stops[len(l.stops)-1].to = time.Now()
	return err
}

// terminate asks the process to end, as an orchestrator does, and expects exit code 0.
func (l *life) terminate() error {
	if err := l.command.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("terminate %s: %w", l.name, err)
	}
	select {
	case <-l.ended:
	case <-time.After(kit.Patience):
		return fmt.Errorf("%s does not end after SIGTERM", l.name)
	}
	if code := l.command.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("%s ended with exit code %d after SIGTERM, expected 0", l.name, code)
	}
	return nil
}

// complaints is what the process wrote to standard error.
func (l *life) complaints() string {
	text, err := os.ReadFile(l.log + ".stderr")
	return strings.TrimSpace(string(text) + errorText(err))
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// ready asks the process whether it can send; nil: it can.
func (l *life) ready() error {
	if l.dead() {
		return fmt.Errorf("%s has ended by itself: %s", l.name, l.complaints())
	}
	addr := ""
	for _, line := range readLog(l).lines {
		if line.Message == "admin server listens" {
			addr = line.Addr
		}
	}
	if addr == "" {
		return errors.New("no admin server yet")
	}
	client := http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + addr + "/readyz")
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", l.name, body)
	}
	return err
}
