package isolation

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"notifier/test/kit"
)

// full enables all rows. The measurements need an otherwise idle machine.
var full = os.Getenv("NOTIFIER_ISOLATION") == "full"

// needsFull skips the test in an ordinary run.
func needsFull(t *testing.T) {
	t.Helper()
	if !full {
		t.Skip("run it with make isolation")
	}
}

// The pace set in the workers, and the window of the fake Slack's limits.
const (
	pace   = "10/10s"
	window = 10 * time.Second
)

// folder receives the build of released.
var folder string

// released is notifier built without the race detector and build tags.
var released = &kit.Program{}

func TestMain(m *testing.M) {
	kit.Overlap(4) // the parallel tests mostly wait
	kit.QuietRedis()
	code := kit.InFolder(m, &folder)
	printTable()
	os.Exit(code)
}

type row struct {
	name, measured, bar string
	met                 bool
}

var (
	tableLock sync.Mutex
	table     []row
)

// judge adds a row to the table and fails the test if the row does not meet its bar. format and values
// describe the measurement.
func judge(t *testing.T, name string, met bool, bar, format string, values ...any) {
	t.Helper()
	r := row{name, fmt.Sprintf(format, values...), bar, met}
	tableLock.Lock()
	table = append(table, r)
	tableLock.Unlock()
	if met {
		t.Logf("%s: %s (%s)", r.name, r.measured, r.bar)
	} else {
		t.Errorf("%s: %s, expected %s", r.name, r.measured, r.bar)
	}
}

func printTable() {
	if len(table) == 0 {
		return
	}
	slices.SortStableFunc(table, func(a, b row) int { return strings.Compare(a.name, b.name) })
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "row\tmeasured\tbar\tresult")
	for _, r := range table {
		result := "met"
		if !r.met {
			result = "NOT MET"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.name, r.measured, r.bar, result)
	}
	_ = w.Flush()
}
