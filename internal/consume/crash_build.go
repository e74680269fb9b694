//go:build crashpoints

package consume

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// CrashVariable names the variable that selects where this build dies: "after-post:3" is the third time that any event passes this point. Unset: nowhere.
const CrashVariable = "NOTIFIER_CRASH_AT"

var crashPassed atomic.Int64

// crash kills the process as the kernel would, without any cleanup.
func crash(point crashPoint) {
	name, count, _ := strings.Cut(os.Getenv(CrashVariable), ":")
	if name != string(point) {
		return
	}
	if nth, err := strconv.ParseInt(count, 10, 64); err == nil && crashPassed.Add(1) == nth {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way
	}
}
