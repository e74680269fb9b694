package stats

import (
	"fmt"
	"time"
)

// Flushed is what a flush has brought back.
type Flushed struct {
	Now     time.Time // by the clock of Redis
	Version int64     // of what operators have asked for, see Keys.Steering; 0: nothing
}

// decodeFlushed checks every field of the reply from flush.lua.
func decodeFlushed(reply []any) (Flushed, error) {
	if len(reply) != 2 {
		return Flushed{}, fmt.Errorf("%d fields, expected 2", len(reply))
	}
	now, isNumber := reply[0].(int64)
	version, isVersion := reply[1].(int64)
	if !isNumber || !isVersion {
		return Flushed{}, fmt.Errorf("%.100q, expected a time and a version", fmt.Sprint(reply...))
	}
	return Flushed{Now: time.UnixMicro(now).UTC(), Version: version}, nil
}
