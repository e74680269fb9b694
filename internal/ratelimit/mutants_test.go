//go:build mutants

package ratelimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/lua"
	"notifier/test/kit"
)

// A mutant is the product with one mistake. The tests of this package and of the scripts must fail on each
// (make mutants).
//
// The lists name mistakes by file: in «right¦wrong» the right text becomes the wrong one, and the words
// around it are there to be found exactly once. «right¦wrong¦wrong too» are two mistakes.
type mutant struct{ file, mistake, old, new string }

func allMutants() (all []mutant) {
	for _, mistakes := range []map[string][]string{scriptMistakes, goMistakes} {
		for _, file := range slices.Sorted(maps.Keys(mistakes)) {
			for _, line := range mistakes[file] {
				before, rest, _ := strings.Cut(line, "«")
				change, after, _ := strings.Cut(rest, "»")
				right, wrong, _ := strings.Cut(change, "¦")
				for _, wrong := range strings.Split(wrong, "¦") {
					all = append(all, mutant{file, strings.Replace(line, change, right+"¦"+wrong, 1), before + right + after, before + wrong + after})
				}
			}
		}
	}
	return all
}

// Each mutant has a deadline: one that makes a test hang is caught too.
const mutantDeadline = 90 * time.Second

// TestEveryMutantFits takes a second: run it after a change of the product.
func TestEveryMutantFits(t *testing.T) {
	for _, m := range allMutants() {
		if _, err := m.source("../.."); err != nil {
			t.Error(err)
		}
	}
}

// TestEveryMutantIsCaught runs some of them with -run, for example
// TestEveryMutantIsCaught/mutant/restore.lua.
func TestEveryMutantIsCaught(t *testing.T) {
	root, err := filepath.Abs("../..")
	kit.Check(t, err)
	if !t.Run("fits", TestEveryMutantFits) { // before the first is run
		return
	}
	if output, passed := runTests(t, root, "", ""); !passed {
		t.Fatalf("the tests fail without any mutant:\n%s", output)
	}

	var tried, caught atomic.Int32
	places := make(chan struct{}, runtime.GOMAXPROCS(0)) // -parallel is for tests that wait; these compute
	t.Run("mutant", func(t *testing.T) {
		for _, m := range allMutants() {
			t.Run(filepath.Base(m.file)+": "+m.mistake, func(t *testing.T) {
				t.Parallel()
				places <- struct{}{}
				defer func() { <-places }()
				tried.Add(1)
				by, err := m.run(t, root)
				kit.Check(t, err)
				caught.Add(1)
				fmt.Printf("caught  %-30s %-55s %s\n", m.file, m.mistake, by)
			})
		}
	})
	fmt.Printf("caught %d of %d\n", caught.Load(), tried.Load())
}

func (m mutant) source(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return "", fmt.Errorf("%s: %q is there %d times, expected once: fix the list of mutants", m.file, m.old, n)
	}
	return strings.Replace(string(text), m.old, m.new, 1), nil
}

var failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// run says what has caught the mutant.
func (m mutant) run(t *testing.T, root string) (by string, err error) {
	source, err := m.source(root)
	if err != nil {
		return "", err
	}
	mutated := filepath.Join(t.TempDir(), filepath.Base(m.file))
	if err := os.WriteFile(mutated, []byte(source), 0o600); err != nil {
		return "", err
	}
	output, passed := runTests(t, root, m.file, mutated)
	switch failed := failedTest.FindAllStringSubmatch(output, -1); {
	case passed:
		return "", errors.New("it survived")
	case len(failed) > 0:
		return failed[len(failed)-1][1], nil
	case strings.Contains(output, "panic: test timed out"):
		return "the deadline", nil
	default:
		return "", fmt.Errorf("no test has failed, and yet they do not pass:\n%s", output)
	}
}

// The tests are in short form, without those that need a while to start servers. Those that find most at the
// least cost come first: the examples on the embedded store, the histories on it, then everything on a
// server. A fixed seed finds the same each time.
const (
	left      = "TestEveryMutant|Cluster|Sentinel|Primary|Failover|Silent"
	histories = "^TestTheScriptsDecideLikeTheModel$"
	slow      = "^(TestNoStormIsRefused|TestRepeatedCallChargesOnce|TestTheScriptsDecideLikeTheModel)$"
)

var parts = [][]string{
	{"-test.run=/^embedded$", "-test.skip=" + left + "|" + slow},
	{"-test.run=" + histories + "/^embedded$", "-rapid.seed=1", "-rapid.checks=100"},
	{"-test.skip=" + left + "|" + slow},
	{"-test.run=" + slow},
}

// runTests runs the tests with a file replaced, or with none if it is empty: those of this package and, of a
// script, those of package lua. For a script nothing is compiled: this very program has the tests, and
// replaces the script when it starts.
func runTests(t *testing.T, root, file, mutated string) (output string, passed bool) {
	replaced := map[string]string{}
	if file != "" {
		replaced[filepath.Join(root, file)] = mutated
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	kit.Check(t, err)
	overlayFile := filepath.Join(t.TempDir(), "overlay.json")
	kit.Check(t, os.WriteFile(overlayFile, overlay, 0o600))
	program, err := os.Executable()
	kit.Check(t, err)
	ofGo := strings.HasSuffix(file, ".go")
	if ofGo {
		program = filepath.Join(t.TempDir(), "ratelimit.test")
		if output, passed = execute(t, root, nil, "go", "test", "-c", "-vet=off", "-overlay", overlayFile, "-o", program, "./internal/ratelimit"); !passed {
			return output, false
		}
	}
	for _, part := range parts {
		arguments := slices.Concat([]string{"-test.short", "-test.failfast", "-test.timeout=" + mutantDeadline.String(), "-rapid.nofailfile", "-rapid.shrinktime=0s"}, part)
		environment := []string{scriptVariable + "=" + file, mutatedVariable + "=" + mutated}
		if output, passed = execute(t, filepath.Join(root, "internal/ratelimit"), environment, program, arguments...); !passed {
			return output, false
		}
	}
	if !ofGo {
		output, passed = execute(t, root, nil, "go", "test", "-count=1", "-vet=off", "-overlay", overlayFile, "./lua")
	}
	return output, passed
}

// execute runs a program in a directory, with more in its environment.
func execute(t *testing.T, directory string, environment []string, program string, arguments ...string) (output string, passed bool) {
	ctx, cancel := context.WithTimeout(t.Context(), mutantDeadline+time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, program, arguments...)
	command.Dir = directory
	command.Env = append(os.Environ(), environment...)
	text, err := command.CombinedOutput()
	return string(text), err == nil
}

const (
	scriptVariable  = "NOTIFIER_TEST_MUTATED_SCRIPT"
	mutatedVariable = "NOTIFIER_TEST_MUTATED_BY"
)

// In the program that runTests starts, a script is replaced before the first test.
func init() {
	scripts := map[string]*string{
		"admit": &lua.Admit, "sent": &lua.Sent, "refund": &lua.Refund, "answered": &lua.Answered, "pauses": &lua.Pauses,
		"peek": &lua.Peek, "begin": &lua.Begin, "restore": &lua.Restore, "quarantine": &lua.Quarantine,
	}
	name, _ := strings.CutSuffix(filepath.Base(os.Getenv(scriptVariable)), ".lua")
	if script := scripts[name]; script != nil {
		text, err := os.ReadFile(os.Getenv(mutatedVariable))
		if err != nil {
			panic(err)
		}
		*script = string(text)
		ratelimit.ReadScriptsAgain()
	}
}
