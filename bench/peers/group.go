package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"notifier/bench/internal/rig"
)

// patience is how long a process may take to end when it is asked to.
const patience = 30 * time.Second

// group is the processes of a peer.
type group struct {
	bench   *bench
	peer    peer
	limits  limits
	running []*exec.Cmd
	logs    []string
}

// start starts the processes of a peer.
func (b *bench) start(p peer, l limits) (*group, error) {
	g := &group{bench: b, peer: p, limits: l, running: make([]*exec.Cmd, p.replicas)}
	for i := range g.running {
		if err := g.startOne(i); err != nil {
			return g, errors.Join(err, g.kill())
		}
	}
	return g, nil
}

// startOne starts a process with a log of its own, standard error included.
func (g *group) startOne(i int) error {
	g.bench.logged++
	path := filepath.Join(
		cmp.Or(g.bench.logs, g.bench.Folder),
		fmt.Sprintf("%d-%d.log", g.bench.run, g.bench.logged),
	)
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	command := g.peer.command(g.bench, g.limits)
	command.Stdout, command.Stderr = file, file
	if err := command.Start(); err != nil {
		return err
	}
	g.running[i], g.logs = command, append(g.logs, path)
	return nil
}

// killAndRestart kills a process without a warning, and starts another one in its place.
func (g *group) killAndRestart(i int) error {
	if err := g.running[i].Process.Kill(); err != nil {
		return err
	}
	_ = g.running[i].Wait() // that it was killed
	return g.startOne(i)
}

// cpu is the processor time of the processes that run.
func (g *group) cpu() (sum time.Duration) {
	for _, command := range g.running {
		sum += rig.CPU(command.Process.Pid)
	}
	return sum
}

// memory is the peak memory of the processes that run.
func (g *group) memory() (sum int64) {
	for _, command := range g.running {
		sum += rig.PeakMemory(command.Process.Pid)
	}
	return sum
}

// stop asks the processes to end.
func (g *group) stop() error {
	timer := time.AfterFunc(patience, func() { _ = g.signal(syscall.SIGKILL) })
	defer timer.Stop()
	_ = g.signal(syscall.SIGTERM) // one that has ended by itself is reported by wait
	return g.wait()
}

// kill ends the processes at once.
func (g *group) kill() error {
	_ = g.signal(syscall.SIGKILL)
	_ = g.wait() // that they were killed
	return nil
}

func (g *group) signal(s syscall.Signal) (err error) {
	for _, command := range g.running {
		if command != nil {
			err = errors.Join(err, command.Process.Signal(s))
		}
	}
	return err
}

func (g *group) wait() (err error) {
	for _, command := range g.running {
		if command != nil {
			err = errors.Join(err, command.Wait())
		}
	}
	return err
}
