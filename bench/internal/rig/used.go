package rig

import (
	"time"

	"github.com/prometheus/procfs"
)

// CPU is the processor time of a process that runs; 0 where the system does not say.
func CPU(pid int) time.Duration {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0
	}
	stat, err := process.Stat()
	if err != nil {
		return 0
	}
	return time.Duration(stat.CPUTime() * float64(time.Second))
}

// PeakMemory is the most memory that a process which runs has had at a time, in bytes; 0 where the system
// does not say. What the system reports when a process has ended is no replacement: it is at least what the
// process had that started it.
func PeakMemory(pid int) int64 {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0
	}
	status, err := process.NewStatus()
	if err != nil {
		return 0
	}
	return int64(status.VmHWM)
}
