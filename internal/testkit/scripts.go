package testkit

import (
	"errors"
	"os/exec"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// Exits is a script's command that runs another one and expects an exit code: exits 2 notifier nonsense.
func Exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARGUMENT...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		got = failed.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, expected %d", got, want)
	}
}

// Aligned is a script's command that expects of a file (or stdout) with a help that the second column of indented lines begins
// at one place in each section.
func Aligned(ts *testscript.TestScript, neg bool, args []string) {
	section, at := "", map[string]int{}
	for _, line := range strings.Split(ts.ReadFile(args[0]), "\n") {
		if !strings.HasPrefix(line, "   ") {
			section = line
			continue
		}
		if section != "Flags:" && section != "Commands:" {
			continue
		}
		gap := strings.Index(line[3:], "   ") + 3
		column := gap + len(line[gap:]) - len(strings.TrimLeft(line[gap:], " "))
		if gap < 3 || at[section] != 0 && at[section] != column {
			ts.Fatalf("not aligned: %q", line)
		}
		at[section] = column
	}
	if at["Flags:"] == 0 {
		ts.Fatalf("no flags are shown")
	}
}
