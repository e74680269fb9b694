//go:build mutants

package ratelimit_test

import (
	"cmp"
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
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/lua"
	"notifier/test/kit"
)

// A mutant is the product with one mistake. The tests of this package and of the scripts must fail on each
// mutant (make mutants). The first failing test ends the run of a mutant. With NOTIFIER_MUTANTS_RECORD each
// mutant meets all tests, which takes four times as long. The record shows which tests catch each mutant. A
// test that is never the only one to catch a mutant can go, if it checks nothing else.
//
// The lists name mistakes by file. «right¦wrong» replaces the right text with the wrong one. The line must
// occur exactly once in the file, so it includes words around the mistake. «right¦wrong¦wrong too» makes
// two mutants.
type mutant struct{ file, mistake, old, new string }

func allMutants() (all []mutant) {
	for _, mistakes := range []map[string][]string{scriptMistakes, goMistakes} {
		for _, file := range slices.Sorted(maps.Keys(mistakes)) {
			for _, line := range mistakes[file] {
				before, rest, _ := strings.Cut(line, "«")
				change, after, _ := strings.Cut(rest, "»")
				right, wrong, _ := strings.Cut(change, "¦")
				for _, wrong := range strings.Split(wrong, "¦") {
					mistake := strings.Replace(line, change, right+"¦"+wrong, 1)
					all = append(all, mutant{file, mistake, before + right + after, before + wrong + after})
				}
			}
		}
	}
	return all
}

// mutantDeadline bounds each part of the tests. A test that hangs on a mutant has caught it.
const mutantDeadline = 90 * time.Second

// TestEveryMutantFits takes a second. Run it after a change of the scripts or of this package.
func TestEveryMutantFits(t *testing.T) {
	for _, m := range allMutants() {
		if _, err := m.source("../.."); err != nil {
			t.Error(err)
		}
	}
}

// TestEveryMutantIsCaught takes more than an hour. -run selects mutants, for example
// TestEveryMutantIsCaught/mutant/restore.lua.
func TestEveryMutantIsCaught(t *testing.T) {
	root, err := filepath.Abs("../..")
	kit.Check(t, err)
	if !t.Run("fits", TestEveryMutantFits) { // a stale list fails before any mutant runs
		return
	}
	if catchers, output := runTests(t, root, "", "", true); len(catchers) > 0 {
		t.Fatalf("the tests fail without any mutant: %s\n%s", catchers, output)
	}

	all := allMutants()
	outcomes := make([]outcome, len(all))                  // zero if -run leaves the mutant out
	places := make(chan struct{}, runtime.GOMAXPROCS(0)+1) // -parallel is higher, for tests that only wait
	t.Run("mutant", func(t *testing.T) {
		for i, m := range all {
			t.Run(filepath.Base(m.file)+": "+m.mistake, func(t *testing.T) {
				t.Parallel()
				places <- struct{}{}
				defer func() { <-places }()
				outcomes[i] = m.run(t, root)
				outcomes[i].record(t)
			})
		}
	})
	report(t, recording(), slices.DeleteFunc(outcomes, func(o outcome) bool { return o.File == "" }))
}

// outcome lists the tests that caught a mutant. The list is empty if the mutant survived.
type outcome struct {
	File    string   `json:"file"`
	Mistake string   `json:"mistake"`
	Caught  []string `json:"caught"`
	Seconds float64  `json:"seconds"`
}

// recordVariable names the record: a file to which each outcome is appended as a line of JSON.
const recordVariable = "NOTIFIER_MUTANTS_RECORD"

func recording() bool { return os.Getenv(recordVariable) != "" }

