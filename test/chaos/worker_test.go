package chaos

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"notifier/test/kit"
)

// worker is one notifier worker. It has a new process after each restart.
type worker struct {
	t        *testing.T
	name     string
	folder   string // of the logs
	program  string
	settings map[string]string
	links    map[string]*link
	paced    *atomic.Bool // the deployment's

	mu        sync.Mutex
	processes []*process
}

type process struct {
	*kit.Worker
	name    string // such as w2-5, the fifth process of w2
	worker  *worker
	program string // path
	started time.Time
	pace    string // SLACK_PACE

	stops []span // while stopped by SIGSTOP
}

type span struct{ from, to time.Time }

func (s span) overlaps(from, to time.Time) bool { return s.from.Before(to) && from.Before(s.to) }

// start starts a process. The settings in more override those in k.settings.
func (k *worker) start(more ...string) (*process, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := &process{name: fmt.Sprintf("%s-%d", k.name, len(k.processes)+1), worker: k, program: k.program, started: time.Now()}
	if p.pace = "off"; k.paced.Load() {
		p.pace = pace
	}
	more = append(more, "SLACK_BOT_TOKEN="+tokenPrefix+p.name, "SLACK_PACE="+p.pace)
	var err error
	p.Worker, err = kit.StartWorker(k.t, p.program, filepath.Join(k.folder, p.name+".log"), k.settings, more...)
	if err == nil {
		k.processes = append(k.processes, p)
	}
	return p, err
}

// now returns the latest process.
func (k *worker) now() *process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.processes[len(k.processes)-1]
}

// crashed reports whether SIGKILL ended the process, sent by the test or by the process itself.
func (p *process) crashed() bool {
	if !p.Dead() {
		return false
	}
	status, ok := p.Command.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// freeze stops the process until thaw.
func (p *process) freeze() error {
	p.stops = append(p.stops, span{from: time.Now()})
	return p.Command.Process.Signal(syscall.SIGSTOP)
}

func (p *process) thaw() error {
	err := p.Command.Process.Signal(syscall.SIGCONT)
	p.stops[len(p.stops)-1].to = time.Now()
	return err
}

// terminate sends SIGTERM, as an orchestrator does, and expects exit code 0.
func (p *process) terminate() error {
	if err := p.Command.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("terminate %s: %w", p.name, err)
	}
	select {
	case <-p.Ended:
	case <-time.After(kit.Patience):
		return fmt.Errorf("%s does not end after SIGTERM", p.name)
	}
	if code := p.Command.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("%s ended with exit code %d after SIGTERM, expected 0", p.name, code)
	}
	return nil
}
