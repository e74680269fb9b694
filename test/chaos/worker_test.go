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

// worker is one replica, through all its processes.
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

// process is one process of a worker.
type process struct {
	*kit.Worker
	name    string // such as w2-5, the fifth process of w2
	worker  *worker
	program string // path of it
	started time.Time
	pace    string // SLACK_PACE

	stops []span // during which SIGSTOP held it
}

// span is a stretch of time.
type span struct{ from, to time.Time }

func (s span) overlaps(from, to time.Time) bool { return s.from.Before(to) && from.Before(s.to) }

// start starts a process; more settings come on top of the worker's own.
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

// now is the worker's latest process.
func (k *worker) now() *process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.processes[len(k.processes)-1]
}

// crashed reports whether the process has died by SIGKILL, from whomever.
func (p *process) crashed() bool {
	if !p.Dead() {
		return false
	}
	status, ok := p.Command.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// freeze stops the process where it stands; thaw lets it go on.
func (p *process) freeze() error {
	p.stops = append(p.stops, span{from: time.Now()})
	return p.Command.Process.Signal(syscall.SIGSTOP)
}

func (p *process) thaw() error {
	err := p.Command.Process.Signal(syscall.SIGCONT)
	p.stops[len(p.stops)-1].to = time.Now()
	return err
}

// terminate asks the process to end, as an orchestrator does, and expects exit code 0.
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
