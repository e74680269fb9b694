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

// patience limits the time for a graceful stop. Processes that take longer are killed.
const patience = 30 * time.Second

// group runs the processes of one peer.
type group struct {
	bench   *bench
	peer    peer
	limits  limits
	running []*exec.Cmd
	logs    []string
}

func (b *bench) start(p peer, l limits) (*group, error) {
	g := &group{bench: b, peer: p, limits: l, running: make([]*exec.Cmd, p.replicas)}
	for i := range g.running {
		if err := g.startOne(i); err != nil {
			return g, errors.Join(err, g.kill())
		}
	}
	return g, nil
}

// startOne starts process i. Its output and errors go to a separate log.
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

// killAndRestart kills process i with SIGKILL and starts a new one in its place.
func (g *group) killAndRestart(i int) error {
	if err := g.running[i].Process.Kill(); err != nil {
		return err
	}
	_ = g.running[i].Wait() // reports the kill
	return g.startOne(i)
}

// cpu returns the processor time that the running processes have used.
func (g *group) cpu() (sum time.Duration) {
	for _, command := range g.running {
		sum += rig.CPU(command.Process.Pid)
	}
	return sum
}

// memory sums the peak memory of the running processes, in bytes.
func (g *group) memory() (sum int64) {
	for _, command := range g.running {
		sum += rig.PeakMemory(command.Process.Pid)
	}
	return sum
}

// stop sends SIGTERM and waits for the processes to exit.
func (g *group) stop() error {
	timer := time.AfterFunc(patience, func() { _ = g.signal(syscall.SIGKILL) })
	defer timer.Stop()
	_ = g.signal(syscall.SIGTERM) // fails if a process has already exited; wait reports why
	return g.wait()
}

func (g *group) kill() error {
	_ = g.signal(syscall.SIGKILL)
	_ = g.wait() // reports the kills
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
