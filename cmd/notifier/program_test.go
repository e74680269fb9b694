//go:build !production

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"notifier/internal/testkit"
)

// output is what a program has written so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// lines are the complete lines that hold all of the texts.
func (o *output) lines(texts ...string) []string {
	var found []string
	for line := range strings.Lines(o.String()) {
		holds := strings.HasSuffix(line, "\n")
		for _, text := range texts {
			holds = holds && strings.Contains(line, text)
		}
		if holds {
			found = append(found, strings.TrimSuffix(line, "\n"))
		}
	}
	return found
}

// program is notifier in this process, as main runs it.
type program struct {
	out, errOut output
	stop        context.CancelFunc // what SIGTERM does
	code        chan int
}

// start runs a command line until stop, or until the test ends.
func start(t *testing.T, arguments ...string) *program {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &program{stop: cancel, code: make(chan int, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.code <- run(ctx, append([]string{"notifier"}, arguments...), strings.NewReader(""), &p.out, &p.errOut)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if t.Failed() {
			t.Logf("notifier %s:\n%s%s", strings.Join(arguments, " "), p.out.String(), p.errOut.String())
		}
	})
	return p
}

// ends waits for the exit code.
func (p *program) ends(t *testing.T, want int) {
	t.Helper()
	select {
	case got := <-p.code:
		if got != want {
			t.Errorf("exit code %d, expected %d", got, want)
		}
	case <-time.After(testkit.Patience):
		t.Fatalf("it does not end")
	}
}

// process is notifier in a process of its own, with an environment of its own.
type process struct {
	out, errOut output
	command     *exec.Cmd
	ended       chan struct{}
}

// spawn starts a binary; with "notifier" it is this test's own, which runs main.
func spawn(t *testing.T, binary string, settings map[string]string, arguments ...string) *process {
	t.Helper()
	p := &process{command: exec.Command(binary, arguments...), ended: make(chan struct{})}
	p.command.Env = []string{"GORACE=" + raceExit}
	for name, value := range settings {
		p.command.Env = append(p.command.Env, name+"="+value)
	}
	p.command.Stdout, p.command.Stderr = &p.out, &p.errOut
	testkit.Check(t, p.command.Start())
	go func() {
		defer close(p.ended)
		_ = p.command.Wait() // the exit code says it too
	}()
	t.Cleanup(func() {
		_ = p.command.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("notifier %s:\n%s%s", strings.Join(arguments, " "), p.out.String(), p.errOut.String())
		}
	})
	return p
}

// code waits for the exit code.
func (p *process) code(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(testkit.Patience):
		t.Fatalf("it does not end")
	}
	return p.command.ProcessState.ExitCode()
}

// terminate is what an orchestrator does.
func (p *process) terminate(t *testing.T) {
	t.Helper()
	testkit.Check(t, p.command.Process.Signal(syscall.SIGTERM))
}

// get asks a server; status 0: nobody answers.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testkit.Patience}
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
	testkit.Eventually(t, "the admin server listens", func() bool { return len(out.lines("admin server listens")) == 1 })
	return "http://" + logLine(t, out.lines("admin server listens")[0])["addr"].(string)
}

// readyURL is where the admin server of a worker listens that is ready: before that its status may be unknown, and there may be no
// stream to publish to.
func readyURL(t *testing.T, out *output) string {
	t.Helper()
	url := adminURL(t, out)
	testkit.Eventually(t, "ready", func() bool {
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
