package main

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	cmdline "notifier/internal/cli"
	"notifier/test/kit"
)

// Exit codes, with exitUnsent.
const (
	exitDone   = cmdline.ExitDone
	exitFailed = cmdline.ExitFailed
	exitUsage  = cmdline.ExitUsage
)

// ephemeralAddr is any free port.
const ephemeralAddr = "127.0.0.1:0"

// output collects a program's output.
type output struct{ kit.Output }

func (o *output) lines(texts ...string) []string { return o.Lines(texts...) }

// process is notifier in a process of its own, with an environment of its own.
type process struct {
	out, errOut output
	command     *exec.Cmd
	ended       <-chan struct{}
}

// start starts this test's own binary, which runs main, with these variables and no others. It ends with the
// test.
func start(t *testing.T, env map[string]string, arguments ...string) *process {
	t.Helper()
	return startCommand(t, exec.Command("notifier", arguments...), env)
}

// startCommand starts notifier as a command that says which binary it is and, where the test wants that, from
// where it reads and where it writes.
func startCommand(t *testing.T, command *exec.Cmd, env map[string]string) *process {
	t.Helper()
	p := &process{command: command}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s:\n%s%s", strings.Join(command.Args, " "), p.out.String(), p.errOut.String())
		}
		// one that is killed has no exit code of its own
		if strings.Contains(p.errOut.String(), "WARNING: DATA RACE") {
			t.Errorf("%s:\n%s", strings.Join(command.Args, " "), p.errOut.String())
		}
	})
	command.Env = []string{"GORACE=" + raceExit}
	for name, value := range env {
		command.Env = append(command.Env, name+"="+value)
	}
	if command.Stdout == nil {
		command.Stdout = &p.out
	}
	if command.Stderr == nil {
		command.Stderr = &p.errOut
	}
	var err error
	p.ended, err = kit.StartWithTest(t, command)
	kit.Check(t, err)
	return p
}

// code waits for the exit code.
func (p *process) code(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(kit.Patience):
		t.Fatalf("it does not end")
	}
	return p.command.ProcessState.ExitCode()
}

// ends waits for the end, and expects an exit code.
func (p *process) ends(t *testing.T, want int) {
	t.Helper()
	if got := p.code(t); got != want {
		t.Errorf("exit code %d, expected %d", got, want)
	}
}

// terminate sends SIGTERM, as an orchestrator does.
func (p *process) terminate(t *testing.T) {
	t.Helper()
	kit.Check(t, p.command.Process.Signal(syscall.SIGTERM))
}

// runToEnd runs a command, checks its exit code, and returns its output.
func runToEnd(t *testing.T, env map[string]string, code int, arguments ...string) (out, errOut string) {
	t.Helper()
	p := start(t, env, arguments...)
	p.ends(t, code)
	return p.out.String(), p.errOut.String()
}

// eventuallySays reruns a command until expected accepts its standard output, and returns that output.
func eventuallySays(
	t *testing.T, what string, env map[string]string, arguments []string, expected func(out string) bool,
) (out string) {
	t.Helper()
	kit.Eventually(t, what, func() bool {
		if out, _ = runToEnd(t, env, exitDone, arguments...); expected(out) {
			return true
		}
		time.Sleep(betweenCommands)
		return false
	})
	return out
}

// with is an environment with some variables changed or added.
func with(env, changed map[string]string) map[string]string {
	merged := maps.Clone(env)
	maps.Copy(merged, changed)
	return merged
}

// get returns status 0 and the error text if the request fails.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: kit.Patience}
	response, err := client.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(content)
}

// adminURL waits for the log line with the address of the admin server.
func adminURL(t *testing.T, out *output) string {
	t.Helper()
	kit.Eventually(t, "the admin server listens", func() bool { return len(out.lines("admin server listens")) == 1 })
	return "http://" + logLine(t, out.lines("admin server listens")[0])["addr"].(string)
}

// readyURL waits until the worker is ready and returns the URL of its admin server. Until then the worker's
// status may be unknown and its stream may be missing.
func readyURL(t *testing.T, out *output) string {
	t.Helper()
	url := adminURL(t, out)
	kit.Eventually(t, "ready", func() bool {
		status, _ := get(t, url+"/readyz")
		return status == http.StatusOK
	})
	return url
}

// logLine reads a line of the log.
func logLine(t *testing.T, line string) map[string]any {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(line), &fields); err != nil {
		t.Fatalf("%v in the line %q", err, line)
	}
	return fields
}
