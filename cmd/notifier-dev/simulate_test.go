package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	cmdline "notifier/internal/cli"
	"notifier/test/kit"
)

// TestSimulateAWorkersLog: simulate reads a worker's log unchanged. Under the worker's limits it reproduces
// the outcome of every event.
func TestSimulateAWorkersLog(t *testing.T) {
	for name, value := range map[string]string{
		"LIMIT_CATEGORY": "3/1h", "LIMIT_GLOBAL": "5/1h", "LOG_FORMAT": "json", "ADMIN_ADDR": "",
	} {
		t.Setenv(name, value)
	}
	worker := start(t, "dev")
	for i, category := range []string{"errors", "errors", "errors", "errors", "deploys", "deploys", "deploys", "errors"} {
		publish(t, worker, "notify."+category, fmt.Sprint(i))
		// One after the other: the log has them in the order in which they were settled.
		kit.Eventually(t, "it is settled", func() bool { return len(worker.out.Lines(`"msg":"notification `)) == i+1 })
	}
	worker.interrupt(t)
	logged := worker.out.Lines(`"msg":"notification `)
	log := filepath.Join(t.TempDir(), "worker.log")
	kit.Check(t, os.WriteFile(log, []byte(strings.Join(worker.out.Lines("{"), "\n")), 0o600))
	var out, errOut kit.Output
	if code := run(t.Context(), []string{"notifier-dev", "simulate", "-json", "-category", "3/1h", "-global", "5/1h", log}, strings.NewReader(""), &out, &errOut); code != cmdline.ExitDone {
		t.Fatalf("exit code %d: %s", code, errOut.String())
	}
	simulated := out.Lines("")
	if len(logged) != 8 || len(simulated) != len(logged) {
		t.Fatalf("%d events in the log and %d verdicts, expected 8", len(logged), len(simulated))
	}
	for i := range logged {
		was, is := fieldsOf(t, logged[i]), fieldsOf(t, simulated[i])
		for fields, name := range map[*map[string]any]string{&was: "ts", &is: "time"} {
			at, err := time.Parse(time.RFC3339Nano, (*fields)[name].(string))
			kit.Check(t, err)
			(*fields)["at"] = at.UnixMicro()
		}
		for _, field := range []string{"at", "event_id", "category", "outcome", "reason", "limit"} {
			if was[field] != is[field] {
				t.Errorf("%s: %v was logged and %v is simulated:\n%s\n%s", field, was[field], is[field], logged[i], simulated[i])
			}
		}
	}
}

// fieldsOf reads a line of JSON.
func fieldsOf(t *testing.T, line string) map[string]any {
	t.Helper()
	var fields map[string]any
	kit.Check(t, json.Unmarshal([]byte(line), &fields))
	return fields
}

// TestSimulateInterrupted: Ctrl-C ends a simulation at once with exit code 1, so a partial table is not
// mistaken for a result.
func TestSimulateInterrupted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		arguments []string
		events    int
		begun     func(out string) bool
	}{
		"while nobody types": {nil, 0, func(string) bool { return true }},
		"while it decides":   {[]string{"-json"}, 50_000, func(out string) bool { return out != "" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keyboard, typed := io.Pipe()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var out, errOut kit.Output
			code := make(chan int, 1)
			go func() {
				code <- run(ctx, append([]string{"notifier-dev", "simulate"}, test.arguments...), keyboard, &out, &errOut)
			}()
			if test.events > 0 {
				var text strings.Builder
				for i := range test.events {
					fmt.Fprintf(&text, "{\"time\":\"2026-11-20T04:%02d:01.%06dZ\",\"category\":\"errors\"}\n", i/1000, i%1000)
				}
				if _, err := io.WriteString(typed, text.String()); err != nil {
					t.Fatal(err)
				}
				_ = typed.Close()
			}
			kit.Eventually(t, "it has begun", func() bool { return test.begun(out.String()) })
			cancel()
			if got := <-code; got != cmdline.ExitFailed {
				t.Errorf("exit code %d, expected 1", got)
			}
			if got := errOut.String(); !strings.HasSuffix(got, "notifier-dev: interrupted\n") {
				t.Errorf("%q on stderr, expected that it was interrupted", got)
			}
			if got := len(out.Lines("")); got >= test.events && got > 0 {
				t.Errorf("%d verdicts, expected that it ended before", got)
			}
			_ = typed.Close() // as the end of the process does
		})
	}
}

// A terminal shows once a second how far a replay is.
func TestSimulateProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var shown, short strings.Builder
		p := progress{out: &shown, total: 8, last: time.Now()}
		for range 8 {
			time.Sleep(300 * time.Millisecond) // of synctest's clock
			p.advance()
		}
		p.erase()
		if got := shown.String(); got != "\r4 of 8 events decided\r8 of 8 events decided\r\x1b[K" {
			t.Errorf("%q, expected two lines and their end", got)
		}
		p = progress{out: &short, total: 1, last: time.Now()} // of a replay of less than a second
		p.advance()
		p.erase()
		if short.Len() > 0 {
			t.Errorf("a short replay shows %q, expected nothing", short.String())
		}
	})
}
