package preflight

import (
	"net"
	"slices"
	"testing"

	"notifier/internal/settings"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// redisFindings are those of a Redis, and expected to have a failure or none.
func redisFindings(t *testing.T, url string, failure bool) []Finding {
	t.Helper()
	s := parsed(t, func(env *settings.Environment) { env.RedisURL = url })
	findings := found(t, checkRedis, s)
	if failed := slices.ContainsFunc(findings, func(f Finding) bool { return f.Level == Fail }); failed != failure {
		t.Errorf("failed: %t, expected %t: %q", failed, failure, findings)
	}
	return findings
}

// TestRedis looks at servers that would lose admissions, or refuse to take them.
func TestRedis(t *testing.T) {
	t.Parallel()

	good := redistest.StartProcess(t, "--appendonly", "yes", "--appendfsync", "always", "--maxmemory", "64mb")
	good.SetUser(t, secret, "notifier", "~*", "+@all")
	url := "redis://notifier:" + secret + "@" + good.Addr
	findings := redisFindings(t, url, false)
	wantFinding(t, findings, Warn, "it requires no password: whoever can reach it") // its default user
	good.SetUser(t, secret, "default", "resetpass")
	findings = redisFindings(t, url, false)
	wantFinding(t, findings, OK, "standalone at "+good.Addr)
	wantFinding(t, findings, OK, "the script runs and answers in ")
	wantFinding(t, findings, OK, "its clock agrees with this host's within 1s")
	wantFinding(t, findings, OK, "evicts nothing; ")
	wantFinding(t, findings, OK, "append-only file, written before it answers")
	wantNone(t, findings, Warn)
	if keys, err := kit.OpenRedis(t, url).DBSize(t.Context()).Result(); keys != 0 || err != nil {
		t.Errorf("%d keys, %v; expected that a check leaves none", keys, err)
	}

	findings = redisFindings(t, redistest.StartProcess(t, "--maxmemory", "64mb", "--maxmemory-policy", "volatile-lru").URL(), false)
	wantFinding(t, findings, Warn, "with maxmemory 64.0 MiB and the policy volatile-lru it evicts admissions")
	wantFinding(t, findings, Warn, "no append-only file: a restart loses admissions")
	wantFinding(t, findings, Warn, "it requires no password")
	if warnings := slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return f.Level != Warn }); len(warnings) != 3 {
		t.Errorf("%d warnings, expected 3: %q", len(warnings), warnings)
	}
	findings = redisFindings(t, redistest.StartProcess(t, "--maxmemory-policy", "allkeys-lru", "--appendonly", "yes", "--appendfsync", "no").URL(), false)
	wantFinding(t, findings, Note, "eviction policy allkeys-lru, and no maxmemory yet")
	wantFinding(t, findings, Warn, "append-only file with appendfsync no")
	findings = redisFindings(t, redistest.StartProcess(t, "--appendonly", "yes", "--rename-command", "CONFIG", "").URL(), false)
	wantFinding(t, findings, OK, "append-only file; appendfsync unknown")
	findings = redisFindings(t, redistest.StartProcess(t, "--min-replicas-to-write", "1").URL(), true)
	wantFinding(t, findings, Fail, "it refuses writes: NOREPLICAS")

	host, port, _ := net.SplitHostPort(good.Addr)
	findings = redisFindings(t, redistest.StartProcess(t, "--replicaof", host+" "+port, "--masteruser", "notifier", "--masterauth", secret).URL(), true)
	wantFinding(t, findings, Fail, "REDIS_URL names a replica: name the primary")
}

// TestRedisRefuses: passwords and permissions.
func TestRedisRefuses(t *testing.T) {
	t.Parallel()
	server := redistest.StartProcess(t)
	server.SetUser(t, secret, "reader", "~*", "-@all", "+eval", "+evalsha", "+@read", "+time")
	server.SetUser(t, secret, "nobody", "-@all")
	as := func(user string) []Finding {
		return redisFindings(t, "redis://"+user+":"+secret+"@"+server.Addr, true)
	}
	wantFinding(t, as("stranger"), Fail, "WRONGPASS invalid username-password pair or user is disabled.; check the user and the password in REDIS_URL")
	wantFinding(t, as("nobody"), Fail, "give the user the ACL in docs/security.md")
	findings := as("reader")
	wantFinding(t, findings, Fail, "the user may not run DEL, HDEL, HINCRBY, HSET, HSETNX, PEXPIRE, PEXPIREAT, SET, ZADD, ZREM, ZREMRANGEBYRANK and ZREMRANGEBYSCORE on keys that begin with {notifier}:")
	wantFinding(t, findings, OK, "unknown version")
	wantFinding(t, findings, Warn, "the user may not run INFO")
	wantFinding(t, findings, Note, "eviction policy unknown")
}

// TestRedisKinds: Sentinel and Cluster are distinguished, and examined at the server that keeps the keys.
func TestRedisKinds(t *testing.T) {
	t.Parallel()
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.StartCluster(t, 3)
		findings := redisFindings(t, cluster.URL(), false)
		wantFinding(t, findings, OK, "Cluster, keys on "+cluster.Owner(t, "{notifier}:global").Addr)
		wantFinding(t, findings, Warn, "no append-only file")
	})
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		findings := redisFindings(t, redistest.StartSentinels(t, 1).URL(), false)
		wantFinding(t, findings, OK, "primary found through Sentinel")
		wantFinding(t, findings, OK, "1 replica, which need not confirm a write")
	})
}
