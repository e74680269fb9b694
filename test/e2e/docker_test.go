//go:build e2e

// Package e2e runs docker-compose.yml with its overrides: it builds the images, starts replicas, publishes
// bursts, kills and stops containers, and compares the logs with the inbox of a fake Slack.
//
//	go test -tags e2e -count=1 -timeout 20m ./test/e2e
//
// It needs a Docker engine with the compose plugin. Every project has its own name, passwords and free ports
// on the loopback address, is removed with its volumes at the end, and reads neither .env nor settings from
// the caller's environment.
package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"notifier/internal/devstack/https"
	"notifier/test/kit"
)

// releaseVersion is the version that the images are built with.
const releaseVersion = "v0.0.0-e2e"

// How long things may take, on a slow machine too.
const (
	buildDeadline    = 20 * time.Minute // all modules are compiled, beside the other checks of the gate
	commandDeadline  = 2 * time.Minute
	waitDeadline     = 90 * time.Second
	teardownDeadline = time.Minute
	pollEvery        = 100 * time.Millisecond
)

// The overrides of docker-compose.yml. slackFile is the tests' own: a fake Slack beside the real services.
const (
	demoFile          = "deploy/demo.yml"
	observabilityFile = "deploy/observability.yml"
	slackFile         = "test/e2e/fake-slack.yml"
)

// publishedPorts are the variables with ports of this machine.
var publishedPorts = []string{
	"NATS_PORT", "NOTIFIER_PORTS", "DEMO_NATS_PORT", "DEMO_NOTIFIER_PORTS", "FAKE_SLACK_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT",
}

// inherited lists the variables of the caller that a docker client may need. notifier's settings are not
// among them.
var inherited = []string{
	"PATH", "HOME", "TMPDIR", "XDG_RUNTIME_DIR", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH",
	"DOCKER_TLS_VERIFY", "DOCKER_API_VERSION", "DOCKER_BUILDKIT", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "GOPROXY", "GOSUMDB",
}

// engine runs docker commands for all tests.
type engine struct {
	ctx         context.Context
	environment []string
	production  string // image names
	demo        string
	client      *http.Client // trusts the fake Slack of slackFile
}

// TestCompose builds the images once and runs everything that needs them.
func TestCompose(t *testing.T) {
	// so that Ctrl-C tears down
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	t.Cleanup(stop)
	// Teardown needs time before go test's own deadline, which skips it.
	if deadline, ok := t.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-2*teardownDeadline))
		t.Cleanup(cancel)
	}
	tag := fmt.Sprintf("e2e-%d", os.Getpid())
	e := &engine{ctx: ctx, production: "notifier:" + tag, demo: "notifier-demo:" + tag}
	for _, name := range inherited {
		if value, set := os.LookupEnv(name); set {
			e.environment = append(e.environment, name+"="+value)
		}
	}
	e.environment = append(e.environment, "NOTIFIER_IMAGE="+e.production, "NOTIFIER_DEMO_IMAGE="+e.demo, "NOTIFIER_VERSION="+releaseVersion)
	certificate, err := https.SelfSigned("fake-slack", "127.0.0.1")
	kit.Check(t, err)
	file := filepath.Join(t.TempDir(), "slack.pem")
	kit.Check(t, certificate.Save(file))
	kit.Check(t, os.Chmod(file, 0o644)) // for the users of the containers
	kit.Check(t, os.Chmod(filepath.Dir(file), 0o755))
	e.environment = append(e.environment, "FAKE_SLACK_CERTIFICATE="+file)
	e.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: certificate.Pool()}}}
	t.Cleanup(e.client.CloseIdleConnections)
	for _, port := range publishedPorts {
		e.environment = append(e.environment, port+"=0") // the engine picks a free one
	}
	if _, err := e.run(ctx, commandDeadline, "docker", "compose", "version"); err != nil {
		t.Fatalf("these tests need a Docker engine with the compose plugin: %v", err)
	}
	// One by one: the second finds most of its layers in the cache.
	for _, overrides := range [][]string{nil, {demoFile}} {
		if _, err := e.project(t, "build", overrides).try(buildDeadline, "build", "notifier"); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if _, err := e.run(context.Background(), teardownDeadline, "docker", "image", "rm", "-f", e.production, e.demo); err != nil {
			t.Errorf("remove the images: %v", err)
		}
	})

	t.Run("settings", func(t *testing.T) { testSettings(t, e) })
	t.Run("images", func(t *testing.T) { testImages(t, e) })
	t.Run("kill", func(t *testing.T) { testKill(t, e) })
	// These wait more than they compute.
	for name, test := range map[string]func(*testing.T, *engine){
		"operating": testOperating, "upgrade": testUpgrade, "cli": testCli, "demo": testDemo,
		"team": testTeam, "prometheus": testPrometheus, "grafana": testGrafana,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, e)
		})
	}
}

// run runs a command without standard input and returns its standard output. The error has both outputs.
func (e *engine) run(ctx context.Context, deadline time.Duration, command ...string) (string, error) {
	return e.runWith(ctx, deadline, e.environment, command...)
}

func (e *engine) runWith(ctx context.Context, deadline time.Duration, environment []string, command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = "../.."
	cmd.Env = environment
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // docker compose tidies up on it
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		return out.String(), &commandError{command: command, code: cmd.ProcessState.ExitCode(), said: lastLines(out.String()+errOut.String(), 40), err: err}
	}
	return out.String(), nil
}

// commandError is a command that did not exit with 0.
type commandError struct {
	command []string
	code    int
	said    string
	err     error
}

func (e *commandError) Error() string {
	return fmt.Sprintf("%s: %v\n%s", strings.Join(e.command, " "), e.err, e.said)
}

func (e *commandError) Unwrap() error { return e.err }

// exitOf gives the exit code and the output of a command that is expected to fail.
func exitOf(t *testing.T, err error) (code int, said string) {
	t.Helper()
	var failed *commandError
	if !errors.As(err, &failed) {
		t.Fatalf("the command exited with 0 (%v), expected a failure", err)
	}
	return failed.code, failed.said
}

// docker runs a docker command that must succeed.
func (e *engine) docker(t *testing.T, arguments ...string) string {
	t.Helper()
	out, err := e.run(e.ctx, commandDeadline, append([]string{"docker"}, arguments...)...)
	kit.Check(t, err)
	return strings.TrimSpace(out)
}

// until calls look until it is done. A timeout fails with the last observation.
func (e *engine) until(t *testing.T, what string, look func() (done bool, saw string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, waitDeadline)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		done, saw := look()
		if done {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("waiting until %s: %v; at last: %s", what, ctx.Err(), saw)
		}
	}
}

func lastLines(text string, count int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-count):], "\n")
}
