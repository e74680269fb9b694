package preflight

import (
	"context"
	"strconv"

	"notifier/internal/term"
)

// memory looks whether a full server evicts admissions. Every key here has an expiry, so the volatile
// policies evict it like the others.
func (c *redisCheck) memory() {
	policy, known := c.info["maxmemory_policy"]
	limit := c.number("maxmemory")
	switch {
	case !known:
		c.report.note("make sure that maxmemory-policy is noeviction", "eviction policy unknown")
	case policy == "noeviction":
		c.report.ok("evicts nothing")
	case limit > 0:
		c.report.warn(
			"set maxmemory-policy noeviction: then it refuses writes, and events are held",
			"with maxmemory %s and the policy %s it evicts admissions when it is full, so more events are sent than the limits allow",
			term.Size(uint64(limit)),
			policy,
		)
	default:
		c.report.note(
			"set it to noeviction before maxmemory is ever set",
			"eviction policy %s, and no maxmemory yet",
			policy,
		)
	}
}

// persistence looks what a restart loses.
func (c *redisCheck) persistence(ctx context.Context) {
	switch {
	case c.info["aof_enabled"] == "":
		c.report.note("make sure that the append-only file is on", "persistence unknown")
	case c.info["aof_enabled"] == "0":
		c.report.warn(
			"set appendonly yes",
			"no append-only file: a restart loses admissions, and as many more events can be sent",
		)
	default:
		c.fsync(c.setting(ctx, "appendfsync"))
	}
}

// fsync looks what a crash of the machine loses.
func (c *redisCheck) fsync(policy string) {
	switch policy {
	case "always":
		c.report.ok("append-only file, written before it answers")
	case "":
		c.report.ok("append-only file; appendfsync unknown")
	case "everysec":
		c.report.note(
			"set appendfsync always if that matters",
			"append-only file, written once a second: when the machine fails, the admissions of the last second can be lost",
		)
	default:
		c.report.warn(
			"set appendfsync everysec or always",
			"append-only file with appendfsync %s: when the machine fails, half a minute of admissions can be lost",
			policy,
		)
	}
}

// replication looks what a failover loses.
func (c *redisCheck) replication(ctx context.Context) {
	connected := c.number("connected_slaves")
	if connected == 0 {
		return // there is nothing to fail over to
	}
	needed := c.setting(ctx, "min-replicas-to-write")
	number, _ := strconv.ParseInt(needed, 10, 64) // unknown: 0
	switch {
	case needed == "":
		c.report.note("", "%s; min-replicas-to-write unknown", term.Count(int(connected), "replica"))
	case number == 0 && connected > 1:
		c.report.note(
			"set min-replicas-to-write 1 and min-replicas-max-lag 1, see docs/design.md",
			"%s, none of which has to confirm a write: a failover loses what the new primary has not received",
			term.Count(int(connected), "replica"),
		)
	case number == 0:
		c.report.ok("%s, which need not confirm a write", term.Count(int(connected), "replica"))
	default:
		c.report.ok("%s, of which %s must be connected", term.Count(int(connected), "replica"), needed)
	}
}

// number is a number of INFO; 0 where there is none.
func (c *redisCheck) number(name string) int64 {
	n, _ := strconv.ParseInt(c.info[name], 10, 64)
	return n
}

// setting asks for a setting of the server; empty where that is forbidden, as it is with most providers.
func (c *redisCheck) setting(ctx context.Context, name string) (value string) {
	_ = withTimeout(ctx, func(ctx context.Context) error { // after an error it is unknown
		values, err := c.node.ConfigGet(ctx, name).Result()
		value = values[name]
		return err
	})
	return value
}
