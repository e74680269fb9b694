package redistest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"notifier/test/kit"
)

// Servers that start slowly, or that hundreds of tests need, are reused by the tests of a binary: the
// container, the Clusters of NOTIFIER_TEST_REDIS=cluster, and the servers of EachStore. They end with the
// binary, even if it is killed, because they depend on pipes that only the binary holds open.
var (
	shared struct {
		sync.Mutex
		container string
		failed    string // why there is no container
		folder    string // of the servers
		clusters  []*Cluster
		servers   []*Server
	}
	serial atomic.Int64
)

// sharedContainer is a container in which servers are started. It has the host's network, so that a server
// that binds to the loopback address there is reached here, by the very address that it announces.
func sharedContainer(tb testing.TB, image string) place {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.container == "" && shared.failed == "" {
		name := fmt.Sprintf("notifier-redistest-%d-%d", os.Getpid(), time.Now().UnixNano())
		if err := startContainer(name, image); err != nil {
			shared.failed = err.Error()
		} else {
			shared.container = name
		}
	}
	if shared.failed != "" {
		tb.Fatalf("%s=%s%s: %s", variable, imagePrefix, image, shared.failed)
	}
	binary := "redis-server"
	if strings.Contains(image, "valkey") {
		binary = "valkey-server"
	}
	return place{container: shared.container, binary: binary}
}

// startContainer runs a container until the end of this process.
func startContainer(name, image string) error {
	command := exec.Command(
		"docker",
		"run",
		"--rm",
		"-i",
		"--init",
		"--network",
		"host",
		"--name",
		name,
		"--entrypoint",
		"sh",
		image,
		"-c",
		"cat >/dev/null",
	)
	var printed bytes.Buffer
	command.Stderr = &printed
	_, ended, err := hang(command)
	if err != nil {
		return err
	}
	return within(startDeadline, func() error {
		select {
		case <-ended:
			return fmt.Errorf("%w: %s", errGone, strings.TrimSpace(printed.String()))
		default:
			_, err := docker("exec", name, "true")
			return err
		}
	})
}

// hang starts a command whose standard input ends when input is closed, or with this process. ended is closed
// when the command has ended.
func hang(command *exec.Cmd) (input io.Closer, ended <-chan struct{}, err error) {
	input, err = command.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := command.Start(); err != nil {
		return nil, nil, err
	}
	done := make(chan struct{})
	go func() {
		_ = command.Wait() // its error is only how it was ended
		close(done)
	}()
	return input, done, nil
}

// borrow lends an empty store to one test: one that an earlier test returned, or a new one. It empties the
// store when the test ends.
func borrow[T interface{ empty() error }](tb testing.TB, left *[]T, start func(testing.TB) T) T {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	var borrowed T
	if n := len(*left); n > 0 {
		borrowed, *left = (*left)[n-1], (*left)[:n-1]
	} else {
		borrowed = start(outlive(tb))
	}
	tb.Cleanup(func() {
		if borrowed.empty() == nil { // else it is left to the end of the binary
			shared.Lock()
			*left = append(*left, borrowed)
			shared.Unlock()
		}
	})
	return borrowed
}

// borrowCluster is an empty Cluster for one test.
func borrowCluster(tb testing.TB) *Cluster {
	tb.Helper()
	where, _ := findPlace(tb)
	return borrow(tb, &shared.clusters, func(tb testing.TB) *Cluster { return startCluster(tb, where, 3, nil) })
}

// borrowServer is an empty server for one test that neither stops it nor changes its settings.
func borrowServer(tb testing.TB, where place) *Server {
	tb.Helper()
	return borrow(
		tb,
		&shared.servers,
		func(tb testing.TB) *Server { return startServer(tb, where, standalone, nil) },
	)
}

// outliving is a test with servers that outlive it.
type outliving struct{ testing.TB }

// outlive makes a folder for the servers that outlive their tests, once. It is removed when the test binary
// ends.
func outlive(tb testing.TB) *outliving {
	tb.Helper()
	if shared.folder == "" {
		folder, err := os.MkdirTemp("", "redistest-")
		kit.Check(tb, err)
		_, _, err = hang(exec.Command("sh", "-c", `cat >/dev/null; rm -rf "$1"`, "sh", folder))
		kit.Check(tb, err)
		shared.folder = folder
	}
	return &outliving{tb}
}

func (o *outliving) Cleanup(func()) {}

func (o *outliving) TempDir() string {
	dir, err := os.MkdirTemp(shared.folder, "server-")
	kit.Check(o, err)
	return dir
}

// docker runs a docker command and returns its output. The error includes its standard error.
func docker(arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startDeadline)
	defer cancel()
	command := exec.CommandContext(ctx, "docker", arguments...)
	var out, printed bytes.Buffer
	command.Stdout, command.Stderr = &out, &printed
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", arguments[0], err, strings.TrimSpace(printed.String()))
	}
	return strings.TrimSpace(out.String()), nil
}
