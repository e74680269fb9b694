package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	cmdline "notifier/internal/cli"
	"notifier/internal/settings"
	"notifier/test/kit"
)

// TestMain lets the scripts run notifier-dev as a command of its own process, and no test leave a goroutine
// behind.
func TestMain(m *testing.M) {
	testscript.Main(hermetic{m}, map[string]func(){"notifier-dev": main})
}

// hermetic unsets all notifier settings before the tests run.
type hermetic struct{ *testing.M }

func (h hermetic) Run() int {
	for _, variable := range settings.Variables() {
		_ = os.Unsetenv(variable.Name)
		_ = os.Unsetenv(variable.Name + "_FILE")
	}
	code := h.M.Run()
	if err := goleak.Find(kit.NATSServerEnds()...); err != nil && code == 0 {
		fmt.Fprintf(os.Stderr, "goroutines are left: %v\n", err)
		return 1
	}
	return code
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": kit.Exits,
		},
		Setup: func(env *testscript.Env) error {
			// else each process that is built with -race waits a second for late reports
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
	})
}

// command is notifier-dev while it runs beside a test, in the test's process.
type command struct {
	out, errOut kit.Output
	stop        context.CancelFunc
	code        chan int
}

// start starts a command, which the test ends.
func start(t *testing.T, arguments ...string) *command {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &command{stop: cancel, code: make(chan int, 1)}
	t.Cleanup(func() {
		cancel()
		if t.Failed() {
			t.Logf("%q:\n%s%s", arguments, c.out.String(), c.errOut.String())
		}
	})
	go func() {
		c.code <- run(ctx, slices.Concat([]string{"notifier-dev"}, arguments), strings.NewReader(""), &c.out, &c.errOut)
	}()
	return c
}

// ends waits for the end, and expects an exit code.
func (c *command) ends(t *testing.T, want int) {
	t.Helper()
	select {
	case got := <-c.code:
		if got != want {
			t.Errorf("exit code %d, expected %d", got, want)
		}
	case <-time.After(kit.Patience):
		t.Fatal("it does not end")
	}
}

// interrupt is Ctrl-C.
func (c *command) interrupt(t *testing.T) {
	t.Helper()
	c.stop()
	c.ends(t, cmdline.ExitDone)
}
