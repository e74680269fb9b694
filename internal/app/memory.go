package app

import (
	"math"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"

	"notifier/internal/consume/feed"
)

// Of the memory that the process may use, a worker keeps this share at most for messages in flight. Decoded,
// being posted and not yet collected they take four times as much (measured by make bench-backlog), which is
// a quarter.
const (
	inflightShare = 16
	leastInflight = 4 << 20 // bytes; room for three of the largest messages that a server takes by default
	mostInflight  = 64 << 20
)

// headroomBytes is address space that is reserved and never touched, so that the system provides no memory
// for it. The Go runtime counts it as in use, and collects garbage when as much has been allocated as is in
// use: a worker that holds little, as most do, collects less often. A higher GOGC would cost a worker that
// holds much a multiple of this in memory.
const headroomBytes = 12 << 20

// headroom returns memory to keep until the process ends, or nil if the memory limit of the runtime is so low
// that it would count.
func headroom() []byte {
	if debug.SetMemoryLimit(-1) < 16*headroomBytes {
		return nil
	}
	return make([]byte, headroomBytes)
}

// limitMemory makes the Go runtime keep to nine tenths of the container's memory, unless GOMEMLIMIT sets a
// limit, and returns how many bytes of messages a worker may hold.
func limitMemory(container memlimit.Provider, log *zap.Logger) int64 {
	limit, err := memlimit.Set(memlimit.WithProvider(container))
	budget := inflightBudget(limit)
	fields := []zap.Field{zap.Int64("in_flight_bytes", budget)}
	if err != nil { // there are no cgroups, or AUTOMEMLIMIT is wrong; limit is unchanged
		fields = append(fields, zap.NamedError("reason", err))
	}
	if limit < math.MaxInt64 {
		fields = append(fields, zap.Int64("limit_bytes", limit))
	}
	log.Info("memory", fields...)
	return budget
}

// inflightBudget returns the share of a memory limit. The limit math.MaxInt64 means no limit.
func inflightBudget(limit int64) int64 {
	if limit == math.MaxInt64 {
		return feed.DefaultBudget
	}
	return min(max(limit/inflightShare, leastInflight), mostInflight)
}
