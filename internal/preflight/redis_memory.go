package preflight

import (
	"context"
	"strconv"

	"notifier/internal/settings"
	"notifier/internal/term"
)

// capacity compares what full limits, and the ids of what is sent under them, can take with what the server
// may still use.
func (c *redisCheck) capacity(ctx context.Context, s settings.Store) {
	needed := s.Limits.Memory(s.Dedupe)
	limits, ids := term.Size(uint64(needed.Limits)), term.Size(uint64(needed.IDs))
	maximum, known := c.maxMemory(ctx)
	left := max(0, maximum-c.number("used_memory"))
	switch {
	case !known:
		c.report.note(
			"make sure that it has room for that",
			"maxmemory unknown; full limits take up to %s, the ids of their events up to %s",
			limits,
			ids,
		)
	case maximum == 0:
		c.report.note("make sure that its host has room for that, or set maxmemory with the policy noeviction",
			"no maxmemory; full limits take up to %s, the ids of their events up to %s", limits, ids)
	case needed.Limits+needed.IDs > left:
		c.report.warn(
			"give it more, or set smaller limits, a precision such as 1000000/24h:15m, or a shorter DEDUPE_WINDOW",
			"full limits take up to %s and the ids of their events up to %s, and of maxmemory %s only %s are left: when it is full, it refuses writes, and events are held",
			limits,
			ids,
			term.Size(uint64(maximum)),
			term.Size(uint64(left)),
		)
	default:
		c.report.ok(
			"full limits take up to %s and the ids of their events up to %s; %s are left",
			limits,
			ids,
			term.Size(uint64(left)),
		)
	}
}

// maxMemory is how many bytes the server may use; 0: it has no bound. With some providers CONFIG is
// forbidden, and with others INFO has no such line.
func (c *redisCheck) maxMemory(ctx context.Context) (bytes int64, known bool) {
	text := c.setting(ctx, "maxmemory")
	if text == "" {
		text = c.info["maxmemory"]
	}
	bytes, err := strconv.ParseInt(text, 10, 64)
	return bytes, err == nil
}
