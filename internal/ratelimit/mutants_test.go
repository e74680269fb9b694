//go:build mutants

package ratelimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"notifier/internal/testkit"
)

// A mutant is the product with one mistake in it: old, which is there exactly once, is replaced by new. The tests of
// this package and of the scripts must fail on each (make mutants). What they let through, nobody would notice.
type mutant struct{ file, mistake, old, new string }

const (
	admitLua    = "lua/admit.lua"
	sentLua     = "lua/sent.lua"
	refundLua   = "lua/refund.lua"
	answerLua   = "lua/answered.lua"
	pausesLua   = "lua/pauses.lua"
	peekLua     = "lua/peek.lua"
	beginLua    = "lua/begin.lua"
	limiterGo   = "internal/ratelimit/limiter.go"
	planGo      = "internal/ratelimit/plan.go"
	replyGo     = "internal/ratelimit/reply.go"
	channelGo   = "internal/ratelimit/channel.go"
	keysGo      = "internal/ratelimit/keys.go"
	rulesGo     = "internal/ratelimit/rules.go"
	memberGo    = "internal/ratelimit/member.go"
	argumentsGo = "internal/ratelimit/arguments.go"
	indexGo     = "internal/ratelimit/index.go"
	traceGo     = "internal/ratelimit/trace.go"
	reformLua   = "lua/reform.lua"
	tidyLua     = "lua/tidy.lua"
	costGo      = "internal/ratelimit/cost.go"
	limitGo     = "internal/ratelimit/limit.go"
	reservesGo  = "internal/ratelimit/reserves.go"
	indexedGo   = "internal/ratelimit/indexed.go"
)

var mutants = slices.Concat(admitMutants, formMutants, paceMutants, goMutants)

// Each mutant has a deadline: one that makes a test wait for ever is caught too.
const mutantDeadline = 90 * time.Second

// TestEveryMutantFits takes a second: run it after a change of the product.
func TestEveryMutantFits(t *testing.T) {
	for _, m := range mutants {
		if _, err := m.source("../.."); err != nil {
			t.Error(err)
		}
	}
}

// TestEveryMutantIsCaught runs some of them with -run, for example TestEveryMutantIsCaught/mutant/reform.lua.
func TestEveryMutantIsCaught(t *testing.T) {
	root, err := filepath.Abs("../..")
	testkit.Check(t, err)
	if !t.Run("fits", TestEveryMutantFits) { // before the first is run
		return
	}
	if output, passed := test(t, root, nil); !passed {
		t.Fatalf("the tests fail without any mutant:\n%s", output)
	}

	var tried, caught atomic.Int32
	t.Run("mutant", func(t *testing.T) { // as many at a time as there are processors
		for _, m := range mutants {
			t.Run(filepath.Base(m.file)+": "+m.mistake, func(t *testing.T) {
				t.Parallel()
				tried.Add(1)
				by, err := m.run(t, root)
				testkit.Check(t, err)
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
		return "", fmt.Errorf("%s: %s: %q is there %d times, expected once: fix the list of mutants", m.file, m.mistake, m.old, n)
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
	output, passed := test(t, root, map[string]string{filepath.Join(root, m.file): mutated})
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

// test runs the tests with some files replaced, in short form, without those that need a while to start servers.
func test(t *testing.T, root string, replaced map[string]string) (output string, passed bool) {
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	testkit.Check(t, err)
	file := filepath.Join(t.TempDir(), "overlay.json")
	testkit.Check(t, os.WriteFile(file, overlay, 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), mutantDeadline+time.Minute)
	defer cancel()
	for _, arguments := range [][]string{{"./internal/ratelimit", "-rapid.nofailfile", "-rapid.shrinktime=0s"}, {"./lua"}} {
		command := exec.CommandContext(ctx, "go", append([]string{"test", "-overlay", file, "-count=1", "-short", "-failfast", "-vet=off",
			"-timeout", mutantDeadline.String(), "-skip", "Cluster|Sentinel|Primary|Failover|Redelivery|Traffic|Silent"}, arguments...)...)
		command.Dir = root
		text, err := command.CombinedOutput()
		output += string(text)
		if err != nil {
			return output, false
		}
	}
	return output, true
}
