package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"notifier/internal/settings"
	"notifier/test/kit"
)

// TestMain lets the scripts run notifier as a command of its own process, and no test leave a goroutine
// behind.
func TestMain(m *testing.M) {
	testscript.Main(hermetic{m}, map[string]func(){"notifier": main})
}

// hermetic unsets all notifier settings before the tests run.
type hermetic struct{ *testing.M }

// atTheEnd holds cleanups that run after all tests, last one first.
var atTheEnd []func()

func (h hermetic) Run() int {
	kit.Overlap(6) // here and not before: a process that runs as notifier has flags of its own
	for _, variable := range settings.Variables() {
		_ = os.Unsetenv(variable.Name)
		_ = os.Unsetenv(variable.Name + "_FILE")
	}
	var err error
	if programs, err = os.MkdirTemp("", "notifier-programs-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(programs) }()
	code := h.M.Run()
	for _, end := range slices.Backward(atTheEnd) {
		end()
	}
	if err := goleak.Find(kit.NATSServerEnds()...); err != nil && code == 0 {
		fmt.Fprintf(os.Stderr, "goroutines are left: %v\n", err)
		return 1
	}
	return code
}

// raceExit spares each process that is built with -race its second of waiting for late reports.
const raceExit = "atexit_sleep_ms=0"

func TestScripts(t *testing.T) {
	t.Parallel()
	commands := map[string]func(ts *testscript.TestScript, neg bool, args []string){
		"exits": kit.Exits, "answers": answers, "nobody": nobody, "printf": printf,
		"asks": asks, "behaves": behaves,
	}
	maps.Copy(commands, serverCommands)
	developers.Build(t, programs)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                commands,
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", raceExit)
			env.Setenv("PATH", env.Getenv("PATH")+string(os.PathListSeparator)+programs) // for notifier-dev
			return nil
		},
	})
}

// Starts a stub of a worker's admin server and sets ADMIN_ADDR to its address. The stub returns STATUS and
// BODY for /readyz.
func answers(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: answers STATUS BODY")
	}
	status, err := strconv.Atoi(args[0])
	ts.Check(err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, strings.ReplaceAll(args[1], `\n`, "\n")+"\n")
	}))
	ts.Defer(server.Close)
	ts.Setenv("ADMIN_ADDR", server.Listener.Addr().String())
}

// Sets each named variable to an address without a listener. No test listens on port 1.
func nobody(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		ts.Setenv(name, "127.0.0.1:1")
	}
}

// printf writes a file with bytes that a txtar archive cannot hold: printf FILE 'one\r\n\r\ntwo'.
func printf(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: printf FILE TEXT")
	}
	text := strings.NewReplacer(`\r`, "\r", `\n`, "\n", `\xff`, "\xff", `\xef\xbb\xbf`, "\uFEFF").Replace(args[1])
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}
