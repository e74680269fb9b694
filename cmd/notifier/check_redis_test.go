//go:build !production

package main

import (
	"net"
	"strings"
	"testing"

	"notifier/internal/redistest"
)

// TestCheckRedis looks at servers that would forget admissions, or refuse to take them.
func TestCheckRedis(t *testing.T) {
	t.Parallel()
	settings := checkSettingsOf(t)
	look := func(url string, want int) *output {
		settings["REDIS_URL"] = url
		return checkAgainst(t, settings, want)
	}

	good := redistest.StartProcess(t, "--appendonly", "yes", "--appendfsync", "always", "--maxmemory", "64mb")
	out := look(good.URL(), exitDone)
	wantFinding(t, out, "ok", "redis", "standalone at "+good.Addr)
	wantFinding(t, out, "ok", "redis", "the script runs and answers in ")
	wantFinding(t, out, "ok", "redis", "its clock agrees with this host's within 1s")
	wantFinding(t, out, "ok", "redis", "evicts nothing; ")
	wantFinding(t, out, "ok", "redis", "append-only file, written before it answers")
	if lines := out.lines("warn"); len(lines) != 0 {
		t.Errorf("warnings about a good server: %q", lines)
	}
	if keys := good.Client(t).DBSize(t.Context()).Val(); keys != 0 {
		t.Errorf("%d keys, expected that a check leaves none", keys)
	}

	out = look(redistest.StartProcess(t, "--maxmemory", "64mb", "--maxmemory-policy", "volatile-lru").URL(), exitDone)
	wantFinding(t, out, "warn", "redis", "with maxmemory 64.0 MiB and the policy volatile-lru it evicts admissions")
	wantFinding(t, out, "warn", "redis", "no append-only file: a restart loses admissions")
	if !strings.Contains(out.String(), "nothing failed, 2 warnings") {
		t.Errorf("the warnings are not counted in:\n%s", out.String())
	}
	out = look(redistest.StartProcess(t, "--maxmemory-policy", "allkeys-lru", "--appendonly", "yes", "--appendfsync", "no").URL(), exitDone)
	wantFinding(t, out, "note", "redis", "eviction policy allkeys-lru, and no maxmemory yet")
	wantFinding(t, out, "warn", "redis", "append-only file with appendfsync no")
	out = look(redistest.StartProcess(t, "--appendonly", "yes", "--rename-command", "CONFIG", "").URL(), exitDone)
	wantFinding(t, out, "ok", "redis", "append-only file; appendfsync unknown")
	out = look(redistest.StartProcess(t, "--min-replicas-to-write", "1").URL(), exitFailed)
	wantFinding(t, out, "fail", "redis", "0 of 1 required replicas are connected")

	host, port, _ := net.SplitHostPort(good.Addr)
	out = look(redistest.StartProcess(t, "--replicaof", host+" "+port).URL(), exitFailed)
	wantFinding(t, out, "fail", "redis", "it is a replica, and takes no writes")
}

// TestCheckRedisRefuses: passwords and permissions.
func TestCheckRedisRefuses(t *testing.T) {
	t.Parallel()
	settings := checkSettingsOf(t)
	server := redistest.StartProcess(t)
	setUser(t, server, "reader", "~*", "-@all", "+eval", "+evalsha", "+@read", "+time")
	setUser(t, server, "nobody", "-@all")
	look := func(user string) *output {
		settings["REDIS_URL"] = "redis://" + user + ":" + secret + "@" + server.Addr
		out := checkAgainst(t, settings, exitFailed)
		if strings.Contains(out.String(), secret) {
			t.Errorf("a secret is told:\n%s", out.String())
		}
		return out
	}
	wantFinding(t, look("stranger"), "fail", "redis", "WRONGPASS invalid username-password pair or user is disabled.; check the user and the password in REDIS_URL")
	wantFinding(t, look("nobody"), "fail", "redis", "give the user the ACL in docs/security.md")
	out := look("reader")
	wantFinding(t, out, "fail", "redis", "the user may not run DEL, HDEL, HINCRBY, HSET, HSETNX, PEXPIRE, PEXPIREAT, SET, ZADD, ZREM, ZREMRANGEBYRANK and ZREMRANGEBYSCORE on keys that begin with {notifier}:")
	wantFinding(t, out, "ok", "redis", "unknown version")
	wantFinding(t, out, "note", "redis", "eviction policy unknown")
}

// setUser gives a server a user whose password is the secret.
func setUser(t *testing.T, server *redistest.Server, name string, rules ...string) {
	t.Helper()
	arguments := []any{"ACL", "SETUSER", name, "reset", "on", ">" + secret}
	for _, rule := range rules {
		arguments = append(arguments, rule)
	}
	if err := server.Client(t).Do(t.Context(), arguments...).Err(); err != nil {
		t.Fatalf("user %s: %v", name, err)
	}
}

// TestCheckRedisKinds: Sentinel and Cluster are told apart, and asked at the server that keeps the keys.
func TestCheckRedisKinds(t *testing.T) {
	t.Parallel()
	settings := checkSettingsOf(t)
	cluster := redistest.StartCluster(t, 3)
	settings["REDIS_URL"] = cluster.URL()
	out := checkAgainst(t, settings, exitDone)
	wantFinding(t, out, "ok", "redis", "Cluster, keys on "+cluster.Owner(t, "{notifier}:global").Addr)
	wantFinding(t, out, "warn", "redis", "no append-only file")

	settings["REDIS_URL"] = redistest.StartSentinels(t, 1).URL()
	out = checkAgainst(t, settings, exitDone)
	wantFinding(t, out, "ok", "redis", "primary found through Sentinel")
	wantFinding(t, out, "ok", "redis", "1 replica, which need not confirm a write")
}
