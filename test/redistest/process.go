package redistest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/test/kit"
)

// place hosts servers: this machine, or a container that shares its network.
type place struct {
	container string // its name; empty: on this host
	binary    string
}

// mode is the role of a redis-server process.
type mode int

const (
	standalone mode = iota
	clusterNode
	sentinel
)

// errGone is a server that has ended by itself while it was waited for.
var errGone = errors.New("it ended")

// startServer starts a server that ends with the test. A free port can be taken by another process before the
// server takes it; then another one is tried.
func startServer(tb testing.TB, where place, mode mode, extra []string) *Server {
	tb.Helper()
	s := &Server{place: where, mode: mode, extra: extra, dir: where.folder(tb)}
	tb.Cleanup(func() { s.process.kill() })
	var err error
	for range 5 {
		s.Addr, s.bus = kit.FreeAddr(tb), 0
		if err = s.launch(); !errors.Is(err, errGone) {
			break
		}
	}
	kit.Check(tb, err)
	return s
}

// launch starts the process on s.Addr and waits until it replies.
func (s *Server) launch() error {
	_, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return err
	}
	arguments := []string{
		filepath.Join(s.dir, "redis.conf"),
		"--port",
		port,
		"--bind",
		"127.0.0.1",
		"--dir",
		s.dir,
		"--logfile",
		filepath.Join(s.dir, "redis.log"),
	}
	switch s.mode {
	case sentinel:
		arguments = append(arguments, "--sentinel")
	case clusterNode:
		if s.bus == 0 { // the default, port + 10000, may be above the last port or taken
			if s.bus, err = kit.FreePort(); err != nil {
				return err
			}
		}
		arguments = append(
			arguments,
			"--save",
			"",
			"--repl-diskless-sync-delay",
			"0",
			"--cluster-enabled",
			"yes",
			"--cluster-port",
			strconv.Itoa(s.bus),
		)
	default:
		// A replica gets its copy at once.
		arguments = append(arguments, "--save", "", "--repl-diskless-sync-delay", "0")
	}
	if s.process, err = s.place.start(s.dir, append(arguments, s.extra...)); err != nil {
		return fmt.Errorf("start redis-server: %w", err)
	}
	client := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1})
	defer func() { _ = client.Close() }()
	return within(startDeadline, func() error {
		itself, err := s.isItself(client)
		if err == nil && itself {
			return client.Ping(context.Background()).Err() // which waits for the append-only file too
		}
		if gone := s.process.gone(); gone || err == nil {
			s.process.kill()
			return fmt.Errorf("redis-server on %s: %w: %s", s.Addr, errGone, s.place.lastWords(s.dir))
		}
		return fmt.Errorf("redis-server on %s does not answer: %w", s.Addr, err)
	})
}

// isItself reports whether a client reaches this server, and not another one on its port. Without INFO its
// directory tells.
func (s *Server) isItself(client *redis.Client) (bool, error) {
	info, err := client.Info(context.Background(), "server").Result()
	if err != nil && strings.Contains(err.Error(), "unknown command") {
		settings, err := client.ConfigGet(context.Background(), "dir").Result()
		return settings["dir"] == s.dir, err
	}
	return field(info, "process_id") == strconv.Itoa(s.process.pid), err
}

// within looks until look finds nothing wrong; a server that has ended is not waited for.
func within(limit time.Duration, look func() error) error {
	var err error
	kit.Within(limit, func() bool { err = look(); return err == nil || errors.Is(err, errGone) })
	return err
}

// process is a running redis-server.
type process struct {
	container string
	pid       int
	keeper    io.Closer       // of a process on this host: closing it kills the server
	ended     <-chan struct{} // the same
}

// keep runs a command, prints its process id, and kills it when the standard input ends: with the test at the
// latest, however that ends.
const keep = `exec 3<&0; "$@" >/dev/null 2>&1 </dev/null & pid=$!; echo $pid; (cat <&3 >/dev/null; kill -KILL $pid 2>/dev/null) & wait $pid`

// start starts a redis-server in a folder with an empty redis.conf, which Sentinel insists on and writes to.
func (p place) start(dir string, arguments []string) (process, error) {
	if p.container != "" {
		// The shell ends at once, the server stays until it is killed or the container ends.
		script := `mkdir -p "$1" && : >>"$1/redis.conf"; shift; "$@" >/dev/null 2>&1 </dev/null & echo $!`
		out, err := docker(
			append([]string{"exec", p.container, "sh", "-c", script, "sh", dir, p.binary}, arguments...)...)
		if err != nil {
			return process{}, err
		}
		pid, err := strconv.Atoi(out)
		return process{container: p.container, pid: pid}, err
	}
	configuration, err := os.OpenFile(filepath.Join(dir, "redis.conf"), os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return process{}, err
	}
	_ = configuration.Close()
	command := exec.Command("sh", append([]string{"-c", keep, "sh", p.binary}, arguments...)...)
	output, err := command.StdoutPipe()
	if err != nil {
		return process{}, err
	}
	keeper, ended, err := hang(command)
	if err != nil {
		return process{}, err
	}
	var pid int
	if _, err := fmt.Fscanln(output, &pid); err != nil {
		_ = keeper.Close()
		return process{}, fmt.Errorf("its process id: %w", err)
	}
	return process{pid: pid, keeper: keeper, ended: ended}, nil
}

// folder returns a server's data folder.
func (p place) folder(tb testing.TB) string {
	tb.Helper()
	if p.container != "" {
		return fmt.Sprintf("/tmp/redistest-%d-%d", os.Getpid(), serial.Add(1))
	}
	return tb.TempDir()
}

func (p place) lastWords(dir string) string {
	log, err := os.ReadFile(filepath.Join(dir, "redis.log"))
	if p.container != "" || err != nil {
		return "see its log"
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}

func (p process) gone() bool {
	if p.container != "" {
		return p.signal(0) != nil
	}
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// kill ends the process, if there is one, and waits until it has ended.
func (p process) kill() {
	switch {
	case p.pid == 0:
	case p.container != "":
		script := fmt.Sprintf("kill -KILL %d && while kill -0 %d; do sleep 0.01; done", p.pid, p.pid)
		_, _ = docker("exec", p.container, "sh", "-c", script) // fails if the container has ended
	default:
		_ = p.keeper.Close()
		<-p.ended
	}
}

func (p process) signal(signal syscall.Signal) error {
	if p.container != "" {
		// Images may lack kill.
		_, err := docker("exec", p.container, "sh", "-c", fmt.Sprintf("kill -%d %d", signal, p.pid))
		return err
	}
	return syscall.Kill(p.pid, signal)
}

// Freeze stops the server like a stalled machine: connections stay open, and it does not reply.
func (s *Server) Freeze(tb testing.TB) {
	tb.Helper()
	kit.Check(tb, s.process.signal(syscall.SIGSTOP))
}

// Thaw resumes a frozen server. It then handles the requests received in between.
func (s *Server) Thaw(tb testing.TB) {
	tb.Helper()
	kit.Check(tb, s.process.signal(syscall.SIGCONT))
}
