package cli_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/test/kit"
)

// hangs is set in the process that ignores the end of its context.
const hangs = "CLI_TEST_HANGS"

func TestMain(m *testing.M) {
	if os.Getenv(hangs) == "" {
		os.Exit(m.Run())
	}
	os.Exit(cmdline.Main(func(ctx context.Context, _ []string, _ io.Reader, out, _ io.Writer) int {
		_, _ = fmt.Fprintln(out, "started")
		<-ctx.Done()
		time.Sleep(100 * time.Millisecond) // until Main listens to signals no more
		_, _ = fmt.Fprintln(out, "stopping")
		select {}
	}))
}

// TestSignals: the first signal ends the context. A later SIGTERM or SIGINT ends the process, a SIGHUP does
// not.
func TestSignals(t *testing.T) {
	t.Parallel()
	const hup, sigint, term = syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM
	for _, test := range []struct {
		name           string
		command        []string
		before, during []syscall.Signal // sent before the program stops, and while it does
		want           syscall.Signal   // that ends the process
	}{
		{"Ctrl-C twice", nil, []syscall.Signal{sigint}, []syscall.Signal{sigint}, sigint},
		{"an orchestrator", nil, []syscall.Signal{term}, []syscall.Signal{term}, term},
		{"a closed terminal", nil, []syscall.Signal{hup}, []syscall.Signal{hup, hup, term}, term},
		{"systemd with SendSIGHUP", nil, []syscall.Signal{term}, []syscall.Signal{hup, sigint}, sigint},
		{"nohup", []string{"nohup"}, []syscall.Signal{hup, hup, term}, []syscall.Signal{hup, sigint}, sigint},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			line := append(test.command, os.Args[0])
			program := exec.CommandContext(t.Context(), line[0], line[1:]...)
			program.Env = append(os.Environ(), hangs+"=1")
			out, err := program.StdoutPipe()
			kit.Check(t, err)
			kit.Check(t, program.Start())
			lines := bufio.NewScanner(out)
			for _, step := range []struct {
				line string
				then []syscall.Signal
			}{{"started", test.before}, {"stopping", test.during}} {
				if !lines.Scan() || lines.Text() != step.line {
					t.Fatalf("%q, expected %q", lines.Text(), step.line)
				}
				for i, signal := range step.then {
					if i > 0 {
						time.Sleep(50 * time.Millisecond) // so that it is not taken together with the last one
					}
					kit.Check(t, program.Process.Signal(signal))
				}
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = program.Wait() // fails, because a signal ends the process
			}()
			select {
			case <-ended:
			case <-time.After(kit.Patience):
				t.Fatal("the last signal does not end the process")
			}
			if status := program.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != test.want {
				t.Errorf("%v ended the process, expected %v", status.Signal(), test.want)
			}
		})
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct {
		code   int
		errOut string
	}{
		"":                {0, ""},
		"fail":            {1, "p: no luck\n"},
		"unsent":          {3, ""},
		"one -h":          {0, ""},
		"one x -h":        {0, ""},
		"help one":        {0, ""},
		"nonsense":        {2, `p: unknown command "nonsense"; see "p -h"` + "\n"},
		"below nonsense":  {2, `p: unknown command "nonsense"; see "p below -h"` + "\n"},
		"below last x":    {2, `p: unexpected argument "x"; see "p below last -h"` + "\n"},
		"one help":        {0, ""}, // an argument
		"one -n x":        {2, `p: invalid value "x" for flag -n: strconv.ParseInt: parsing "x": invalid syntax; see "p one -h"` + "\n"},
		"one -nonsense":   {2, `p: flag provided but not defined: -nonsense; see "p one -h"` + "\n"},
		"below -nonsense": {2, `p: flag provided but not defined: -nonsense; see "p below -h"` + "\n"},
	} {
		var out, errOut strings.Builder
		arguments := append([]string{"p"}, strings.Fields(line)...)
		code := cmdline.Run(t.Context(), program(), arguments, strings.NewReader(""), &out, &errOut)
		if code != want.code || errOut.String() != want.errOut {
			t.Errorf("%q: exit code %d, %q; expected %d, %q", line, code, errOut.String(), want.code, want.errOut)
		}
		if code == cmdline.ExitUsage && out.Len() > 0 {
			t.Errorf("%q: standard output has\n%s", line, out.String())
		}
	}
}

func program() *cli.Command {
	returns := func(err error) cli.ActionFunc { return func(context.Context, *cli.Command) error { return err } }
	return cmdline.Program(&cli.Command{Name: "p", Commands: []*cli.Command{
		{Name: "fail", Action: returns(errors.New("no luck"))},
		{Name: "unsent", Action: returns(cli.Exit("", 3))},
		{Name: "one", ArgsUsage: "X", Flags: []cli.Flag{&cli.IntFlag{Name: "n"}}, Action: returns(nil)},
		{Name: "below", Commands: []*cli.Command{{Name: "last", Action: returns(nil)}}},
	}})
}
