package main

import (
	"context"
	"strconv"
)

// memory looks whether a full server forgets what counts. Every key here has an expiry, so the volatile policies evict it
// like the others.
func (l *redisLook) memory() {
	policy, told := l.info["maxmemory_policy"]
	most, used := l.number("maxmemory"), l.number("used_memory")
	switch {
	case !told:
		l.f.note("see that maxmemory-policy is noeviction", "eviction policy not told")
	case most > 0 && policy != "noeviction":
		l.f.warn("set maxmemory-policy noeviction: then it refuses, and events are held", "with maxmemory %s and the policy %s it evicts admissions when it is full, and limits let more through", size(uint64(most)), policy)
	case policy != "noeviction":
		l.f.note("set it to noeviction before anybody sets maxmemory", "eviction policy %s, and no maxmemory yet", policy)
	case most > 0 && used > most/10*9:
		l.f.warn("give it more", "%s of maxmemory %s are used: full, it refuses, and events are held", size(uint64(used)), size(uint64(most)))
	case most > 0:
		l.f.ok("evicts nothing; %s of maxmemory %s used", size(uint64(used)), size(uint64(most)))
	default:
		l.f.ok("evicts nothing; %s used, no maxmemory", size(uint64(used)))
	}
}

// persistence looks what a restart forgets.
func (l *redisLook) persistence(ctx context.Context) {
	switch {
	case l.info["aof_enabled"] == "":
		l.f.note("see that the append-only file is on", "persistence not told")
	case l.info["aof_enabled"] == "0":
		l.f.warn("set appendonly yes", "no append-only file: a restart forgets admissions, and as many more can be let through")
	default:
		switch policy := l.setting(ctx, "appendfsync"); policy {
		case "always":
			l.f.ok("append-only file, written before it answers")
		case "":
			l.f.ok("append-only file; appendfsync not told")
		case "everysec":
			l.f.note("set appendfsync always if that matters", "append-only file, written once a second: when the machine fails, the admissions of the last second can be forgotten")
		default:
			l.f.warn("set appendfsync everysec or always", "append-only file with appendfsync %s: when the machine fails, half a minute of admissions can be forgotten", policy)
		}
	}
	for _, status := range []string{"aof_last_write_status", "rdb_last_bgsave_status"} {
		if value := l.info[status]; value != "" && value != "ok" {
			l.f.warn("look at its disk and its log", "%s is %s: it may refuse to write, and events are held then", status, value)
		}
	}
}

// replication looks what a failover forgets.
func (l *redisLook) replication(ctx context.Context) {
	replicas, told := l.info["connected_slaves"]
	if !told || l.info["role"] == "slave" {
		return
	}
	connected := l.number("connected_slaves")
	needed := l.setting(ctx, "min-replicas-to-write")
	number, _ := strconv.ParseInt(needed, 10, 64) // not told: none
	switch {
	case number > connected:
		l.f.fail("bring a replica back, or lower min-replicas-to-write", "%s of %s replicas that it needs are there, so it refuses to write", replicas, needed)
	case connected == 0:
		// Nobody to fail over to.
	case needed == "":
		l.f.note("", "%s; min-replicas-to-write not told", counted(int(connected), "replica"))
	case number == 0 && connected > 1:
		l.f.note("set min-replicas-to-write 1 and min-replicas-max-lag 1, see docs/design.md",
			"%s, and none has to confirm: a failover forgets what it has not received", counted(int(connected), "replica"))
	case number == 0:
		l.f.ok("%s, which need not confirm a write", counted(int(connected), "replica"))
	default:
		l.f.ok("%s, of which %s must be there", counted(int(connected), "replica"), needed)
	}
}

// number is a number of INFO; 0 where there is none.
func (l *redisLook) number(name string) int64 {
	n, _ := strconv.ParseInt(l.info[name], 10, 64)
	return n
}

// setting asks for a setting of the server; empty where that is forbidden, as it is with most providers.
func (l *redisLook) setting(ctx context.Context, name string) (value string) {
	_ = l.bounded(ctx, func(ctx context.Context) error { // an error means that it is not told
		settings, err := l.node.ConfigGet(ctx, name).Result()
		value = settings[name]
		return err
	})
	return value
}
