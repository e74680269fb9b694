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

	"notifier/internal/testkit"
)

// What takes seconds to start is started once and serves many tests of a binary, one after the other: the container,
// and the Clusters of NOTIFIER_TEST_REDIS=cluster. It ends with the binary, even one that is killed: everything hangs
// on pipes that only the binary holds open.
var (
	shared struct {
		sync.Mutex
		container string
		failed    string // why there is no container
		clusters  []*Cluster
	}
	serial atomic.Int64
)

// sharedContainer is a container in which servers are started. It has the host's network, so that a server that binds
// to the loopback address there is reached here, by the very address that it announces.
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
	command := exec.Command("docker", "run", "--rm", "-i", "--init", "--network", "host", "--name", name, "--entrypoint", "sh", image, "-c", "cat >/dev/null")
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

// hang starts a command whose standard input ends when it is closed, or with this process. ended is closed when the
// command has ended.
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

// borrowCluster is an empty Cluster for one test.
func borrowCluster(tb testing.TB) *Cluster {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	var c *Cluster
	if n := len(shared.clusters); n > 0 {
		c, shared.clusters = shared.clusters[n-1], shared.clusters[:n-1]
	} else {
		where, _ := findPlace(tb)
		c = sharedCluster(tb, where)
	}
	tb.Cleanup(func() {
		if c.empty() == nil { // else it is left to the end of the binary
			shared.Lock()
			shared.clusters = append(shared.clusters, c)
			shared.Unlock()
		}
	})
	return c
}

// sharedCluster starts a Cluster that ends with the test binary.
func sharedCluster(tb testing.TB, where place) *Cluster {
	tb.Helper()
	root, err := os.MkdirTemp("", "redistest-cluster-")
	testkit.Check(tb, err)
	tidy := exec.Command("sh", "-c", `cat >/dev/null; rm -rf "$1"`, "sh", root)
	if _, _, err := hang(tidy); err != nil {
		tb.Fatal(err)
	}
	return startCluster(&outliving{TB: tb, root: root}, where, 3, nil)
}

// outliving is a test whose servers do not end with it.
type outliving struct {
	testing.TB
	root string
}

func (o *outliving) Cleanup(func()) {}

func (o *outliving) TempDir() string {
	dir, err := os.MkdirTemp(o.root, "node-")
	testkit.Check(o, err)
	return dir
}

// docker runs a docker command and returns what it prints. The error has its standard error.
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
