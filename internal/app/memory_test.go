package app

import (
	"errors"
	"math"
	"os"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"

	"notifier/internal/consume/feed"
	"notifier/test/kit"
)

func TestTheBudgetIsAShareOfTheMemory(t *testing.T) {
	for _, test := range []struct{ limit, want int64 }{
		{math.MaxInt64, feed.DefaultBudget}, {1 << 20, leastInflight}, {128 << 20, 8 << 20}, {1 << 40, mostInflight},
	} {
		if got := inflightBudget(test.limit); got != test.want {
			t.Errorf("with a limit of %d bytes the budget is %d, expected %d", test.limit, got, test.want)
		}
	}
}

// unlimited removes the memory limit of the runtime for a test.
func unlimited(t *testing.T) {
	t.Helper()
	before := debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for _, name := range []string{"GOMEMLIMIT", "AUTOMEMLIMIT"} {
		t.Setenv(name, "") // restored at the end
		kit.Check(t, os.Unsetenv(name))
	}
}

func expectMemory(t *testing.T, container memlimit.Provider, budget, runtime int64) {
	t.Helper()
	if got := limitMemory(container, zap.NewNop()); got != budget {
		t.Errorf("the budget is %d bytes, expected %d", got, budget)
	}
	if got := debug.SetMemoryLimit(-1); got != runtime {
		t.Errorf("the runtime's limit is %d bytes, expected %d", got, runtime)
	}
}

func TestTheContainersMemoryLimitCounts(t *testing.T) {
	unlimited(t)
	expectMemory(t, memlimit.Limit(200<<20), 180<<20/16, 180<<20)
}

// The runtime reads GOMEMLIMIT when the process starts; the test stands in for that.
func TestGOMEMLIMITGoesBeforeTheContainer(t *testing.T) {
	unlimited(t)
	t.Setenv("GOMEMLIMIT", "160MiB")
	debug.SetMemoryLimit(160 << 20)
	expectMemory(t, memlimit.Limit(1<<30), 10<<20, 160<<20)
}

func TestWithoutAMemoryLimitTheBudgetIsFixed(t *testing.T) {
	for _, without := range []error{memlimit.ErrNoLimit, errors.New("no cgroups")} {
		unlimited(t)
		expectMemory(t, func() (uint64, error) { return 0, without }, feed.DefaultBudget, math.MaxInt64)
	}
}

// A worker in a small container keeps its memory for messages.
func TestHeadroomNeedsMemory(t *testing.T) {
	unlimited(t)
	if n := len(headroom()); n != headroomBytes {
		t.Errorf("%d bytes without a limit, expected %d", n, headroomBytes)
	}
	debug.SetMemoryLimit(64 << 20)
	if n := len(headroom()); n != 0 {
		t.Errorf("%d bytes under a limit of 64 MiB, expected none", n)
	}
}