func (o outcome) record(t *testing.T) {
	t.Helper()
	fmt.Printf("%-30s %-55s caught by %d\n", o.File, o.Mistake, len(o.Caught))
	if len(o.Caught) == 0 {
		t.Error("it survived")
	}
	if !recording() {
		return
	}
	line, err := json.Marshal(o)
	kit.Check(t, err)
	file, err := os.OpenFile(os.Getenv(recordVariable), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	kit.Check(t, err)
	_, err = file.Write(append(line, '\n')) // one write, because mutants run in parallel
	kit.Check(t, errors.Join(err, file.Close()))
}

// report prints the number of mutants caught. If full is set, it first prints the tests that caught each
// mutant, and for each test the number of mutants that it caught, and that only it caught.
func report(t *testing.T, full bool, outcomes []outcome) {
	t.Helper()
	if full {
		reportCatches(t, outcomes)
	}
	survived := func(o outcome) bool { return len(o.Caught) == 0 }
	all := len(outcomes)
	fmt.Printf("\ncaught %d of %d\n", len(slices.DeleteFunc(outcomes, survived)), all)
}

func reportCatches(t *testing.T, outcomes []outcome) {
	t.Helper()
	program, err := os.Executable()
	kit.Check(t, err)
	names, err := execute(t, ".", nil, program, "-test.list=^(Test|Fuzz)")
	kit.Check(t, err)
	total, alone := map[string]int{}, map[string]int{}
	for name := range strings.FieldsSeq(names) {
		total[name] = 0
	}
	fmt.Printf("\n%-30s %-55s %s\n", "FILE", "MISTAKE", "CAUGHT BY")
	for _, o := range outcomes {
		fmt.Printf("%-30s %-55s %s\n", o.File, o.Mistake, strings.Join(o.Caught, " "))
		for _, name := range o.Caught {
			total[name]++
		}
		if len(o.Caught) == 1 {
			alone[o.Caught[0]]++
		}
	}
	fmt.Printf("\n%6s %6s %s\n", "CAUGHT", "ALONE", "TEST")
	byCatches := func(a, b string) int {
		return cmp.Or(alone[b]-alone[a], total[b]-total[a], strings.Compare(a, b))
	}
	for _, name := range slices.SortedFunc(maps.Keys(total), byCatches) {
		fmt.Printf("%6d %6d %s\n", total[name], alone[name], name)
	}
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

// run runs the tests on one mutant.
func (m mutant) run(t *testing.T, root string) outcome {
	t.Helper()
	begin := time.Now()
	source, err := m.source(root)
	kit.Check(t, err)
	mutated := filepath.Join(t.TempDir(), filepath.Base(m.file))
	kit.Check(t, os.WriteFile(mutated, []byte(source), 0o600))
	catchers, _ := runTests(t, root, m.file, mutated, recording())
	return outcome{File: m.file, Mistake: m.mistake, Caught: catchers, Seconds: time.Since(begin).Seconds()}
}

// Patterns of test names. left matches the tests that mutants skip, because their servers start slowly.
const (
	left    = "^TestEveryMutant|Cluster|Sentinel|Primary|Failover|Silent"
	vectors = "^(TestTheScriptsDecideLikeTheModel|TestVectorsReplay)$"
	healing = "Loss|Lost|Heal|Restart|Quarantine|Replica|Emptied|NewStore"
)

// nearest lists the test files, without _test.go, that catch most mutants of a script.
var nearest = map[string][]string{
	"restore.lua":    {"restore", "moved", "posts"},
	"quarantine.lua": {"restore"},
	"begin.lua":      {"posts", "pace", "pace_model"},
	"answered.lua":   {"posts", "pace", "moved"},
	"pauses.lua":     {"pace"},
	"peek.lua":       {"peek", "trace"},
	"sent.lua":       {"restore", "repeat", "storage"},
	"refund.lua":     {"posts", "moved", "storage"},
	"record.lua":     {"posts", "storage", "restore"},
}

var testName = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)`)

// partsOf divides the tests for a mutant of a file. Each part runs in its own process, so the others still
// run after a crash or a hang. The first parts are quick and catch most mutants.
func partsOf(root, file string) ([][]string, error) {
	// The seed repeats the same histories. With -test.short, rapid plays a fifth of the checks.
	random := []string{"-rapid.seed=1", "-rapid.checks=500"}
	parts := [][]string{append(random, "-test.run="+vectors)}
	var near []string
	for _, name := range nearest[filepath.Base(file)] {
		text, err := os.ReadFile(filepath.Join(root, "internal/ratelimit", name+"_test.go"))
		if err != nil {
			return nil, err
		}
		for _, match := range testName.FindAllSubmatch(text, -1) {
			near = append(near, string(match[1]))
		}
	}
	if len(near) > 0 {
		parts = append(parts, append(random, "-test.skip="+left, "-test.run=^("+strings.Join(near, "|")+")$"))
	}
	return append(parts,
		append(random, "-test.skip="+left+"|"+vectors+"|"+healing),
		append(random, "-test.skip="+left, "-test.run="+healing),
	), nil
}

// runTests runs the tests with a file replaced, or with none if file is empty, and returns the names of the
// top-level tests that failed. Unless toTheEnd is set, it stops after the first part that fails. The tests
// of package lua run too, except for Go mutants. Only a Go mutant needs a new build of this package: for a
// script, this program is started again, and replaces the script first.
func runTests(t *testing.T, root, file, mutated string, toTheEnd bool) (failed []string, output string) {
	t.Helper()
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
		build := []string{"test", "-c", "-vet=off", "-overlay", overlayFile, "-o", program, "./internal/ratelimit"}
		if output, err := execute(t, root, nil, "go", build...); err != nil {
			t.Fatalf("the mutant does not compile: %v\n%s", err, output)
		}
	}
	collect := func(text string, err error) {
		output += text
		if err == nil {
			return
		}
		names := failures(text)
		if len(names) == 0 {
			t.Fatalf("no test failed, and yet they do not pass: %v\n%s", err, text)
		}
		failed = append(failed, names...)
	}
	environment := []string{scriptVariable + "=" + file, mutatedVariable + "=" + mutated}
	arguments := []string{
		"-test.short", "-test.timeout=" + mutantDeadline.String(), "-rapid.nofailfile", "-rapid.shrinktime=0s",
	}
	if !toTheEnd {
		arguments = append(arguments, "-test.failfast")
	}
	parts, err := partsOf(root, file)
	kit.Check(t, err)
	for _, part := range parts {
		if toTheEnd || len(failed) == 0 {
			directory := filepath.Join(root, "internal/ratelimit")
			collect(execute(t, directory, environment, program, slices.Concat(arguments, part)...))
		}
	}
	if !ofGo && (toTheEnd || len(failed) == 0) {
		ofScripts := []string{"test", "-count=1", "-vet=off", "-overlay", overlayFile, "./lua"}
		collect(execute(t, root, nil, "go", ofScripts...))
	}
	slices.Sort(failed)
	return slices.Compact(failed), output
}

var (
	failedTest  = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
	hangingTest = regexp.MustCompile(`(?m)^\t+(Test[^/ ]+)\S* \([0-9ms.]+\)$`) // in the message of -test.timeout
)

// failures names the tests that failed by the output of a part.
func failures(output string) (names []string) {
	matches := failedTest.FindAllStringSubmatch(output, -1)
	hung := strings.Contains(output, "panic: test timed out")
	if hung {
		matches = append(matches, hangingTest.FindAllStringSubmatch(output, -1)...)
	}
	for _, match := range matches {
		names = append(names, match[1])
	}
	if len(names) > 0 {
		return names
	}
	switch {
	case hung:
		return []string{"(the deadline)"}
	case strings.Contains(output, "\ngoroutine "):
		return []string{"(a crash)"} // outside of all test goroutines
	}
	return nil
}

// execute runs a program in a directory with additional environment variables.
func execute(t *testing.T, directory string, more []string, name string, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), mutantDeadline+time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, name, arguments...)
	command.Dir = directory
	command.Env = append(os.Environ(), more...)
	output, err := command.CombinedOutput()
	return string(output), err
}

const (
	scriptVariable  = "NOTIFIER_TEST_MUTATED_SCRIPT"
	mutatedVariable = "NOTIFIER_TEST_MUTATED_BY"
)

// init replaces a script if runTests has started this program.
func init() {
	scripts := map[string]*string{"admit": &lua.Admit, "pauses": &lua.Pauses}
	composed := map[string]*string{ // they begin with lua.Record
		"begin": &lua.Begin, "answered": &lua.Answered, "sent": &lua.Sent, "refund": &lua.Refund,
		"peek": &lua.Peek, "restore": &lua.Restore, "quarantine": &lua.Quarantine,
	}
	name, _ := strings.CutSuffix(filepath.Base(os.Getenv(scriptVariable)), ".lua")
	if scripts[name] == nil && composed[name] == nil && name != "record" {
		return
	}
	text, err := os.ReadFile(os.Getenv(mutatedVariable))
	if err != nil {
		panic(err)
	}
	switch {
	case scripts[name] != nil:
		*scripts[name] = string(text)
	case composed[name] != nil:
		*composed[name] = lua.Record + string(text)
	default:
		for _, script := range composed {
			own, found := strings.CutPrefix(*script, lua.Record)
			if !found {
				panic("a script does not begin with lua.Record")
			}
			*script = string(text) + own
		}
		lua.Record = string(text)
	}
	ratelimit.ReadScriptsAgain()
}
